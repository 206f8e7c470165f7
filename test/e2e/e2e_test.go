package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

const limit = SpecTimeout(5 * time.Minute)

// answered is no error, or what only a kubelet says: kube-apiserver got past
// its certificate.
var answered = Or(BeEmpty(), MatchRegexp(`is waiting to start|pod "[a-z]+" not found`))

var _ = Describe("A kubelet without serverTLSBootstrap", Ordered, func() {
	var n *node

	BeforeAll(func(ctx SpecContext) { n = startKubelet(ctx, "fallback", "127.0.2.2", false) })

	// crypto/x509 looks at the names first, and these have no address.
	It("is refused for the certificate that it signed itself, with a hint, and by kube-apiserver too", func(ctx SpecContext) {
		Eventually(ctx, n.verdict).Should(Equal("False AddressMismatch"))
		Expect(n.message(ctx)).To(And(
			ContainSubstring("Chain: no path from issuer"), ContainSubstring("the kubelet's self-signed fallback; set serverTLSBootstrap: true")))
		Expect(n.logs(ctx)).To(ContainSubstring("x509: cannot validate certificate for 127.0.2.2 because it doesn't contain any IP SANs"))
		// The kubelet complains of that a moment after kube-apiserver has answered.
		Eventually(ctx, n.complaints).Should(ContainElement(ContainSubstring("bad certificate")))
	}, limit)

	It("logs nothing about probes, although its certificate is not trusted", func(ctx SpecContext) {
		n.expectSilence(ctx)
	}, limit)
})

var _ = Describe("A kubelet with serverTLSBootstrap", Ordered, func() {
	var n *node

	BeforeAll(func(ctx SpecContext) { n = startKubelet(ctx, "real", "127.0.2.1", true) })

	It("has no certificate before its request is approved", func(ctx SpecContext) {
		Eventually(ctx, n.requests).ShouldNot(BeEmpty())
		Eventually(ctx, n.verdict).Should(Equal("False NoServingCertificate"))
		Expect(n.logs(ctx)).To(ContainSubstring("remote error: tls: internal error"))
	}, limit)

	It("is Verified soon once it is, however long the interval", func(ctx SpecContext) {
		setSpec(ctx, `{"interval": "10m"}`)
		DeferCleanup(func(ctx SpecContext) { setSpec(ctx, `{"interval": "10s"}`) }, NodeTimeout(time.Minute))
		n.approve(ctx)
		Eventually(func() error { _, err := n.leaf(ctx); return err }).Should(Succeed())
		Eventually(ctx, n.verdict).WithTimeout(interval + 3*time.Second).Should(Equal("True Verified"))
		Expect(n.logs(ctx)).To(answered)
	}, limit)

	It("keeps its verdict without a gap while the certificate is renewed", func(ctx SpecContext) {
		seen := n.watch(ctx)
		first, err := n.leaf(ctx)
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() (string, error) {
			n.approve(ctx)
			leaf, err := n.leaf(ctx)
			if err != nil {
				return "", err
			}
			return leaf.SerialNumber.String(), nil
		}).WithTimeout(3 * time.Minute).ShouldNot(Equal(first.SerialNumber.String()))
		// Beyond the end of the first one, and one more probe.
		Eventually(ctx, func() bool { n.approve(ctx); return time.Now().After(first.NotAfter.Add(interval)) }).
			WithTimeout(3 * time.Minute).Should(BeTrue())
		Expect(seen()).To(HaveExactElements("True Verified"))
	}, limit)

	It("logs nothing about a thousand probes", func(ctx SpecContext) {
		n.expectSilence(ctx)
	}, limit)

	It("turns Unknown after failureThreshold probes once it has stopped", func(ctx SpecContext) {
		// Its certificate is not to expire first: it is renewed earlier than that.
		Eventually(ctx, func() (time.Duration, error) {
			n.approve(ctx)
			leaf, err := n.leaf(ctx)
			if err != nil {
				return 0, err
			}
			return time.Until(leaf.NotAfter), nil
		}).Should(BeNumerically(">", certificateLife/3))
		Eventually(ctx, n.verdict).Should(Equal("True Verified"))
		seen := n.watch(ctx)
		before := probes(verdict.OutcomeUnconnected)
		Expect(n.process.Stop()).To(Succeed())
		Eventually(ctx, n.verdict).Should(Equal("Unknown ConnectionFailed"))
		Expect(probes(verdict.OutcomeUnconnected)-before).To(BeNumerically(">=", threshold), "not before")
		Expect(seen()).To(HaveExactElements("True Verified", "Unknown ConnectionFailed"))
	}, limit)
})

// expectSilence probes a thousand times, and then breaks a handshake off, which
// the kubelet logs, as it would have logged any before.
func (n *node) expectSilence(ctx context.Context) {
	GinkgoHelper()
	before := n.complaints()
	var probers sync.WaitGroup
	for range 10 {
		probers.Go(func() {
			defer GinkgoRecover()
			for range 100 {
				obs, err := n.probe(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(obs.Outcome).To(Equal(verdict.OutcomeCompleted))
			}
		})
	}
	probers.Wait()
	_, err := (&tls.Dialer{Config: &tls.Config{RootCAs: x509.NewCertPool()}}).DialContext(ctx, "tcp", hostPort(n))
	Expect(err).To(HaveOccurred())
	Eventually(n.complaints).ShouldNot(HaveLen(len(before)))
	Expect(n.complaints()[len(before):]).To(HaveExactElements(ContainSubstring("bad certificate")), "the one that was broken off")
}

func (n *node) probe(ctx context.Context) (verdict.Observation, error) {
	prober := &probe.Prober{AllowLocalAddresses: true}
	return prober.Probe(ctx, verdict.Endpoint{AddressType: "InternalIP", Host: n.ip, Port: n.port}, 10*time.Second)
}

// leaf is what the kubelet serves at this moment.
func (n *node) leaf(ctx context.Context) (*x509.Certificate, error) {
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", hostPort(n)) //nolint:gosec // only looked at
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil //nolint:forcetypeassert // a TLS dialer's
}

// complaint is a line of the kubelet's log about a connection.
var complaint = regexp.MustCompile(`(?i)\btls\b|handshake|\bhttp2?: |remote ?(error|addr)|\beof\b|connection reset|broken pipe`)

func (n *node) complaints() []string {
	GinkgoHelper()
	log, err := n.process.Log()
	Expect(err).NotTo(HaveOccurred())
	var lines []string
	for line := range strings.Lines(log) {
		if complaint.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}
