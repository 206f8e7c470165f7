package controlplane_test

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

var _ = Describe("one more binary", func() {
	It("logs, runs until it is stopped, and may be stopped twice", func() {
		p := proxy()
		Eventually(p.Log).Should(ContainSubstring("Starting to serve"))
		Expect(p.Ended()).To(Succeed())
		Expect(p.Stop()).To(Succeed())
		Expect(p.Ended()).To(MatchError(ContainSubstring("kubectl ended")))
		Expect(p.Stop()).To(Succeed())
	})

	It("logs to its own part of a log that it shares with earlier runs", func() {
		first := proxy()
		Eventually(first.Log).Should(ContainSubstring("Starting to serve"))
		Expect(first.Stop()).To(Succeed())
		earlier, err := first.Log()
		Expect(err).NotTo(HaveOccurred())
		second := proxy()
		Eventually(second.Log).Should(ContainSubstring("Starting to serve"))
		Expect(second.Log()).NotTo(ContainSubstring(earlier))
	})

	It("is no success to stop once it has ended by itself", func() {
		p, err := cp.Run("kubectl", "no-such-command")
		Expect(err).NotTo(HaveOccurred())
		Eventually(p.Ended).Should(MatchError(And(ContainSubstring("exit status 1"), ContainSubstring("unknown command"))))
		Expect(p.Stop()).To(MatchError(ContainSubstring("kubectl ended by itself")))
	})

	It("says how to get it where it is absent", func(ctx SpecContext) {
		assets, err := controlplane.Assets()
		Expect(err).NotTo(HaveOccurred())
		only := GinkgoT().TempDir()
		for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
			Expect(os.Symlink(filepath.Join(assets, name), filepath.Join(only, name))).To(Succeed())
		}
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", only)
		bare, err := controlplane.Start(ctx, controlplane.Options{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(bare.Stop()).To(Succeed()) })
		_, err = bare.Run("kubelet")
		Expect(err).To(MatchError(And(ContainSubstring("no kubelet in "+only), ContainSubstring("make e2e"))))
	}, SpecTimeout(time.Minute))
})

// proxy is a process that runs until it is asked to end, or the spec does.
func proxy() *controlplane.Process {
	GinkgoHelper()
	p, err := cp.Run("kubectl", "proxy", "--port=0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(p.Stop()).To(Succeed()) })
	return p
}
