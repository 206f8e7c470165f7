package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/admission"
)

var _ = Describe("config/default", func() {
	It("is applied again without a change", func(ctx SpecContext) {
		before := deployment(ctx)
		kubectl(ctx, "", "apply", "--server-side", "-k", manifests("default"))
		Expect(deployment(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
	}, specLimit)

	It("does not hold the audit", func(ctx SpecContext) {
		Expect(kubectl(ctx, "", "get", "kubeletcertaudits", "-o", "name")).To(BeEmpty())
	}, specLimit)

	It("runs a Pod that the restricted Pod Security Standard admits", func(ctx SpecContext) {
		Expect(enforced(ctx)).To(Equal("restricted"))
		Expect(dryRun(ctx, deployment(ctx), namespace)).To(Succeed())
	}, specLimit)
})

var _ = Describe("config/overlays/control-plane", func() {
	It("runs a Pod on the host's network, which takes the privileged namespace that it brings", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) {
			kubectl(ctx, "", "apply", "--server-side", "-k", manifests("default"))
			Expect(enforced(ctx)).To(Equal("restricted"))
			Expect(deployment(ctx).Spec.Template.Spec.HostNetwork).To(BeFalse())
		}, NodeTimeout(time.Minute))
		kubectl(ctx, "", "apply", "--server-side", "-k", manifests("overlays/control-plane"))
		d := deployment(ctx)
		Expect(d.Spec.Template.Spec.HostNetwork).To(BeTrue())
		Expect(d.Spec.Template.Spec.DNSPolicy).To(Equal(corev1.DNSDefault))

		Expect(enforced(ctx)).To(Equal("privileged"))
		Expect(dryRun(ctx, d, namespace)).To(Succeed())

		kubectl(ctx, restrictedNamespace, "create", "-f", "-")
		DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "", "delete", "--wait=false", "namespace", "restricted") }, NodeTimeout(time.Minute))
		Expect(dryRun(ctx, d, "restricted")).To(MatchError(And(
			ContainSubstring(`violates PodSecurity "restricted:latest"`), ContainSubstring("host namespaces"))))
	}, specLimit)
})

const restrictedNamespace = `apiVersion: v1
kind: Namespace
metadata:
  name: restricted
  labels:
    pod-security.kubernetes.io/enforce: restricted
`

var _ = Describe("config/webhook", func() {
	It("asks about new requests for the signer alone, briefly, and lets them through unanswered", func(ctx SpecContext) {
		c, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Webhooks).To(HaveLen(1))
		w := c.Webhooks[0]
		Expect(*w.FailurePolicy).To(Equal(admissionregistrationv1.Ignore))
		Expect(*w.TimeoutSeconds).To(Equal(int32(3)))
		Expect(*w.SideEffects).To(Equal(admissionregistrationv1.SideEffectClassNone))
		Expect(w.Rules).To(HaveLen(1))
		Expect(w.Rules[0].Operations).To(Equal([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}))
		Expect(w.Rules[0].Resources).To(Equal([]string{"certificatesigningrequests"}))
		Expect(w.MatchConditions).To(HaveLen(1))
		Expect(w.MatchConditions[0].Expression).To(Equal("object.spec.signerName == 'kubernetes.io/kubelet-serving'"))
		Expect(*w.ClientConfig.Service.Path).To(Equal(admission.Path))
	}, specLimit)

	It("keeps the CA that was written into it when it is applied again", func(ctx SpecContext) {
		patch := []byte(`[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"Q0E="}]`)
		configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		_, err := configurations.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: name})
		Expect(err).NotTo(HaveOccurred())
		for _, how := range [][]string{{"--server-side"}, {"--server-side", "--force-conflicts"}} {
			kubectl(ctx, "", append([]string{"apply", "-k", manifests("default")}, how...)...)
			c, err := configurations.Get(ctx, name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(string(c.Webhooks[0].ClientConfig.CABundle)).To(Equal("CA"), how)
		}
	}, specLimit)
})

var _ = Describe("config/overlays/cert-manager", func() {
	It("does without a right to Secrets, and has the CA written by cert-manager", func(ctx SpecContext) {
		text := kubectl(ctx, "", "kustomize", manifests("overlays/cert-manager"))
		Expect(text).NotTo(ContainSubstring("secrets"))
		Expect(text).NotTo(ContainSubstring("kind: Secret"))
		Expect(text).NotTo(ContainSubstring("validatingwebhookconfigurations"))
		Expect(text).To(ContainSubstring("cert-manager.io/inject-ca-from: " + namespace + "/kubelet-cert-auditor-webhook"))
		Expect(text).To(ContainSubstring("--webhook-self-signed=false"))
		Expect(text).To(ContainSubstring("secretName: kubelet-cert-auditor-webhook\n"))
	}, specLimit)
})

