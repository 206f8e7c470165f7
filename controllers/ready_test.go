package controllers_test

import (
	"context"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
)

// A wrong "all fine" breaks a cluster, so each spec looks at every state that
// the API server showed, not at those that a poll happens to see.
var _ = Describe("ReadyToEnforce", func() {
	const yes = "True AllNodesVerified"

	gauge := func() map[string]float64 { return series("ready_to_enforce") }
	one, zero := Equal(map[string]float64{"": 1}), Equal(map[string]float64{"": 0})

	// settledWith runs a manager until the cluster of good nodes is ready.
	settledWith := func(ctx context.Context, timeout time.Duration, names ...string) ([]member, *manager) {
		GinkgoHelper()
		var members []member
		for _, name := range names {
			members = append(members, join(ctx, name, "good"))
		}
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.Timeout.Duration = timeout })
		// A Node of the sweep's own second may be newer than the sweep.
		last := members[len(members)-1].get(ctx).CreationTimestamp.Time
		Eventually(time.Now).Should(BeTemporally(">=", last.Add(time.Second)))
		m := start(ctx, nil)
		Eventually(ctx, ready).Should(Equal(yes))
		Eventually(gauge).Should(one)
		return members, m
	}
	settled := func(ctx context.Context, names ...string) ([]member, *manager) {
		GinkgoHelper()
		return settledWith(ctx, 2*time.Second, names...)
	}
	// patient is longer than a spec waits: the probe of a silent kubelet does
	// not end, so what the audit says meanwhile does not come from it.
	const patient = 2 * time.Minute

	It("is Unknown without a Node, and True only once there is one that is verified", func(ctx SpecContext) {
		createAudit(ctx, nil)
		trail := followAudit(ctx)
		start(ctx, nil)
		Eventually(ctx, ready).Should(Equal("Unknown NoNodes"))
		Expect(gauge()).To(zero)
		join(ctx, "first", "good")
		Eventually(ctx, ready).Should(Equal(yes))
		Eventually(gauge).Should(one)
		for _, audit := range trail.upTo(ctx, getAudit(ctx)) {
			if auditCondition(audit, v1alpha1.AuditReadyToEnforce) == yes {
				Expect(audit.Status.Nodes).To(Equal(v1alpha1.NodeCounts{Total: 1, Verified: 1}))
			}
		}
	}, limit)

	It("is not True at the start before every node was probed", func(ctx SpecContext) {
		join(ctx, "quick", "good")
		join(ctx, "late", "silent")
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.Timeout.Duration = 3 * time.Second })
		trail := followAudit(ctx)
		start(ctx, nil)
		Eventually(gauge).Should(zero)
		Eventually(ctx, func() v1alpha1.NodeCounts { return getAudit(ctx).Status.Nodes }).Should(
			Equal(v1alpha1.NodeCounts{Total: 2, Verified: 1, Unknown: 1}))
		Eventually(ctx, func() *metav1.Time { return getAudit(ctx).Status.LastSweepTime }).ShouldNot(BeNil())
		for _, audit := range trail.upTo(ctx, getAudit(ctx)) {
			Expect(auditCondition(audit, v1alpha1.AuditReadyToEnforce)).To(BeElementOf("", "Unknown NodesUnknown"))
		}
		Expect(gauge()).To(zero)
	}, limit)

	It("carries the generation that it is about", func(ctx SpecContext) {
		settled(ctx, "generation")
		trail := followAudit(ctx)
		generation := editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.FailureThreshold = 5 })
		Eventually(ctx, func() int64 { return getAudit(ctx).Status.ObservedGeneration }).Should(Equal(generation))
		Eventually(ctx, ready).Should(Equal(yes))
		audit := getAudit(ctx)
		trail.upTo(ctx, audit)
		Expect(audit.Status.Conditions).To(HaveEach(HaveField("ObservedGeneration", generation)))
	}, limit)

	It("ends when the spec changes to what was not probed", func(ctx SpecContext) {
		members, _ := settled(ctx, "respecified")
		patchStatus(ctx, kube, members[0].name, `{"status":{"addresses":[{"type":"InternalIP","address":"`+members[0].ip.String()+
			`"},{"type":"ExternalIP","address":"`+newMember("respecified").serve("silent").ip.String()+`"}]}}`)
		Eventually(ctx, ready).Should(Equal(yes))

		trail := followAudit(ctx)
		generation := editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) {
			s.PreferredAddressTypes = []v1alpha1.AddressType{"ExternalIP"}
		})
		// Before the probe of the new address can have ended.
		Eventually(ctx, ready).WithTimeout(time.Second).Should(Equal("Unknown NodesUnknown"))
		Expect(gauge()).To(zero)
		Eventually(ctx, members[0].condition).Should(Equal("Unknown ProbeTimeout"))
		for _, audit := range trail.upTo(ctx, getAudit(ctx)) {
			for _, c := range audit.Status.Conditions {
				if c.Type == v1alpha1.AuditReadyToEnforce && c.ObservedGeneration == generation {
					Expect(string(c.Status)).To(Equal("Unknown"))
				}
			}
		}
	}, limit)

	It("ends when the CA changes, and judges by the new one without a new probe", func(ctx SpecContext) {
		join(ctx, "ca-change", "good")
		kubectlApply(ctx, caConfigMap(world.CA.PEM()))
		audit := createAudit(ctx, inConfigMap)
		start(ctx, nil)
		Eventually(ctx, ready).Should(Equal(yes))
		Eventually(gauge).Should(one)
		right := getAudit(ctx).Status.TrustBundle.SHA256

		trail := followAudit(ctx)
		handshakes := sim.Total().Connections
		kubectlApply(ctx, caConfigMap(world.UnknownCA.PEM()))
		Eventually(ctx, ready).WithTimeout(interval / 2).Should(Equal("False NodesRejectedToday"))
		Expect(gauge()).To(zero)
		Expect(sim.Total().Connections-handshakes).To(BeNumerically("<=", 1), "one may have been due")
		for _, audit := range trail.upTo(ctx, getAudit(ctx)) {
			if auditCondition(audit, v1alpha1.AuditReadyToEnforce) == yes {
				Expect(audit.Status.TrustBundle.SHA256).To(Equal(right))
			}
		}
		Expect(getAudit(ctx).Generation).To(Equal(audit.Generation), "the spec is the same")

		kubectlApply(ctx, caConfigMap(world.CA.PEM()))
		Eventually(ctx, ready).Should(Equal(yes))
	}, limit)

	It("ends when a Node appears, before it was probed", func(ctx SpecContext) {
		settled(ctx, "old")
		trail := followAudit(ctx)
		late := join(ctx, "new", "silent")
		Eventually(ctx, ready).WithTimeout(time.Second).Should(Equal("Unknown NodesUnknown"))
		Eventually(gauge).Should(zero)
		late.serve("bare-node-name")
		Eventually(ctx, ready).Should(Equal("False NodesWouldBreak"))
		states := trail.upTo(ctx, getAudit(ctx))
		for i, audit := range states {
			if audit.Status.Nodes.Total == 2 {
				Expect(auditCondition(audit, v1alpha1.AuditReadyToEnforce)).NotTo(Equal(yes), "state %d", i)
			}
		}
	}, limit)

	It("is Unknown while nodeSelector leaves out nodes, which have no condition then", func(ctx SpecContext) {
		members, _ := settled(ctx, "chosen", "left-out")
		editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) {
			s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": "chosen"}}
		})
		Eventually(ctx, ready).Should(Equal("Unknown NodesExcluded"))
		Expect(gauge()).To(zero)
		Expect(getAudit(ctx).Status.Nodes).To(Equal(v1alpha1.NodeCounts{Total: 1, Verified: 1, Excluded: 1}))
		Eventually(ctx, members[1].condition).Should(BeEmpty())
		Expect(members[0].condition(ctx)).To(Equal("True Verified"))

		members[1].serve("bare-node-name") // nobody looks
		editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.NodeSelector = nil })
		Eventually(ctx, ready).Should(Equal("False NodesWouldBreak"))
	}, limit)

	It("says that the cluster CA was used, if it was", func(ctx SpecContext) {
		message := func(ctx context.Context) string {
			var texts []string
			for _, c := range getAudit(ctx).Status.Conditions {
				if c.Type == v1alpha1.AuditReadyToEnforce {
					texts = append(texts, c.Message)
				}
			}
			return strings.Join(texts, "")
		}
		settled(ctx, "default-ca")
		Expect(message(ctx)).To(ContainSubstring("the API server's own --kubelet-certificate-authority was not read"))
		editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) {
			s.TrustBundle = &v1alpha1.TrustBundleSource{Inline: string(world.CA.PEM())}
		})
		Eventually(ctx, message).ShouldNot(Or(BeEmpty(), ContainSubstring("was not read")))
		Eventually(ctx, ready).Should(Equal(yes))
	}, limit)

	Describe("at a take-over", func() {
		It("stays until every node was probed, while the metric waits", func(ctx SpecContext) {
			members, first := settled(ctx, "steady", "slow-one")
			first.stop()
			Expect(gauge()).To(BeEmpty(), "absent where nobody leads")
			members[1].serve("silent")

			trail := followAudit(ctx)
			start(ctx, nil)
			Eventually(gauge).Should(zero)
			Eventually(ctx, ready).Should(Equal("Unknown NodesUnknown"))
			// Not before the probe of the silent one had ended.
			Expect(members[1].condition(ctx)).To(Equal("Unknown ProbeTimeout"))
			for _, audit := range trail.upTo(ctx, getAudit(ctx)) {
				Expect(auditCondition(audit, v1alpha1.AuditReadyToEnforce)).To(BeElementOf(yes, "Unknown NodesUnknown"))
			}
		}, limit)

		It("shows any False at once", func(ctx SpecContext) {
			members, first := settledWith(ctx, patient, "broken-meanwhile", "never-answers")
			first.stop()
			members[0].serve("other-node")
			members[1].serve("silent")
			start(ctx, nil)
			Eventually(ctx, ready).WithTimeout(10 * time.Second).Should(Equal("False NodesWouldBreak"))
			Expect(members[1].condition(ctx)).To(Equal("True Verified"), "its probe has not ended: the predecessor's condition")
		}, limit)

		It("turns Unknown when the spec changed meanwhile", func(ctx SpecContext) {
			members, first := settledWith(ctx, patient, "edited-meanwhile")
			first.stop()
			members[0].serve("silent")
			editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.FailureThreshold = 7 })
			start(ctx, nil)
			Eventually(ctx, ready).WithTimeout(10 * time.Second).Should(Equal("Unknown NodesUnknown"))
		}, limit)

		It("turns Unknown when a Node appeared meanwhile", func(ctx SpecContext) {
			_, first := settledWith(ctx, patient, "known")
			first.stop()
			join(ctx, "appeared", "silent")
			start(ctx, nil)
			Eventually(ctx, ready).WithTimeout(10 * time.Second).Should(Equal("Unknown NodesUnknown"))
		}, limit)

		It("turns Unknown when a Node took another's place meanwhile", func(ctx SpecContext) {
			members, first := settledWith(ctx, patient, "replaced")
			first.stop()
			members[0].delete(ctx)
			join(ctx, "replacement", "silent")
			start(ctx, nil)
			Eventually(ctx, ready).WithTimeout(10 * time.Second).Should(Equal("Unknown NodesUnknown"))
		}, limit)

		It("turns Unknown when the CA changed meanwhile", func(ctx SpecContext) {
			members, first := settledWith(ctx, patient, "other-ca")
			first.stop()
			members[0].serve("silent")
			start(ctx, func(o *cli.ManagerOptions) { o.ClusterCAFile = file("other.crt", world.UnknownCA.PEM()) })
			Eventually(ctx, ready).WithTimeout(10 * time.Second).Should(Equal("Unknown NodesUnknown"))
		}, limit)
	})

	It("lets kubectl wait return once the last bad node is fixed", func(ctx SpecContext) {
		join(ctx, "fine", "good")
		last := join(ctx, "last-bad", "self-signed")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, ready).Should(Equal("False NodesRejectedToday"))

		waited := make(chan error, 1)
		go func() {
			_, err := cp.Kubectl(ctx, nil, "wait", "--for=condition=ReadyToEnforce", "kubeletcertaudit/cluster", "--timeout=60s")
			waited <- err
		}()
		Consistently(waited).WithTimeout(time.Second).ShouldNot(Receive())
		last.serve("good")
		Eventually(waited).WithTimeout(interval + 5*time.Second).Should(Receive(Succeed()))
		kubectl(ctx, "wait", "--for=condition=KubeletServingCertificateValid", "node", "--all", "--timeout=5s")
	}, limit)
})

func caConfigMap(pem []byte) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kubelet-ca","namespace":"` + namespace + `"},"data":{"ca.crt":` + strconv.Quote(string(pem)) + `}}`
}

func inConfigMap(s *v1alpha1.KubeletCertAuditSpec) {
	s.TrustBundle = &v1alpha1.TrustBundleSource{ConfigMap: &v1alpha1.ConfigMapKey{Name: "kubelet-ca", Key: "ca.crt"}}
}
