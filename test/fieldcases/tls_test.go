package fieldcases

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

var cryptoTests = map[string]func(*scene){
	"eku-01": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
		s.is("n1", "False KeyUsageMismatch", "lack server authentication")
		s.fails("n1", "KeyUsage")
	},
	"crypto-01": func(s *scene) {
		id := s.id("n1")
		key := s.ecdsaKey(elliptic.P256())
		der := s.withNegativeSerial(func() []byte { return s.world.CA.IssueFor(s.template(id), key.Public()) })
		s.serve(id, fleet.Behaviour{Served: certs.Served{Key: key, Chain: [][]byte{der}}})
		s.is("n1", "False CertificateInvalid", "negative serial number")
		s.fails("n1", "Chain")
	},
	"crypto-04": func(s *scene) {
		_, edwards, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			s.Fatal(err)
		}
		for name, key := range map[string]crypto.Signer{"ed25519": edwards, "p-521": s.ecdsaKey(elliptic.P521())} {
			id := s.id(name)
			s.serve(id, fleet.Behaviour{Served: s.keyed(id, key)})
		}
		s.is("ed25519", verified)
		s.is("p-521", verified)
		s.answers(verdict.Ready, verdict.Ready, verdict.Ready)
	},
	"crypto-06": suites,
	"crypto-07": func(s *scene) {
		s.defect("n1", "tls11-only")
		s.is("n1", "False HandshakeFailed", "protocol version")
		s.fails("n1")
	},
}

var serverTests = map[string]func(*scene){
	"srv-01": func(s *scene) {
		n := s.defect("n1", "no-certificate")
		s.is("n1", "False NoServingCertificate", "internal_error")
		s.hints("n1", "kubectl get csr")
		s.grace = 5 * time.Minute
		n.CreationTimestamp = metav1.NewTime(s.world.Now.Add(-time.Minute))
		s.again()
		s.is("n1", "Unknown NoServingCertificate")
		n.CreationTimestamp = metav1.NewTime(s.world.Now.Add(-time.Hour))
		s.again()
		s.is("n1", "False NoServingCertificate")
	},
	"srv-02": func(s *scene) {
		s.defect("n1", "plain-http")
		s.is("n1", "False NotTLS", "The answer is not TLS")
		s.answers(verdict.NotReady, verdict.NotReady, verdict.ReadinessUnknown)
	},
	"srv-03": func(s *scene) {
		s.timeout = 500 * time.Millisecond
		s.defect("n1", "silent")
		s.is("n1", "Unknown ProbeTimeout", "No answer in time")
		s.answers(verdict.ReadinessUnknown, verdict.ReadinessUnknown, verdict.ReadinessUnknown)
	},
	"srv-04": func(s *scene) {
		n := s.defect("n1", "refused")
		s.is("n1", "Unknown ConnectionFailed", "connection refused")
		if strings.Contains(s.of("n1").Message, "not Ready") {
			s.Error(s.of("n1").Message)
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		s.again()
		s.is("n1", "Unknown ConnectionFailed", `"connection refused"; the Node is not Ready either`)
		s.answers(verdict.ReadinessUnknown, verdict.ReadinessUnknown, verdict.ReadinessUnknown)
	},
	"srv-06": func(s *scene) {
		s.timeout = 2 * time.Second // the smaller ClientHello gets as long
		s.defect("n1", "drops-large-hello")
		s.is("n1", "Unknown ProbeTimeout", "by which it would be True Verified")
		s.finds(audit.FindingLargeHelloDropped, "n1")
		if s.report().Readiness != verdict.ReadinessUnknown {
			s.Error(s.report().Readiness)
		}
	},
	"srv-07": handshakesLeaveNoLine,
}

var pathTests = map[string]func(*scene){
	"path-01": func(s *scene) {
		if os.Getenv("HTTPS_PROXY") == "" || os.Getenv("NO_PROXY") != "" {
			s.Fatal("there is no proxy to ignore")
		}
		s.node("n1", nil)
		s.is("n1", verified)
	},
	"path-02": func(s *scene) {
		s.node("n1", nil)
		s.is("n1", verified)
		text := s.rendered(report.Table)
		for _, word := range []string{"logs", "exec", "will work"} {
			if strings.Contains(text, word) {
				s.Errorf("the report promises %q:\n%s", word, text)
			}
		}
		document, err := os.ReadFile("../../docs/verdict.md")
		if err != nil || !strings.Contains(string(document), "It is about certificates, not about the way: konnectivity") {
			s.Errorf("docs/verdict.md does not say what a verdict is not about: %v", err)
		}
	},
	"path-04": func(s *scene) {
		s.issued("vk", s.world.UnknownCA, called("kube-apiserver")).Labels["type"] = "virtual-kubelet"
		s.node("n1", nil)
		s.is("vk", unknownCA)
		s.fails("vk", "Chain", "CommonName")
		s.finds(audit.FindingVirtualKubelets, "vk")
		if r := s.report(); r.Readiness != verdict.NotReady || r.Summary.Total != 2 || r.Summary.RejectedToday != 1 {
			s.Errorf("it counts like any other: %s, %+v", r.Readiness, r.Summary)
		}
	},
	"path-06": func(s *scene) {
		s.bundle = nil
		s.node("n1", nil)
		s.node("n2", nil)
		s.node("n3", noIPs)
		s.is("n1", "Unknown NoTrustBundle")
		s.is("n3", wrongAddress)
		s.finds(audit.FindingSameIssuer, "n1", "n2", "n3")
		if checks := s.report().Summary.Checks; checks[v1alpha1.CheckChain].NotRun != 3 || checks[v1alpha1.CheckCommonName].Pass != 3 || checks[v1alpha1.CheckAddress].Fail != 1 {
			s.Errorf("%+v", checks)
		}
		s.nodes = s.nodes[:2]
		s.answers(verdict.ReadinessUnknown, verdict.ReadinessUnknown, verdict.ReadinessUnknown)
	},
}

// keyed is a good certificate for a key of the caller's.
func (s *scene) keyed(id certs.Identity, key crypto.Signer) certs.Served {
	return certs.Served{Key: key, Chain: [][]byte{s.world.CA.IssueFor(s.template(id), key.Public())}}
}

// suites: each server would finish with a client that offers its one suite.
func suites(s *scene) {
	for name, c := range map[string]struct {
		key   crypto.Signer
		suite uint16
	}{
		"rsa-key-exchange":      {s.rsaKey(), tls.TLS_RSA_WITH_AES_128_GCM_SHA256},
		"rsa-suite-for-ecdsa":   {s.ecdsaKey(elliptic.P256()), tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
		"what-is-still-offered": {s.rsaKey(), tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
	} {
		id := s.id(name)
		s.serve(id, fleet.Behaviour{Served: s.keyed(id, c.key), Configure: func(config *tls.Config) {
			config.MaxVersion, config.CipherSuites = tls.VersionTLS12, []uint16{c.suite}
		}})
	}
	for _, name := range []string{"rsa-key-exchange", "rsa-suite-for-ecdsa"} {
		s.is(name, "False HandshakeFailed", "handshake failure")
		s.fails(name)
	}
	s.is("what-is-still-offered", verified)
	// An older client gets through, so that it is the client who does not offer it.
	n := s.of("rsa-key-exchange")
	dialer := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // only the suite is of interest
		CipherSuites:       []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}, MaxVersion: tls.VersionTLS12,
	}}
	conn, err := dialer.DialContext(s.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(n.Address), uint16(n.Port)).String())
	if err != nil {
		s.Fatalf("an older client: %v", err)
	}
	_ = conn.Close()
}

