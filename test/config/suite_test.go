// Package config_test applies the manifests of config/ to the real API server.
package config_test

import (
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

const (
	namespace = "kubelet-cert-auditor-system"
	name      = "kubelet-cert-auditor"

	specLimit = SpecTimeout(time.Minute)
)

func TestConfig(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Manifests")
}

var (
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
)

// The specs share one API server to which config/default was applied, and leave
// it so.
var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()

	var err error
	cp, err = controlplane.Start(ctx, controlplane.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cp.Stop()).To(Succeed()) })
	client, err = kubernetes.NewForConfig(cp.Config())
	Expect(err).NotTo(HaveOccurred())

	kubectl(ctx, "", "apply", "--server-side", "-k", manifests("default"))
	kubectl(ctx, "", "wait", "--for=condition=Established", "crd/kubeletcertaudits.kubeletcert.dev")
}, NodeTimeout(2*time.Minute))

// manifests is the path of a directory of config/.
func manifests(dir string) string {
	return filepath.Join("..", "..", "config", filepath.FromSlash(dir))
}
