package controllers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

var _ = Describe("The KubeletCertAudit", func() {
	It("is one, named cluster", func(ctx SpecContext) {
		createAudit(ctx, nil)
		err := kube.Create(ctx, &v1alpha1.KubeletCertAudit{ObjectMeta: metav1.ObjectMeta{Name: "another"}})
		Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("there is one KubeletCertAudit, named cluster"))))
	}, limit)

	It("is what probing starts with: without it nothing is dialled, and the log says so once", func(ctx SpecContext) {
		m := join(ctx, "waiting", "good")
		manager := start(ctx, nil)
		silence := func() []string { return manager.lines("there is no KubeletCertAudit") }
		Eventually(silence).Should(HaveLen(1))
		// Something that the manager reacts to, so that it had its chance.
		kubectl(ctx, "label", "node", m.name, "a=b")
		Consistently(m.connections).WithTimeout(time.Second).Should(BeZero())
		Expect(series("ready_to_enforce")).To(BeEmpty())
		Expect(silence()).To(HaveLen(1))

		createAudit(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))
	}, limit)

	It("takes our condition from every node with it, also from those left out", func(ctx SpecContext) {
		members := []member{join(ctx, "kept", "good"), join(ctx, "deselected", "bare-node-name")}
		createAudit(ctx, nil)
		start(ctx, nil)
		for _, m := range members {
			Eventually(ctx, m.condition).ShouldNot(BeEmpty())
		}
		// Left out, with a condition that is nobody's business but ours.
		editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) {
			s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "kept"}}
		})
		Eventually(ctx, members[1].condition).Should(BeEmpty())
		patchStatus(ctx, kube, "deselected", `{"status":{"conditions":[{"type":"KubeletServingCertificateValid","status":"True","reason":"Verified"},
			{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`)

		kubectl(ctx, "delete", "kubeletcertaudit", "cluster", "--timeout=20s")
		for _, m := range members {
			Expect(m.condition(ctx)).To(BeEmpty(), m.name)
		}
		Expect(members[1].get(ctx).Status.Conditions).To(HaveExactElements(HaveField("Reason", "KubeletReady")))
		Expect(series("ready_to_enforce")).To(BeEmpty())
		Expect(series("nodes")).To(BeEmpty())

		By("coming back")
		createAudit(ctx, nil)
		Eventually(ctx, members[1].condition).Should(Equal("False CommonNameMismatch"))
	}, limit)

	It("deleted after the manager ends clean with cleanup, which may run again", func(ctx SpecContext) {
		members := []member{join(ctx, "left-a", "good"), join(ctx, "left-b", "bare-node-name")}
		createAudit(ctx, nil)
		manager := start(ctx, nil)
		for _, m := range members {
			Eventually(ctx, m.condition).ShouldNot(BeEmpty())
		}
		manager.stop()
		kubectl(ctx, "delete", "kubeletcertaudit", "cluster", "--wait=false")
		Expect(getAudit(ctx).DeletionTimestamp).NotTo(BeNil(), "the finalizer holds it")

		Expect(cleanUp(ctx)).To(Equal("removed the condition from 2 nodes\nremoved the finalizer of the KubeletCertAudit\n"))
		for _, m := range members {
			Expect(m.condition(ctx)).To(BeEmpty(), m.name)
		}
		kubectl(ctx, "wait", "--for=delete", "kubeletcertaudit/cluster", "--timeout=5s")
		Expect(cleanUp(ctx)).To(Equal("removed the condition from 0 nodes\nthere is no KubeletCertAudit\n"))
	}, limit)

	It("lists failing nodes worst first, and counts each group", func(ctx SpecContext) {
		join(ctx, "a-good", "good")
		join(ctx, "b-unknown", "refused")
		join(ctx, "c-breaks", "bare-node-name")
		join(ctx, "d-rejected", "unknown-ca")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, func() v1alpha1.NodeCounts { return getAudit(ctx).Status.Nodes }).Should(Equal(
			v1alpha1.NodeCounts{Total: 4, Verified: 1, BreaksWhenEnabled: 1, RejectedToday: 1, Unknown: 1}))
		Expect(getAudit(ctx).Status.FailingNodes).To(Equal([]v1alpha1.FailingNode{
			{Name: "d-rejected", Reason: v1alpha1.ReasonUnknownAuthority},
			{Name: "c-breaks", Reason: v1alpha1.ReasonCommonNameMismatch},
			{Name: "b-unknown", Reason: v1alpha1.ReasonConnectionFailed},
		}))
		Expect(kubectl(ctx, "get", "kca")).To(MatchRegexp(`(?m)^cluster +False +NodesRejectedToday +4 +1 +1 +1 +1 `))
	}, limit)

	It("lists as many failing nodes as a status may hold, and counts all of them", func(ctx SpecContext) {
		for i := range 101 { // without an address
			Expect(kube.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", i)}})).To(Succeed())
		}
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, func() v1alpha1.NodeCounts { return getAudit(ctx).Status.Nodes }).Should(Equal(v1alpha1.NodeCounts{Total: 101, Unknown: 101}))
		failing := getAudit(ctx).Status.FailingNodes
		Expect(failing).To(HaveLen(100))
		Expect(failing[99].Name).To(Equal("n099"))
	}, limit)
})