// watched is what servers log, and the ends of their connections, each of which
// comes after its lines.
type watched struct {
	lines chan string
	ends  chan struct{}
}

// Write takes a line.
func (w *watched) Write(p []byte) (int, error) {
	w.lines <- string(p)
	return len(p), nil
}

// ended waits for so many connections to end.
func (w *watched) ended(s *scene, connections int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	for range connections {
		select {
		case <-w.ends:
		case <-ctx.Done():
			s.Fatal("connections stay open")
		}
	}
}

// handshakesLeaveNoLine uses net/http's own server, as a kubelet does: it logs
// a handshake that fails.
func handshakesLeaveNoLine(s *scene) {
	const probes = 100
	seen := &watched{lines: make(chan string, 10*probes), ends: make(chan struct{}, 10*probes)}
	for name, issuer := range map[string]*certs.CA{"good": s.world.CA, "bad-ca": s.world.UnknownCA, "bad-san": s.world.CA} {
		id := s.id(name)
		template := s.template(id)
		if name == "bad-san" {
			noIPs(template)
		}
		s.nodes = append(s.nodes, s.httpServer(id, issuer.Issue(template), seen))
	}
	for range probes {
		s.again()
		s.report()
	}
	seen.ended(s, probes*len(s.nodes))
	if n := len(seen.lines); n != 0 {
		s.Errorf("%d lines were logged, the first is %q", n, <-seen.lines)
	}
	// One that its client breaks off is logged, and so would be any before it.
	if err := s.dial(s.of("bad-ca")); err == nil {
		s.Fatal("a bad CA was trusted")
	}
	seen.ended(s, 1)
	if n := len(seen.lines); n != 1 {
		s.Fatalf("%d lines were logged of the one that was broken off", n)
	}
	if line := <-seen.lines; !strings.Contains(line, "bad certificate") {
		s.Error(line)
	}
	s.is("good", verified)
	s.is("bad-ca", unknownCA)
	s.is("bad-san", wrongAddress)
}

func (s *scene) httpServer(id certs.Identity, served certs.Served, seen *watched) *corev1.Node {
	s.Helper()
	listener, err := (&net.ListenConfig{}).Listen(s.Context(), "tcp", net.JoinHostPort(id.IP.String(), "0"))
	if err != nil {
		s.Fatal(err)
	}
	server := &http.Server{
		ErrorLog: log.New(seen, "", 0), ReadHeaderTimeout: time.Minute,
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				seen.ends <- struct{}{}
			}
		},
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{served.TLS()}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "")
	}()
	s.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		_ = server.Close()
		<-done
	})
	return fleet.Node(id.NodeName, id.IP, int32(listener.Addr().(*net.TCPAddr).Port))
}
