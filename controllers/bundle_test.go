package controllers_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
)

var _ = Describe("The trust bundle", func() {
	It("that was never there gives every node NoTrustBundle, and nothing is dialled", func(ctx SpecContext) {
		a, b := join(ctx, "no-ca-good", "good"), join(ctx, "no-ca-self-signed", "self-signed")
		createAudit(ctx, nil)
		missing := filepath.Join(GinkgoT().TempDir(), "absent.crt")
		start(ctx, func(o *cli.ManagerOptions) { o.ClusterCAFile = missing })
		Eventually(ctx, a.condition).Should(Equal("Unknown NoTrustBundle"))
		Eventually(ctx, b.condition).Should(Equal("Unknown NoTrustBundle"))
		Eventually(ctx, bundleLoaded).Should(Equal("False NotLoaded"))
		Expect(ready(ctx)).To(Equal("Unknown NodesUnknown"))
		Expect(a.connections() + b.connections()).To(BeZero())

		Expect(os.WriteFile(missing, world.CA.PEM(), 0o600)).To(Succeed())
		Eventually(ctx, a.condition).Should(Equal("True Verified"))
		Eventually(ctx, b.condition).Should(Equal("False AddressMismatch"))
		Expect(bundleLoaded(ctx)).To(Equal("True Loaded"))
	}, limit)

	It("in a ConfigMap that is absent, or lacks the key, says so and heals", func(ctx SpecContext) {
		m := join(ctx, "configmap", "good")
		createAudit(ctx, inConfigMap)
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("Unknown NoTrustBundle"))
		Eventually(ctx, bundleMessage).Should(ContainSubstring(`"kubelet-ca" not found`))

		kubectlApply(ctx, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kubelet-ca","namespace":"`+namespace+`"},"data":{"other":"x"}}`)
		Eventually(ctx, bundleMessage).Should(ContainSubstring(`has no key "ca.crt"`))

		kubectlApply(ctx, caConfigMap(world.CA.PEM()))
		Eventually(ctx, bundleLoaded).Should(Equal("True Loaded"))
		Eventually(ctx, m.condition).Should(Equal("True Verified"))
		Expect(getAudit(ctx).Status.TrustBundle).To(And(
			HaveField("Source", "configmap kubelet-ca/ca.crt"), HaveField("Certificates", BeEquivalentTo(1)), HaveField("Warnings", BeEmpty())))
		Expect(series("trust_bundle_certificates")).To(Equal(map[string]float64{"": 1}))
	}, limit)

	It("that breaks keeps the last good copy, and says so", func(ctx SpecContext) {
		m := join(ctx, "broken-bundle", "good")
		kubectlApply(ctx, caConfigMap(world.CA.PEM()))
		createAudit(ctx, inConfigMap)
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))
		good := getAudit(ctx).Status.TrustBundle.SHA256

		for _, broken := range []string{"", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
			kubectlApply(ctx, caConfigMap([]byte(broken)))
			Eventually(ctx, bundleLoaded).Should(Equal("False KeptLastGood"), broken)
			Expect(getAudit(ctx).Status.TrustBundle.SHA256).To(Equal(good))
			Expect(ready(ctx)).To(Equal("True AllNodesVerified"))
			kubectlApply(ctx, caConfigMap(world.CA.PEM()))
			Eventually(ctx, bundleLoaded).Should(Equal("True Loaded"))
		}
		Expect(m.condition(ctx)).To(Equal("True Verified"))
		Expect(series("trust_bundle_reloads_total")).To(HaveKeyWithValue("result=failure", 3.0))
	}, limit)

	It("of another source is not the last good copy of this one", func(ctx SpecContext) {
		m := join(ctx, "other-source", "good")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))
		editSpec(ctx, inConfigMap)
		Eventually(ctx, m.condition).Should(Equal("Unknown NoTrustBundle"))
		Expect(ready(ctx)).To(HavePrefix("Unknown"))
	}, limit)

	It("skips certificates that cannot be parsed, with a warning", func(ctx SpecContext) {
		m := join(ctx, "partly", "good")
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) {
			broken := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
			s.TrustBundle = &v1alpha1.TrustBundleSource{Inline: broken + string(world.CA.PEM())}
		})
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))
		Eventually(ctx, bundleLoaded).Should(Equal("True SomeCertificatesSkipped"))
		Expect(getAudit(ctx).Status.TrustBundle.Warnings).To(HaveExactElements(HavePrefix("block 1 could not be parsed")))
	}, limit)

	It("in a file follows the symlink swaps of a mounted volume", func(ctx SpecContext) {
		m := join(ctx, "mounted", "good")
		volume := GinkgoT().TempDir()
		project(volume, "..2026_1", world.UnknownCA.PEM())
		Expect(os.Symlink(filepath.Join("..data", "ca.crt"), filepath.Join(volume, "ca.crt"))).To(Succeed())
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) {
			s.TrustBundle = &v1alpha1.TrustBundleSource{File: filepath.Join(volume, "ca.crt")}
		})
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("False UnknownAuthority"))
		project(volume, "..2026_2", bytes.Join([][]byte{world.UnknownCA.PEM(), world.CA.PEM()}, nil))
		Eventually(ctx, m.condition).WithTimeout(interval / 2).Should(Equal("True Verified"))
	}, limit)
})

// project puts a new version into a volume the way the kubelet does.
func project(volume, version string, pem []byte) {
	GinkgoHelper()
	Expect(os.Mkdir(filepath.Join(volume, version), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(volume, version, "ca.crt"), pem, 0o600)).To(Succeed())
	Expect(os.Symlink(version, filepath.Join(volume, "..data_tmp"))).To(Succeed())
	Expect(os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data"))).To(Succeed())
}

func bundleMessage(ctx context.Context) string {
	GinkgoHelper()
	for _, c := range getAudit(ctx).Status.Conditions {
		if c.Type == v1alpha1.AuditTrustBundleLoaded {
			return c.Message
		}
	}
	return ""
}
