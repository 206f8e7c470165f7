package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

// crashDir, where set in the environment, makes the test binary start a control
// plane there and wait to be killed.
const crashDir = "CONTROLPLANE_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		_, err := controlplane.Start(context.Background(), controlplane.Options{Dir: dir})
		fmt.Fprintln(os.Stderr, "start:", err)
		select {}
	}
	m.Run()
}

func TestControlPlane(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Control plane")
}

// cp is shared by the specs that leave it as they found it: running.
var cp *controlplane.ControlPlane

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()

	started := time.Now()
	var err error
	cp, err = controlplane.Start(ctx, controlplane.Options{Audit: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cp.Stop()).To(Succeed()) })
	AddReportEntry("control plane started", time.Since(started).String(), ReportEntryVisibilityFailureOrVerbose)
}, NodeTimeout(2*time.Minute))

func clientOf(cfg *rest.Config) kubernetes.Interface {
	GinkgoHelper()
	client, err := kubernetes.NewForConfig(cfg)
	Expect(err).NotTo(HaveOccurred())
	return client
}
