package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

var _ = Describe("The admission webhook", Ordered, func() {
	var a, b *node
	var failedOpen, allowed, others float64

	BeforeAll(func(ctx SpecContext) {
		setMode(ctx, "Enforce")
		failedOpen, allowed = failOpen(ctx), reviews("decision=allowed")
		others = reviews("") - allowed
		a, b = startKubelet(ctx, "node-a", "127.0.2.3", true), startKubelet(ctx, "node-b", "127.0.2.4", true)
	})

	It("has nothing to say about what real kubelets ask for", func(ctx SpecContext) {
		for _, n := range []*node{a, b} {
			Eventually(ctx, n.requests).ShouldNot(BeEmpty())
			n.approve(ctx)
			Eventually(ctx, n.verdict).Should(Equal("True Verified"))
			log, err := n.process.Log()
			Expect(err).NotTo(HaveOccurred())
			Expect(log).NotTo(ContainSubstring("kubelet-cert-auditor: "), "a warning")
		}
		Expect(reviews("decision=allowed")).To(BeNumerically(">=", allowed+2))
		Expect(reviews("") - reviews("decision=allowed")).To(Equal(others))
		Expect(failOpen(ctx)).To(Equal(failedOpen))
	}, limit)

	It("denies a node another one's address, and only warns in Warn, at once", func(ctx SpecContext) {
		ask := func(name string) (string, error) {
			return kubectl(ctx, "system:node:node-a", certs.RequestManifest(name, "node-a", b.ip), "create", "-f", "-")
		}
		denied, warned := reviews("decision=denied reason=ForeignAddress"), reviews("decision=warned reason=ForeignAddress")
		out, err := ask("denied")
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(HavePrefix("Error from server (Forbidden)"), ContainSubstring("ForeignAddress"), ContainSubstring(`node "node-b"`)))
		Expect(reviews("decision=denied reason=ForeignAddress")).To(Equal(denied + 1))

		setMode(ctx, "Warn")
		Eventually(ctx, func() error { out, err = ask("warned"); return err }).Should(Succeed(), out)
		Expect(out).To(And(HavePrefix("Warning: kubelet-cert-auditor: ForeignAddress"), ContainSubstring(`node "node-b"`), ContainSubstring("warned created")))
		Expect(reviews("decision=warned reason=ForeignAddress")).To(Equal(warned + 1))
		for _, n := range []*node{a, b} {
			Eventually(ctx, func() (string, error) {
				return kubectl(ctx, "admin", "", "get", "events", "-n", "default", "--field-selector", "reason=ForeignAddress,involvedObject.name="+n.name)
			}).Should(ContainSubstring(`request "warned" of "system:node:node-a"`))
		}
		Expect(failOpen(ctx)).To(Equal(failedOpen))
	}, limit)

	It("warns software that is no node in Enforce too", func(ctx SpecContext) {
		setMode(ctx, "Enforce")
		Eventually(ctx, func() string {
			out, err := kubectl(ctx, "system:node:node-a", certs.RequestManifest("any", "node-a", b.ip), "create", "--dry-run=server", "-f", "-")
			return fmt.Sprint(out, err)
		}).Should(ContainSubstring("Forbidden"), "the manager has heard of the mode")
		out, err := kubectl(ctx, "admin", certs.RequestManifest("minio", "*.minio-hl.tenant.svc.cluster.local", "minio.tenant.svc"), "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(And(ContainSubstring("Warning: kubelet-cert-auditor: RequesterNotNode"), ContainSubstring("minio created")))
		Expect(failOpen(ctx)).To(Equal(failedOpen))
	}, limit)

	It("is not asked about client certificates, other signers, approvals and statuses", func(ctx SpecContext) {
		asked, requests := calls(ctx), kube.CertificatesV1().CertificateSigningRequests()
		for name, signer := range map[string]string{
			"client": certificatesv1.KubeAPIServerClientKubeletSignerName, "other": "example.com/other", "users": certificatesv1.KubeAPIServerClientSignerName,
		} {
			manifest := strings.Replace(certs.RequestManifest(name, "node-b", b.ip), certificatesv1.KubeletServingSignerName, signer, 1)
			out, err := kubectl(ctx, "admin", strings.Replace(manifest, "server auth", "client auth", 1), "create", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), out)
		}
		out, err := kubectl(ctx, "admin", "", "certificate", "deny", "minio", "warned")
		Expect(err).NotTo(HaveOccurred(), out)
		denied, err := requests.Get(ctx, "minio", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = requests.UpdateStatus(ctx, denied, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		out, err = kubectl(ctx, "admin", "", "delete", "csr", "minio", "warned", "client", "other", "users")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(calls(ctx)).To(Equal(asked))
	}, limit)

	It("that is away keeps no request waiting, and it is reviewed when it is back", func(ctx SpecContext) {
		stopManager()
		asked := time.Now()
		out, err := kubectl(ctx, "system:node:node-b", certs.RequestManifest("unreviewed", "node-b", a.ip), "create", "-f", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(time.Since(asked)).To(BeNumerically("<", 10*time.Second), "kube-apiserver waits for three seconds")
		Expect(failOpen(ctx)).To(BeNumerically(">", failedOpen), "kubelets may have asked too")
		startManager(ctx)
		Eventually(ctx, func() (string, error) {
			return kubectl(ctx, "admin", "", "get", "events", "-n", "default", "--field-selector", "reason=ForeignAddress,involvedObject.name=node-a")
		}).Should(ContainSubstring(`request "unreviewed" of "system:node:node-b"`))
		Eventually(func() float64 { return reviews("decision=found reason=ForeignAddress") }).Should(BeNumerically(">", 0))
	}, limit)
})

func setMode(ctx context.Context, mode string) {
	GinkgoHelper()
	setSpec(ctx, `{"admission":{"mode":"`+mode+`"}}`)
}

func setSpec(ctx context.Context, spec string) {
	GinkgoHelper()
	out, err := kubectl(ctx, "admin", "", "patch", "kubeletcertaudit", "cluster", "--type", "merge", "-p", `{"spec":`+spec+`}`)
	Expect(err).NotTo(HaveOccurred(), out)
}

// kubectl runs as a user, of whom there may be a kubelet with the very same
// kubeconfig, and gives all that it prints.
func kubectl(ctx context.Context, user, stdin string, args ...string) (string, error) {
	GinkgoHelper()
	path := filepath.Join(dir, user+".kubeconfig")
	if _, err := os.Stat(path); err != nil {
		path = kubeconfig(user, "system:nodes")
	}
	assets, err := controlplane.Assets()
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, filepath.Join(assets, "kubectl"), append([]string{"--kubeconfig", path, "--cache-dir", filepath.Join(dir, "cache")}, args...)...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err = cmd.Run()
	return out.String(), err
}

// failOpen is how often kube-apiserver went on without the webhook.
func failOpen(ctx context.Context) float64 {
	GinkgoHelper()
	_, n, err := cp.WebhookCounts(ctx, "kubelet-serving.kubeletcert.dev")
	Expect(err).NotTo(HaveOccurred())
	return n
}

// calls are those of kube-apiserver to the webhook.
func calls(ctx context.Context) float64 {
	GinkgoHelper()
	n, _, err := cp.WebhookCounts(ctx, "kubelet-serving.kubeletcert.dev")
	Expect(err).NotTo(HaveOccurred())
	return n
}
