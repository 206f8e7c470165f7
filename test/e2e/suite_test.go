// Package e2e_test runs the product against a real kubelet, kube-apiserver and
// kube-controller-manager. The kubelet's container runtime is Kubernetes' own
// fake, so that no container engine is needed.
package e2e_test

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

func TestE2E(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Fatal("a kubelet needs Linux and root")
	}
	// Some of its directories are the same on every machine: two would fight.
	var dialer net.Dialer
	if conn, err := dialer.DialContext(t.Context(), "unix", "/var/lib/kubelet/device-plugins/kubelet.sock"); err == nil {
		_ = conn.Close()
		t.Fatal("a kubelet runs on this machine already")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "A real kubelet")
}

// What the specs share.
var (
	cp   *controlplane.ControlPlane
	kube kubernetes.Interface

	// servingCA signs kubelet serving certificates, by way of
	// kube-controller-manager, and is what kube-apiserver verifies them by.
	servingCA *certs.CA
	// kubeletClientCA signs what kube-apiserver shows to kubelets.
	kubeletClientCA *certs.CA
	dir             string
)

// certificateLife is short, so that the kubelet renews while a spec looks on:
// kubelets renew at 70 to 90 % of the lifetime, and the signer dates it back by
// five minutes.
const certificateLife = 90 * time.Second

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(90 * time.Second)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())

	dir = GinkgoT().TempDir()
	for _, fixed := range []string{"/var/lib/kubelet", "/var/log/containers"} { // the kubelet's own choice
		if _, err := os.Stat(fixed); os.IsNotExist(err) {
			DeferCleanup(os.RemoveAll, fixed)
		}
	}
	now := time.Now()
	servingCA, kubeletClientCA = certs.NewCA("kubelet-serving", now), certs.NewCA("kubelet-client", now)
	identity := kubeletClientCA.Issue(clientTemplate("kube-apiserver-kubelet-client"))
	var err error
	cp, err = controlplane.Start(ctx, controlplane.Options{APIServerArgs: []string{
		"--kubelet-certificate-authority=" + file("serving-ca.crt", servingCA.PEM()),
		"--kubelet-client-certificate=" + file("client.crt", identity.CertificatePEM()),
		"--kubelet-client-key=" + file("client.key", identity.KeyPEM()),
		"--kubelet-preferred-address-types=InternalIP",
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cp.Stop()).To(Succeed()) })
	kube, err = kubernetes.NewForConfig(cp.Config())
	Expect(err).NotTo(HaveOccurred())

	signer := certs.Served{Key: servingCA.Key}
	run("kube-controller-manager",
		"--kubeconfig="+kubeconfig("admin"), "--controllers=certificatesigningrequest-signing-controller",
		"--cluster-signing-cert-file="+file("signer.crt", servingCA.PEM()),
		"--cluster-signing-key-file="+file("signer.key", signer.KeyPEM()),
		"--cluster-signing-duration="+certificateLife.String(),
		"--leader-elect=false", "--secure-port=0")
	install(ctx)
}, NodeTimeout(3*time.Minute))

// run starts a binary until the suite ends.
func run(name string, args ...string) *controlplane.Process {
	GinkgoHelper()
	p, err := cp.Run(name, args...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			log, _ := p.Log()
			AddReportEntry("log of "+name, log[max(0, len(log)-8<<10):])
		}
		Expect(p.Stop()).To(Succeed())
	})
	return p
}

func file(name string, content []byte) string {
	GinkgoHelper()
	path := dir + "/" + name
	Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	return path
}

// kubeconfig of a user in its groups; "admin" may do everything.
func kubeconfig(user string, groups ...string) string {
	GinkgoHelper()
	cfg := cp.Config()
	if user != "admin" {
		cfg = cp.UserConfig(user, groups...)
	}
	path := dir + "/" + user + ".kubeconfig"
	Expect(cp.WriteKubeconfig(path, cfg)).To(Succeed())
	return path
}

func freePort(ctx context.Context) int32 {
	GinkgoHelper()
	port, err := controlplane.FreePort(ctx)
	Expect(err).NotTo(HaveOccurred())
	return int32(port) //nolint:gosec // a port
}

func internalIP(ip string) []corev1.NodeAddress {
	return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
}
