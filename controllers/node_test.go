package controllers_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const limit = SpecTimeout(3 * time.Minute)

var _ = Describe("A Node", func() {
	It("has the condition, the Event and the count of its behaviour, and never a better one", func(ctx SpecContext) {
		members := map[string]member{}
		counts := map[string]float64{}
		for _, d := range certs.Defects() {
			members[d.Name] = join(ctx, d.Name, d.Name)
			counts["reason="+string(d.Reason)+",status="+d.Status]++
		}
		nodes := followNodes(ctx)
		createAudit(ctx, nil)
		start(ctx, nil)

		var last *corev1.Node
		for _, d := range certs.Defects() {
			m, want := members[d.Name], d.Status+" "+string(d.Reason)
			Eventually(ctx, m.condition).Should(Equal(want), d.Name)
			kind := map[bool]string{true: "Normal", false: "Warning"}[d.Status == "True"]
			Eventually(ctx, m.events).Should(Equal([]string{kind + " " + string(d.Reason)}), d.Name)
			last = m.get(ctx)
		}
		Eventually(func() map[string]float64 { return series("nodes") }).Should(Equal(counts))
		for _, d := range certs.Defects() {
			labels := "node=" + d.Name + ",reason=" + string(d.Reason)
			if d.Status == "False" {
				Expect(series("failing_node_info")).To(HaveKeyWithValue(labels, 1.0))
			} else {
				Expect(series("failing_node_info")).NotTo(HaveKey(labels))
			}
			// In one step, that is, without a verdict on the way: a stolen
			// certificate is at no moment Verified.
			m := members[d.Name]
			Expect(conditions(nodes.upTo(ctx, last), m.get(ctx).UID)).To(Equal([]string{"", d.Status + " " + string(d.Reason)}), d.Name)
		}
		Expect(series("ready_to_enforce")).To(Equal(map[string]float64{"": 0}))
	}, limit)

	It("has an Event that says what the condition says, about the Node", func(ctx SpecContext) {
		m := join(ctx, "bare", "bare-node-name")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, m.events).Should(HaveLen(1))
		var list eventsv1.EventList
		Expect(kube.List(ctx, &list, client.InNamespace("default"))).To(Succeed())
		node := m.get(ctx)
		Expect(list.Items).To(ContainElement(And(
			HaveField("Regarding", And(HaveField("Kind", "Node"), HaveField("Name", "bare"), HaveField("UID", node.UID))),
			HaveField("ReportingController", "kubelet-cert-auditor"),
			HaveField("Note", ours(node).Message),
		)))
		Expect(ours(node).Message).To(ContainSubstring(`the common name is "bare", not "system:node:bare"`))
	}, limit)

	It("flips within one interval of a new certificate, with one Event and one line in the log", func(ctx SpecContext) {
		m := join(ctx, "reissued", "other-node")
		createAudit(ctx, nil)
		manager := start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("False CommonNameMismatch"))

		m.serve("good")
		Eventually(ctx, m.condition).WithTimeout(interval + 3*time.Second).Should(Equal("True Verified"))
		Eventually(ctx, m.events).Should(Equal([]string{"Warning CommonNameMismatch", "Normal Verified"}))
		Eventually(func() map[string]float64 { return series("failing_node_info") }).Should(BeEmpty())
		Eventually(func() map[string]float64 { return series("ready_to_enforce") }).Should(Equal(map[string]float64{"": 1}))

		probes := m.connections()
		Eventually(m.connections).Should(BeNumerically(">=", probes+1))
		Eventually(func() []string { return manager.lines(`"msg":"verdict"`, `"node":"reissued"`) }).Should(HaveExactElements(
			ContainSubstring(`"reason":"CommonNameMismatch"`), ContainSubstring(`"reason":"Verified"`)))
		Expect(m.events(ctx)).To(HaveLen(2))
	}, limit)

	It("flips when its certificate or its CA expires, without waiting for the next probe", func(ctx SpecContext) {
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.Interval.Duration = 10000 * time.Hour })
		start(ctx, nil)
		Eventually(ctx, join(ctx, "witness", "good").condition).Should(Equal("True Verified")) // it is at work

		end := time.Now().Add(8 * time.Second).Truncate(time.Second)
		leaf, chain := newMember("leaf-ends"), newMember("ca-ends")
		template := certs.Template(leaf.identity())
		template.NotAfter = end
		sim.Set(leaf.ip, fleet.Behaviour{Served: world.CA.Issue(template)})
		served := world.CA.Issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: "ends"}, NotAfter: end,
			KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true})
		ca := &certs.CA{Certificate: served.Leaf(), Key: served.Key}
		sim.Set(chain.ip, fleet.Behaviour{Served: ca.Issue(certs.Template(chain.identity())).With(ca)})
		for _, m := range []member{leaf, chain} {
			m.register(ctx)
		}
		for _, m := range []member{leaf, chain} {
			Eventually(ctx, m.condition).Should(Equal("True Verified"))
		}
		for _, m := range []member{leaf, chain} {
			Eventually(ctx, m.condition).Should(Equal("False CertificateExpired"))
			Expect(ours(m.get(ctx)).LastTransitionTime.Time).NotTo(BeTemporally("<", end))
			Expect(m.connections()).To(BeEquivalentTo(1))
		}
	}, limit)

	It("is not written by a probe that the manager's end cut short", func(ctx SpecContext) {
		var silent []member
		for i := range 20 {
			silent = append(silent, join(ctx, fmt.Sprintf("silent-%d", i), "silent"))
		}
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.Timeout.Duration = time.Minute })
		manager := start(ctx, nil)
		for _, m := range silent {
			Eventually(m.connections).Should(BeEquivalentTo(1))
		}
		manager.stop()
		for _, m := range silent {
			Expect(m.condition(ctx)).To(BeEmpty())
			Expect(m.events(ctx)).To(BeEmpty())
		}
	}, limit)

	It("turns Unknown only after failureThreshold probes without evidence", func(ctx SpecContext) {
		m := join(ctx, "failing", "good")
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.FailureThreshold = 3 })
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))

		before := m.connections()
		m.serve("closes")
		Eventually(ctx, func() string {
			condition := m.condition(ctx)
			// Read after the condition: there may be more by now, never fewer.
			if since := m.connections() - before; condition != "True Verified" {
				Expect(since).To(BeNumerically(">=", 3))
			}
			return condition
		}).Should(Equal("Unknown ConnectionClosed"))
	}, limit)

	It("is judged again at once when its address changes, without the verdict of the old one", func(ctx SpecContext) {
		m := join(ctx, "moving", "good")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))

		moved := newMember("moving").serve("closes")
		patchStatus(ctx, kube, "moving", fmt.Sprintf(
			`{"status":{"addresses":[{"type":"InternalIP","address":%q},{"type":"Hostname","address":"moving"}]}}`, moved.ip))
		Eventually(ctx, m.condition).WithTimeout(interval / 2).Should(Equal("Unknown ConnectionClosed"))
	}, limit)

	It("leaves no series when it is deleted, and its successor gets none of its verdict", func(ctx SpecContext) {
		m := join(ctx, "gone", "bare-node-name")
		other := join(ctx, "stays", "good")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, other.condition).Should(Equal("True Verified"))
		Eventually(func() map[string]float64 { return series("failing_node_info") }).Should(HaveLen(1))

		m.delete(ctx)
		Eventually(func() map[string]float64 { return series("failing_node_info") }).Should(BeEmpty())
		Eventually(func() map[string]float64 { return series("nodes") }).Should(Equal(map[string]float64{"reason=Verified,status=True": 1}))
		Eventually(ctx, ready).Should(Equal("True AllNodesVerified"))

		nodes := followNodes(ctx)
		successor := m.serve("silent").register(ctx)
		Eventually(ctx, successor.condition).Should(Equal("Unknown ProbeTimeout"))
		node := successor.get(ctx)
		Expect(conditions(nodes.upTo(ctx, node), node.UID)).To(Equal([]string{"", "Unknown ProbeTimeout"}))
	}, limit)

	It("drops the verdict of its predecessor also when it is re-created at once", func(ctx SpecContext) {
		m := join(ctx, "again", "good")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))
		nodes := followNodes(ctx)
		m.serve("silent")
		for range 5 {
			m.delete(ctx)
			m.register(ctx)
		}
		Eventually(ctx, m.condition).Should(Equal("Unknown ProbeTimeout"))
		node := m.get(ctx)
		seen := nodes.upTo(ctx, node)
		Expect(conditions(seen, node.UID)).To(Equal([]string{"", "Unknown ProbeTimeout"}))
		Expect(series("nodes")).To(Equal(map[string]float64{"reason=ProbeTimeout,status=Unknown": 1}))
	}, limit)

	It("keeps what other writers say while our condition is written", func(ctx SpecContext) {
		m := join(ctx, "shared", "good")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))
		nodes := followNodes(ctx)
		for i := range 30 {
			// Without our condition, the manager writes it again, from what its
			// cache holds by then.
			patchStatus(ctx, kube, "shared", fmt.Sprintf(`{"status":{"conditions":[
				{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"%d"},
				{"type":"KubeletServingCertificateValid","$patch":"delete"}]}}`, i))
		}
		patchStatus(ctx, kube, "shared", `{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"100"}]}}`)
		Eventually(ctx, m.condition).Should(Equal("True Verified"))
		highest := -1
		for _, node := range nodes.upTo(ctx, m.get(ctx)) {
			for _, c := range node.Status.Conditions {
				if c.Type != corev1.NodeReady {
					continue
				}
				n, err := strconv.Atoi(c.Message)
				Expect(err).NotTo(HaveOccurred())
				Expect(n).To(BeNumerically(">=", highest), "an older Ready came back")
				highest = n
			}
		}
		Expect(highest).To(Equal(100))
	}, limit)

	It("is not written while nothing changes", func(ctx SpecContext) {
		members := []member{
			join(ctx, "idle-good", "good"), join(ctx, "idle-bare", "bare-node-name"),
			join(ctx, "idle-closes", "closes"), join(ctx, "idle-self-signed", "self-signed"),
		}
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.FailureThreshold = 1 })
		start(ctx, nil)
		versions, probes := map[string]string{}, map[string]int64{}
		for _, m := range members {
			Eventually(ctx, m.condition).ShouldNot(BeEmpty())
			versions[m.name], probes[m.name] = m.get(ctx).ResourceVersion, m.connections()
		}
		for _, m := range members {
			Eventually(m.connections).WithTimeout(3*interval).Should(BeNumerically(">=", probes[m.name]+2), m.name)
		}
		for _, m := range members {
			Expect(m.get(ctx).ResourceVersion).To(Equal(versions[m.name]), m.name)
		}
	}, limit)

	It("does not believe a condition that its own kubelet wrote", func(ctx SpecContext) {
		m := join(ctx, "forger", "bare-node-name")
		createAudit(ctx, nil)
		forge := func() {
			kubelet, err := client.New(cp.UserConfig("system:node:forger", "system:nodes"), client.Options{})
			Expect(err).NotTo(HaveOccurred())
			patchStatus(ctx, kubelet, "forger", `{"status":{"conditions":[{"type":"KubeletServingCertificateValid","status":"True",
				"reason":"Verified","message":"trust me","lastHeartbeatTime":"2100-01-01T00:00:00Z"}]}}`)
		}
		forge() // before there is a manager
		trail := followAudit(ctx)
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("False CommonNameMismatch"))
		Eventually(ctx, ready).Should(Equal("False NodesWouldBreak"))

		forge()
		Eventually(ctx, m.condition).Should(Equal("False CommonNameMismatch"))
		Expect(series("nodes")).To(Equal(map[string]float64{"reason=CommonNameMismatch,status=False": 1}))
		for _, audit := range trail.upTo(ctx, getAudit(ctx)) {
			Expect(auditCondition(audit, v1alpha1.AuditReadyToEnforce)).NotTo(HavePrefix("True"))
		}
	}, limit)

	It("is not dialled at a local address, unless that is allowed", func(ctx SpecContext) {
		m := join(ctx, "local", "good")
		createAudit(ctx, nil)
		start(ctx, func(o *cli.ManagerOptions) { o.AllowLocalAddresses = false })
		Eventually(ctx, m.condition).Should(Equal("Unknown AddressNotAllowed"))
		Expect(m.connections()).To(BeZero())
	}, limit)

	It("without a serving certificate is Unknown while it is young", func(ctx SpecContext) {
		m := join(ctx, "young", "no-certificate")
		createAudit(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.NewNodeGrace.Duration = time.Hour })
		start(ctx, nil)
		Eventually(ctx, m.condition).Should(Equal("Unknown NoServingCertificate"))
		editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.NewNodeGrace.Duration = 0 })
		Eventually(ctx, m.condition).WithTimeout(interval / 2).Should(Equal("False NoServingCertificate"))
	}, limit)

	It("converges after the API server was killed and restarted", func(ctx SpecContext) {
		a, b := join(ctx, "before", "good"), join(ctx, "after", "bare-node-name")
		createAudit(ctx, nil)
		start(ctx, nil)
		Eventually(ctx, a.condition).Should(Equal("True Verified"))
		Eventually(ctx, b.condition).Should(Equal("False CommonNameMismatch"))

		from := time.Now()
		Expect(cp.KillAPIServer()).To(Succeed())
		a.serve("other-node")
		b.serve("good")
		Expect(cp.StartAPIServer(ctx)).To(Succeed())
		outages = append(outages, outage{from, time.Now()})
		Eventually(ctx, a.condition).WithTimeout(time.Minute).Should(Equal("False CommonNameMismatch"))
		Eventually(ctx, b.condition).WithTimeout(time.Minute).Should(Equal("True Verified"))
		Eventually(ctx, ready).Should(Equal("False NodesWouldBreak"))
		a.serve("good")
		Eventually(ctx, ready).Should(Equal("True AllNodesVerified"))
	}, limit)
})

func ours(node *corev1.Node) corev1.NodeCondition {
	GinkgoHelper()
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.ConditionServingCertificateValid {
			return c
		}
	}
	Fail("node " + node.Name + " has no condition of ours")
	return corev1.NodeCondition{}
}

func patchStatus(ctx context.Context, c client.Client, name, patch string) {
	GinkgoHelper()
	node := &corev1.Node{}
	node.Name = name
	Expect(c.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, []byte(strings.TrimSpace(patch))))).To(Succeed())
}

// outage is a time in which the API server may refuse anything, since it is
// not ready and has not read its own RBAC rules yet.
type outage struct{ from, to time.Time }

var outages []outage

func inOutage(at time.Time) bool {
	for _, o := range outages {
		if !at.Before(o.from) && !at.After(o.to) {
			return true
		}
	}
	return false
}