var _ = Describe("config/samples", func() {
	AfterEach(func(ctx SpecContext) {
		kubectl(ctx, "", "delete", "--ignore-not-found", "kubeletcertaudit", "cluster")
	}, NodeTimeout(time.Minute))

	It("creates the audit, and the API server fills in every default", func(ctx SpecContext) {
		kubectl(ctx, "", "apply", "-k", manifests("samples"))
		Expect(audit(ctx).Spec).To(Equal(defaults()))
	}, specLimit)

	It("is the same audit as one without a spec", func(ctx SpecContext) {
		kubectl(ctx, manifest("cluster", ""), "apply", "-f", "-")
		Expect(audit(ctx).Spec).To(Equal(defaults()))
	}, specLimit)

	It("is printed at a glance before there is an answer", func(ctx SpecContext) {
		kubectl(ctx, "", "apply", "-k", manifests("samples"))
		header, _, _ := strings.Cut(kubectl(ctx, "", "get", "kca"), "\n")
		Expect(strings.Fields(header)).To(Equal([]string{
			"NAME", "READY", "REASON", "NODES", "VERIFIED", "BREAKS", "REJECTED", "UNKNOWN", "LAST", "SWEEP", "AGE"}))
	}, specLimit)
})

func defaults() v1alpha1.KubeletCertAuditSpec {
	return v1alpha1.KubeletCertAuditSpec{
		Interval:              metav1.Duration{Duration: 10 * time.Minute},
		Timeout:               metav1.Duration{Duration: 10 * time.Second},
		FailureThreshold:      3,
		NewNodeGrace:          metav1.Duration{Duration: 5 * time.Minute},
		Admission:             v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionWarn},
		PreferredAddressTypes: v1alpha1.AddressTypes(),
		KubeletPort:           10250,
	}
}

var _ = Describe("the API server", func() {
	DescribeTable("refuses a bad audit in one clear sentence about the field",
		func(ctx SpecContext, spec, field, sentence string) {
			refused(ctx, manifest("cluster", spec), field, sentence)
		},
		Entry("an unknown address type", specLimit, "preferredAddressTypes: [InternalIP, InternalIp]",
			"spec.preferredAddressTypes[1]", `Unsupported value: "InternalIp": supported values: "Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"`),
		Entry("no address type", specLimit, "preferredAddressTypes: []",
			"spec.preferredAddressTypes", "should have at least 1 items"),
		Entry("an address type twice", specLimit, "preferredAddressTypes: [InternalIP, InternalIP]",
			"spec.preferredAddressTypes[1]", "Duplicate value"),
		Entry("port 0", specLimit, "kubeletPort: 0",
			"spec.kubeletPort", "should be greater than or equal to 1"),
		Entry("port 70000", specLimit, "kubeletPort: 70000",
			"spec.kubeletPort", "should be less than or equal to 65535"),
		Entry("a zero timeout", specLimit, "timeout: 0s",
			"spec.timeout", "timeout must be above 0s and at most 5m"),
		Entry("a negative timeout", specLimit, "timeout: -1s",
			"spec.timeout", "timeout must be above 0s and at most 5m"),
		Entry("a timeout of an hour", specLimit, "timeout: 1h",
			"spec.timeout", "timeout must be above 0s and at most 5m"),
		Entry("an interval below 10s", specLimit, "interval: 9999ms",
			"spec.interval", "interval must be at least 10s"),
		Entry("an interval that is no duration", specLimit, "interval: often",
			"spec.interval", "interval must be at least 10s"),
		Entry("a number as an interval", specLimit, "interval: 600",
			"spec.interval", `must be of type string: "integer"`),
		Entry("a threshold of 0", specLimit, "failureThreshold: 0",
			"spec.failureThreshold", "should be greater than or equal to 1"),
		Entry("a negative grace", specLimit, "newNodeGrace: -5m",
			"spec.newNodeGrace", "newNodeGrace must not be negative"),
		Entry("two sources of the trust bundle", specLimit, "trustBundle: {file: /ca.crt, configMap: {name: ca}}",
			"spec.trustBundle", "exactly one of configMap, file and inline must be set"),
		Entry("three sources of the trust bundle", specLimit, "trustBundle: {file: /ca.crt, inline: x, configMap: {name: ca}}",
			"spec.trustBundle", "exactly one of configMap, file and inline must be set"),
		Entry("no source of the trust bundle", specLimit, "trustBundle: {}",
			"spec.trustBundle", "exactly one of configMap, file and inline must be set"),
		Entry("a ConfigMap without a name", specLimit, "trustBundle: {configMap: {key: ca.crt}}",
			"spec.trustBundle.configMap.name", "Required value"),
		Entry("an empty file name", specLimit, `trustBundle: {file: ""}`,
			"spec.trustBundle.file", "should be at least 1 chars long"),
		Entry("an unknown admission mode", specLimit, "admission: {mode: Deny}",
			"spec.admission.mode", `Unsupported value: "Deny": supported values: "Warn", "Enforce", "Off"`),
		Entry("a node selector with an unknown operator", specLimit, "nodeSelector: {matchExpressions: [{key: a, operator: Maybe}]}",
			"spec.nodeSelector", "matchExpressions must hold"),
		Entry("a node selector that lacks values", specLimit, "nodeSelector: {matchExpressions: [{key: a, operator: In}]}",
			"spec.nodeSelector", "matchExpressions must hold"),
		Entry("a node selector with values too many", specLimit, "nodeSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
			"spec.nodeSelector", "matchExpressions must hold"),
	)

	It("refuses a second audit with another name", func(ctx SpecContext) {
		refused(ctx, manifest("other", ""), "<nil>", "there is one KubeletCertAudit, named cluster")
	}, specLimit)

	It("refuses a bad change and keeps the audit as it was", func(ctx SpecContext) {
		kubectl(ctx, manifest("cluster", "interval: 20s"), "apply", "-f", "-")
		DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "", "delete", "kubeletcertaudit", "cluster") }, NodeTimeout(time.Minute))
		refused(ctx, manifest("cluster", "interval: 1s"), "spec.interval", "interval must be at least 10s")
		Expect(audit(ctx).Spec.Interval.Duration).To(Equal(20 * time.Second))
	}, specLimit)
})

