// Package controllers_test runs the manager on a real API server against a
// fleet of simulated kubelets, and looks at what users see: conditions, Events,
// metrics and the KubeletCertAudit.
package controllers_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const (
	namespace      = "kubelet-cert-auditor-system"
	serviceAccount = "kubelet-cert-auditor"

	// interval is the shortest that the API server lets through.
	interval = 10 * time.Second
	// retryAfter shortens the manager's pause after a probe without evidence.
	retryAfter = 500 * time.Millisecond
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The manager on a real API server")
}

// What the specs share. Each one makes its own Nodes and runs its own managers.
var (
	cp    *controlplane.ControlPlane
	kube  client.WithWatch // as the admin
	sim   *fleet.Fleet
	world *certs.World
	// clusterCA is the path of world's CA: the source of the default bundle, the
	// same for every manager.
	clusterCA string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	// What logs through the global loggers is not what the specs look at.
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())

	var err error
	cp, err = controlplane.Start(ctx, controlplane.Options{Audit: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cp.Stop()).To(Succeed()) })

	sim, err = fleet.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(sim.Close()).To(Succeed()) })
	world = certs.NewWorld(time.Now())
	clusterCA = file("ca.crt", world.CA.PEM())

	scheme := clientgoscheme.Scheme
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	cfg := cp.Config()
	cfg.QPS = -1 // the specs poll
	kube, err = client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	kubectl(ctx, "apply", "-k", filepath.Join("..", "config", "default"))
	kubectl(ctx, "wait", "--for=condition=Established", "crd/kubeletcertaudits.kubeletcert.dev")
}, NodeTimeout(2*time.Minute))

var _ = AfterSuite(func() {
	By("looking at what the kubelets saw")
	seen := sim.Total()
	Expect(seen.Handshakes).To(BeNumerically(">", 0))
	Expect(seen.Requests).To(BeZero(), "HTTP requests")
	Expect(seen.ApplicationBytes).To(BeZero(), "bytes after the handshake, such as a token")
	Expect(seen.ClientCertificates).To(BeZero(), "client certificates")

	By("looking at what the API server refused the ServiceAccount")
	events, err := cp.AuditEvents()
	Expect(err).NotTo(HaveOccurred())
	ours := 0
	for _, e := range events {
		if e.User != "system:serviceaccount:"+namespace+":"+serviceAccount || inOutage(e.Time) {
			continue
		}
		ours++
		Expect(e.Code).NotTo(BeElementOf(401, 403), "%s %s: %s", e.Verb, e.RequestURI, e.Message)
	}
	Expect(ours).To(BeNumerically(">", 0))
})

func kubectl(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := cp.Kubectl(ctx, nil, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}
