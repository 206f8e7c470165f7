package e2e

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

// refused is what kube-apiserver says where it refuses a kubelet's certificate
// or gets none.
var refused = MatchRegexp(`x509: |tls: `)

var _ = Describe("A kubelet without serverTLSBootstrap", func() {
	It("is refused for the certificate that it signed itself, with a hint, and by kube-apiserver too", func(ctx SpecContext) {
		n := startKubelet(ctx, "fallback", "127.0.2.2", false)
		Eventually(ctx, n.verdict).Should(Equal("False AddressMismatch"))
		Expect(n.message(ctx)).To(And(
			ContainSubstring("Chain: no path from issuer"), ContainSubstring("the kubelet's self-signed fallback; set serverTLSBootstrap: true")))
		Expect(n.logs(ctx)).To(refused)
	}, limit)
})

var _ = Describe("A kubelet with serverTLSBootstrap", Ordered, func() {
	var n *node

	BeforeAll(func(ctx SpecContext) { n = startKubelet(ctx, "real", "127.0.2.1", true) })

	It("has no certificate before its request is approved", func(ctx SpecContext) {
		Eventually(ctx, n.requests).ShouldNot(BeEmpty())
		Eventually(ctx, n.verdict).Should(Equal("False NoServingCertificate"))
		Expect(n.logs(ctx)).To(And(refused, ContainSubstring("internal error")))
	}, limit)

	It("is Verified within one probe once it is", func(ctx SpecContext) {
		n.approve(ctx)
		Eventually(func() error { _, err := n.leaf(ctx); return err }).Should(Succeed())
		Eventually(ctx, n.verdict).WithTimeout(interval + 3*time.Second).Should(Equal("True Verified"))
		Expect(n.logs(ctx)).NotTo(refused)
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
		// One handshake that its client breaks off is logged, and so would be
		// any before it.
		_, err := (&tls.Dialer{Config: &tls.Config{RootCAs: x509.NewCertPool()}}).DialContext(ctx, "tcp", hostPort(n))
		Expect(err).To(HaveOccurred())
		Eventually(n.complaints).ShouldNot(HaveLen(len(before)))
		Expect(n.complaints()).To(HaveLen(len(before)+1), "the one that was broken off")
	}, limit)

	It("turns Unknown after failureThreshold probes once it has stopped", func(ctx SpecContext) {
		Eventually(ctx, n.verdict).Should(Equal("True Verified"))
		seen := n.watch(ctx)
		stopped := time.Now()
		Expect(n.process.Stop()).To(Succeed())
		Eventually(ctx, n.verdict).Should(Equal("Unknown ConnectionFailed"))
		// The retries are a second apart.
		Expect(time.Since(stopped)).To(BeNumerically(">=", (threshold-1)*time.Second))
		Expect(seen()).To(HaveExactElements("True Verified", "Unknown ConnectionFailed"))
	}, limit)
})

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
var complaint = regexp.MustCompile(`TLS handshake error|http: |http2: |remote error|connection reset|broken pipe`)

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