var _ = Describe("The CLI", func() {
	It("gives the same verdicts on the live cluster, on a file of it, and as conditions", func(ctx SpecContext) {
		members := map[string]member{}
		for _, d := range certs.Defects() {
			members[d.Name] = join(ctx, d.Name, d.Name)
		}
		createAudit(ctx, nil)
		start(ctx, nil)
		for _, d := range certs.Defects() {
			Eventually(ctx, members[d.Name].condition).Should(Equal(d.Status + " " + string(d.Reason)))
		}
		list := kubectl(ctx, "get", "nodes", "-o", "json")
		ca := file("ca.crt", world.CA.PEM())
		common := []string{"audit", "-o", "json", "--kubelet-certificate-authority", ca, "--timeout", "3s",
			"--kubelet-preferred-address-types", "InternalIP", "--allow-local-addresses"}
		live := auditNodes(ctx, "", append(common, "--kubeconfig", kubeconfig())...)
		Expect(live).To(HaveLen(len(members)))
		Expect(auditNodes(ctx, list, append(common, "-f", "-")...)).To(Equal(live))
		Expect(auditNodes(ctx, kubectl(ctx, "get", "nodes", "-o", "yaml"), append(common, "-f", "-")...)).To(Equal(live))
		for name, m := range members {
			condition := ours(m.get(ctx))
			Expect(live[name]).To(Equal(auditedNode{name, string(condition.Status), condition.Reason, condition.Message}))
		}
	}, limit)
})

type auditedNode struct{ Name, Status, Reason, Message string }

// auditNodes runs the command on a cluster that is not ready, and gives its
// nodes by name.
func auditNodes(ctx context.Context, stdin string, args ...string) map[string]auditedNode {
	GinkgoHelper()
	var out, errOut bytes.Buffer
	code, err := cli.Run(ctx, args, cli.Streams{In: strings.NewReader(stdin), Out: &out, Err: &errOut})
	Expect(err).NotTo(HaveOccurred(), errOut.String())
	Expect(code).To(Equal(1))
	var report struct{ Nodes []auditedNode }
	Expect(json.Unmarshal(out.Bytes(), &report)).To(Succeed())
	byName := map[string]auditedNode{}
	for _, node := range report.Nodes {
		byName[node.Name] = node
	}
	return byName
}

var _ = Describe("The metrics endpoint", func() {
	It("answers those alone that may get /metrics", func(ctx SpecContext) {
		join(ctx, "measured", "good")
		createAudit(ctx, nil)
		port, err := controlplane.FreePort(ctx)
		Expect(err).NotTo(HaveOccurred())
		address := fmt.Sprintf("127.0.0.1:%d", port)
		start(ctx, func(o *cli.ManagerOptions) { o.MetricsBindAddress = address })

		scrape := func(token string) (int, string) {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}} // its certificate is its own
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", nil)
			Expect(err).NotTo(HaveOccurred())
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := client.Do(req)
			if err != nil {
				return 0, err.Error()
			}
			defer func() { _ = resp.Body.Close() }()
			body, err := io.ReadAll(resp.Body)
			Expect(err).NotTo(HaveOccurred())
			return resp.StatusCode, string(body)
		}
		code := func(token string) func() int {
			return func() int { code, _ := scrape(token); return code }
		}
		kubectl(ctx, "create", "clusterrolebinding", "scraper", "--clusterrole=kubelet-cert-auditor-metrics-reader",
			fmt.Sprintf("--serviceaccount=%s:scraper", namespace))
		scraper, stranger := tokenOf(ctx, "scraper"), tokenOf(ctx, "stranger")
		Eventually(code("")).Should(Equal(http.StatusUnauthorized))
		// controller-runtime's way to refuse a token that nobody issued.
		Expect(code("nonsense")()).To(Equal(http.StatusInternalServerError))
		Expect(code(stranger)()).To(Equal(http.StatusForbidden))
		Eventually(code(scraper)).Should(Equal(http.StatusOK))
		Eventually(func() string { _, body := scrape(scraper); return body }).Should(And(
			ContainSubstring("\nkubelet_cert_auditor_ready_to_enforce 1\n"),
			ContainSubstring("\nkubelet_cert_auditor_nodes{reason=\"Verified\",status=\"True\"} 1\n")))
	}, limit)
})

func tokenOf(ctx context.Context, serviceAccount string) string {
	GinkgoHelper()
	kubectlApply(ctx, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"`+serviceAccount+`","namespace":"`+namespace+`"}}`)
	cfg, err := cp.ServiceAccountConfig(ctx, namespace, serviceAccount)
	Expect(err).NotTo(HaveOccurred())
	return cfg.BearerToken
}