// manifest is a KubeletCertAudit whose spec is flow or block YAML of one line.
func manifest(name, spec string) string {
	m := "apiVersion: kubeletcert.dev/v1alpha1\nkind: KubeletCertAudit\nmetadata:\n  name: " + name + "\n"
	if spec != "" {
		m += "spec:\n  " + spec + "\n"
	}
	return m
}

// refused applies a manifest and expects the API server to say why not, with
// one cause.
func refused(ctx context.Context, manifest, field, sentence string) {
	GinkgoHelper()
	_, err := cp.Kubectl(ctx, strings.NewReader(manifest), "apply", "-f", "-")
	Expect(err).To(MatchError(ContainSubstring("is invalid: ")))
	_, text, _ := strings.Cut(err.Error(), "is invalid: ")
	// Where a type or an enum is wrong, the API server adds that it skipped CEL.
	text, _, _ = strings.Cut(text, "\n* <nil>: Invalid value: null: some validation rules were not checked")
	GinkgoWriter.Println(text)
	Expect(strings.TrimPrefix(text, "\n* ")).To(And(
		HavePrefix(field+": "), ContainSubstring(sentence), Not(ContainSubstring("\n"))))
}

var _ = DescribeTable("the manager's ServiceAccount",
	func(ctx SpecContext, may bool, verb, what, in string) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + namespace + ":" + name,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		}}
		if strings.HasPrefix(what, "/") {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: what, Verb: verb}
		} else {
			review.Spec.ResourceAttributes = attributes(verb, what, in)
		}
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.Status.Allowed).To(Equal(may), answer.Status.Reason)
	},
	func(may bool, verb, what, in string) string {
		return fmt.Sprintf("%s %s %s%s", map[bool]string{true: "may", false: "may not"}[may], verb, what,
			map[bool]string{true: " in " + in}[in != ""])
	},
	// Reading and marking Nodes.
	Entry(nil, specLimit, true, "get", "nodes", ""),
	Entry(nil, specLimit, true, "list", "nodes", ""),
	Entry(nil, specLimit, true, "watch", "nodes", ""),
	Entry(nil, specLimit, true, "patch", "nodes/status", ""),
	Entry(nil, specLimit, false, "update", "nodes/status", ""),
	Entry(nil, specLimit, false, "create", "nodes", ""),
	Entry(nil, specLimit, false, "update", "nodes", ""),
	Entry(nil, specLimit, false, "patch", "nodes", ""),
	Entry(nil, specLimit, false, "delete", "nodes", ""),
	Entry(nil, specLimit, false, "get", "nodes/proxy", ""),
	Entry(nil, specLimit, false, "create", "nodes/proxy", ""),
	Entry(nil, specLimit, false, "get", "nodes/log", ""),
	Entry(nil, specLimit, false, "get", "nodes/stats", ""),

	// Events about Nodes in default, about the lease in the manager's namespace.
	Entry(nil, specLimit, true, "create", "events.events.k8s.io", "default"),
	Entry(nil, specLimit, true, "patch", "events.events.k8s.io", "default"),
	Entry(nil, specLimit, true, "create", "events", namespace),
	Entry(nil, specLimit, true, "patch", "events", namespace),
	Entry(nil, specLimit, false, "create", "events", "default"),
	Entry(nil, specLimit, false, "create", "events.events.k8s.io", namespace),
	Entry(nil, specLimit, false, "list", "events.events.k8s.io", "default"),
	Entry(nil, specLimit, false, "delete", "events.events.k8s.io", "default"),
	Entry(nil, specLimit, false, "create", "events.events.k8s.io", "kube-system"),

	// The audit, by its one name.
	Entry(nil, specLimit, true, "get", "kubeletcertaudits.kubeletcert.dev/cluster", ""),
	Entry(nil, specLimit, true, "list", "kubeletcertaudits.kubeletcert.dev", ""),
	Entry(nil, specLimit, true, "watch", "kubeletcertaudits.kubeletcert.dev", ""),
	Entry(nil, specLimit, true, "update", "kubeletcertaudits.kubeletcert.dev/cluster", ""),
	Entry(nil, specLimit, true, "update", "kubeletcertaudits.kubeletcert.dev/cluster/status", ""),
	Entry(nil, specLimit, false, "update", "kubeletcertaudits.kubeletcert.dev/other", ""),
	Entry(nil, specLimit, false, "patch", "kubeletcertaudits.kubeletcert.dev/cluster", ""),
	Entry(nil, specLimit, false, "create", "kubeletcertaudits.kubeletcert.dev", ""),
	Entry(nil, specLimit, false, "delete", "kubeletcertaudits.kubeletcert.dev/cluster", ""),

	// Its own namespace: the lease and trust bundles.
	Entry(nil, specLimit, true, "create", "leases.coordination.k8s.io", namespace),
	Entry(nil, specLimit, true, "get", "leases.coordination.k8s.io/"+name, namespace),
	Entry(nil, specLimit, true, "update", "leases.coordination.k8s.io/"+name, namespace),
	Entry(nil, specLimit, false, "update", "leases.coordination.k8s.io/other", namespace),
	Entry(nil, specLimit, false, "delete", "leases.coordination.k8s.io/"+name, namespace),
	Entry(nil, specLimit, false, "update", "leases.coordination.k8s.io/"+name, "kube-system"),
	Entry(nil, specLimit, false, "update", "leases.coordination.k8s.io/n1", "kube-node-lease"),
	Entry(nil, specLimit, true, "get", "configmaps/any", namespace),
	Entry(nil, specLimit, true, "list", "configmaps", namespace),
	Entry(nil, specLimit, true, "watch", "configmaps", namespace),
	Entry(nil, specLimit, false, "create", "configmaps", namespace),
	Entry(nil, specLimit, false, "update", "configmaps/any", namespace),
	Entry(nil, specLimit, false, "get", "configmaps/extension-apiserver-authentication", "kube-system"),
	Entry(nil, specLimit, false, "list", "configmaps", ""),

	// Authentication of metrics.
	Entry(nil, specLimit, true, "create", "tokenreviews.authentication.k8s.io", ""),
	Entry(nil, specLimit, true, "create", "subjectaccessreviews.authorization.k8s.io", ""),

	// Requests for certificates, which it approves and makes none of.
	Entry(nil, specLimit, true, "get", "certificatesigningrequests.certificates.k8s.io/any", ""),
	Entry(nil, specLimit, true, "list", "certificatesigningrequests.certificates.k8s.io", ""),
	Entry(nil, specLimit, true, "watch", "certificatesigningrequests.certificates.k8s.io", ""),
	Entry(nil, specLimit, false, "create", "certificatesigningrequests.certificates.k8s.io", ""),
	Entry(nil, specLimit, false, "update", "certificatesigningrequests.certificates.k8s.io/any/approval", ""),
	Entry(nil, specLimit, false, "update", "certificatesigningrequests.certificates.k8s.io/any/status", ""),
	Entry(nil, specLimit, false, "approve", "signers.certificates.k8s.io/kubernetes.io", ""),
	Entry(nil, specLimit, true, "get", "services/kubernetes", "default"),
	Entry(nil, specLimit, false, "get", "services/other", "default"),
	Entry(nil, specLimit, false, "list", "services", "default"),
	Entry(nil, specLimit, true, "get", "endpointslices.discovery.k8s.io/kubernetes", "default"),
	Entry(nil, specLimit, false, "get", "endpointslices.discovery.k8s.io/other", "default"),

	// The webhook's certificate.
	Entry(nil, specLimit, true, "list", "secrets", namespace),
	Entry(nil, specLimit, true, "watch", "secrets", namespace),
	Entry(nil, specLimit, true, "get", "secrets/kubelet-cert-auditor-webhook", namespace),
	Entry(nil, specLimit, true, "update", "secrets/kubelet-cert-auditor-webhook", namespace),
	Entry(nil, specLimit, false, "update", "secrets/other", namespace),
	Entry(nil, specLimit, false, "create", "secrets", namespace),
	Entry(nil, specLimit, false, "delete", "secrets/kubelet-cert-auditor-webhook", namespace),
	Entry(nil, specLimit, true, "list", "validatingwebhookconfigurations.admissionregistration.k8s.io", ""),
	Entry(nil, specLimit, true, "update", "validatingwebhookconfigurations.admissionregistration.k8s.io/"+name, ""),
	Entry(nil, specLimit, false, "update", "validatingwebhookconfigurations.admissionregistration.k8s.io/other", ""),
	Entry(nil, specLimit, false, "list", "mutatingwebhookconfigurations.admissionregistration.k8s.io", ""),

	// Nothing else.
	Entry(nil, specLimit, false, "get", "secrets/any", namespace),
	Entry(nil, specLimit, false, "list", "secrets", ""),
	Entry(nil, specLimit, false, "list", "secrets", "kube-system"),
	Entry(nil, specLimit, false, "list", "pods", ""),
	Entry(nil, specLimit, false, "create", "pods", namespace),
	Entry(nil, specLimit, false, "create", "pods/exec", namespace),
	Entry(nil, specLimit, false, "create", "serviceaccounts/"+name+"/token", namespace),
	Entry(nil, specLimit, false, "update", "deployments.apps/"+name, namespace),
	Entry(nil, specLimit, false, "update", "clusterroles.rbac.authorization.k8s.io/"+name, ""),
	Entry(nil, specLimit, false, "impersonate", "users", ""),
	Entry(nil, specLimit, false, "get", "/metrics", ""),
	Entry(nil, specLimit, false, "get", "/logs", ""),
)

