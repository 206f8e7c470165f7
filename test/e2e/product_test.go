package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/admission"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

const (
	namespace      = "kubelet-cert-auditor-system"
	serviceAccount = "kubelet-cert-auditor"

	interval  = 10 * time.Second // the shortest that the API server lets through
	threshold = 3
)

const audit = `apiVersion: kubeletcert.dev/v1alpha1
kind: KubeletCertAudit
metadata: {name: cluster}
spec: {interval: 10s, timeout: 2s, failureThreshold: 3, newNodeGrace: 0s, preferredAddressTypes: [InternalIP]}
`

// install applies the manifests and runs a manager with the shipped RBAC.
func install(ctx context.Context) {
	GinkgoHelper()
	_, err := cp.Kubectl(ctx, nil, "apply", "-k", filepath.Join("..", "..", "config", "default"))
	Expect(err).NotTo(HaveOccurred())
	_, err = cp.Kubectl(ctx, nil, "wait", "--for=condition=Established", "crd/kubeletcertaudits.kubeletcert.dev")
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() error {
		_, err := cp.Kubectl(ctx, strings.NewReader(audit), "apply", "-f", "-")
		return err
	}).Should(Succeed())

	mount := filepath.Join(dir, "webhook")
	unmount, err := cp.MountSecret(namespace, webhookName+"-webhook", mount)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(unmount)
	options = cli.NewManagerOptions()
	options.Namespace, options.MetricsBindAddress, options.HealthProbeBindAddress = namespace, "0", "0"
	options.AllowLocalAddresses, options.ClusterCAFile = true, file("cluster-ca.crt", servingCA.PEM())
	options.RetryAfter = time.Second
	options.Webhook.BindAddress, options.Webhook.CertDir = fmt.Sprintf("127.0.0.1:%d", freePort(ctx)), mount
	Expect(cp.ReachWebhook(ctx, webhookName, "https://"+strings.Replace(options.Webhook.BindAddress, "127.0.0.1", "localhost", 1)+admission.Path)).To(Succeed())
	startManager(ctx)
	DeferCleanup(func() { stopManager() })
}

const webhookName = "kubelet-cert-auditor"

// The manager of the suite.
var (
	options     cli.ManagerOptions
	stopManager func()
)

// startManager returns when the API server asks its webhook.
func startManager(ctx context.Context) {
	GinkgoHelper()
	cfg, err := cp.ServiceAccountConfig(ctx, namespace, serviceAccount)
	Expect(err).NotTo(HaveOccurred())
	running, cancel := context.WithCancel(context.Background()) // until stopManager
	done := make(chan error, 1)
	logs := &buffer{}
	go func() { done <- cli.RunManager(running, cfg, options, zap.New(zap.WriteTo(logs))) }()
	stopManager = func() {
		GinkgoHelper()
		cancel()
		Eventually(done).WithTimeout(30*time.Second).Should(Receive(BeNil()), logs.String())
	}
	Expect(cp.WebhookReady(ctx, webhookName)).To(Succeed())
	Eventually(ctx, func() float64 {
		_, err := kubectl(ctx, "admin", certs.RequestManifest("first", "first"), "create", "--dry-run=server", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		return reviews("")
	}).Should(BeNumerically(">", 0))
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// verdict is our condition as "<status> <reason>", "" without.
func (n *node) verdict(ctx context.Context) string { return textOf(n.get(ctx)) }

func (n *node) message(ctx context.Context) string { return conditionOf(n.get(ctx)).Message }

func textOf(node *corev1.Node) string {
	c := conditionOf(node)
	return strings.TrimSpace(string(c.Status) + " " + c.Reason)
}

func conditionOf(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.ConditionServingCertificateValid {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// watch collects the verdicts that the Node shows from now on, one after the
// other, until the spec ends.
func (n *node) watch(ctx context.Context) func() []string {
	GinkgoHelper()
	w, err := kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + n.name})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	var mu sync.Mutex
	var seen []string
	go func() {
		for e := range w.ResultChan() {
			if object, ok := e.Object.(*corev1.Node); ok {
				mu.Lock()
				if text := textOf(object); len(seen) == 0 || seen[len(seen)-1] != text {
					seen = append(seen, text)
				}
				mu.Unlock()
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), seen...)
	}
}

// requests are the node's that wait for approval.
func (n *node) requests(ctx context.Context) []certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	list, err := kube.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName})
	Expect(err).NotTo(HaveOccurred())
	var waiting []certificatesv1.CertificateSigningRequest
	for _, r := range list.Items {
		if r.Spec.Username == "system:node:"+n.name && len(r.Status.Conditions) == 0 {
			waiting = append(waiting, r)
		}
	}
	return waiting
}

// approve approves what the node asks for, now.
func (n *node) approve(ctx context.Context) {
	GinkgoHelper()
	for _, r := range n.requests(ctx) {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
		_, err := kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, r.Name, &r, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
}

// probes is how many of the manager's so far ended so, by its own metric.
func probes(outcome verdict.Outcome) float64 {
	GinkgoHelper()
	return counted("probes_total", "outcome="+outcome.String())
}

// reviews are those with labels that hold the text, "decision=<word>
// reason=<word>".
func reviews(text string) float64 {
	GinkgoHelper()
	return counted("csr_reviews_total", text)
}

// counted is the sum of the manager's series whose labels hold a text.
func counted(name, text string) float64 {
	GinkgoHelper()
	families, err := ctrlmetrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "kubelet_cert_auditor_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if strings.Contains(strings.Join(labels, " "), text) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