// attributes reads RESOURCE[.GROUP][/NAME[/SUBRESOURCE]], where NAME may be left
// out before a subresource of a Node.
func attributes(verb, what, in string) *authorizationv1.ResourceAttributes {
	resource, rest, _ := strings.Cut(what, "/")
	a := &authorizationv1.ResourceAttributes{Verb: verb, Namespace: in}
	a.Resource, a.Group, _ = strings.Cut(resource, ".")
	a.Name, a.Subresource, _ = strings.Cut(rest, "/")
	if a.Resource == "nodes" || a.Resource == "pods" {
		a.Name, a.Subresource = "any", rest
	}
	return a
}

// kubectl runs kubectl with a manifest as its input, if there is one.
func kubectl(ctx context.Context, manifest string, args ...string) string {
	GinkgoHelper()
	var stdin io.Reader
	if manifest != "" {
		stdin = strings.NewReader(manifest)
	}
	out, err := cp.Kubectl(ctx, stdin, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

func audit(ctx context.Context) *v1alpha1.KubeletCertAudit {
	GinkgoHelper()
	a := &v1alpha1.KubeletCertAudit{}
	Expect(json.Unmarshal([]byte(kubectl(ctx, "", "get", "kubeletcertaudit", "cluster", "-o", "json")), a)).To(Succeed())
	return a
}

func deployment(ctx context.Context) *appsv1.Deployment {
	GinkgoHelper()
	d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return d
}

// enforced is the Pod Security Standard of the manager's namespace.
func enforced(ctx context.Context) string {
	GinkgoHelper()
	n, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return n.Labels["pod-security.kubernetes.io/enforce"]
}

// dryRun asks the API server to admit a Pod as the Deployment would make it.
func dryRun(ctx context.Context, d *appsv1.Deployment, in string) error {
	pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	pod.GenerateName = name + "-"
	_, err := client.CoreV1().Pods(in).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
