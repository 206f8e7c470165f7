package probe_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// hostile is a peer: it answers one connection in any way it likes.
type hostile struct {
	name   string
	serve  func(net.Conn)
	reason v1alpha1.Reason
	// timeout of the probe: short where the peer has it run out.
	timeout time.Duration
}

var self = certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("127.0.0.1")}

// Records of TLS 1.2, as RFC 8446 has them.
const (
	changeCipherSpec = 20
	alert            = 21
	handshakeRecord  = 22
	applicationData  = 23
)

func record(kind byte, body []byte) []byte {
	return append([]byte{kind, 3, 3, byte(len(body) >> 8), byte(len(body))}, body...)
}

// hello reads the ClientHello.
func hello(c net.Conn) bool {
	var header [5]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, c, int64(header[3])<<8|int64(header[4]))
	return err == nil
}

// forever repeats what it is given until the client has had enough.
func forever(text []byte) func(net.Conn) {
	return func(c net.Conn) {
		if !hello(c) {
			return
		}
		text := bytes.Repeat(text, 1+4096/len(text))
		for {
			if _, err := c.Write(text); err != nil {
				return
			}
		}
	}
}

// once sends a text and waits for the client to end.
func once(text []byte) func(net.Conn) {
	return func(c net.Conn) {
		if hello(c) {
			_, _ = c.Write(text)
			_, _ = io.Copy(io.Discard, c)
		}
	}
}

// serves is a TLS server with any chain, whose key is the leaf's or not.
func serves(key crypto.Signer, change func(*tls.Config), chain ...[]byte) func(net.Conn) {
	return func(c net.Conn) {
		config := &tls.Config{
			Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: key}}, SessionTicketsDisabled: true,
			ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12,
		}
		if change != nil {
			change(config)
		}
		server := tls.Server(c, config)
		if server.HandshakeContext(context.Background()) == nil { // the connection has its deadline
			_, _ = io.Copy(io.Discard, server)
		}
	}
}

// issued is a good certificate but for the change.
func issued(w *certs.World, change func(*x509.Certificate)) certs.Served {
	template := certs.Template(self)
	change(template)
	return w.CA.Issue(template)
}

func withNames(w *certs.World, commonName string, names ...string) func(net.Conn) {
	served := issued(w, func(c *x509.Certificate) { c.Subject.CommonName, c.DNSNames = commonName, names })
	return serves(served.Key, nil, served.Chain...)
}

// rawNames puts bytes into the common name that no library would write. The
// signature is broken by that, which comes later.
func rawNames(w *certs.World, commonName string) func(net.Conn) {
	placeholder := strings.Repeat("p", len(commonName))
	served := issued(w, func(c *x509.Certificate) { c.Subject.CommonName = placeholder })
	der := bytes.Replace(served.Chain[0], []byte(placeholder), []byte(commonName), 1)
	return serves(served.Key, nil, der)
}

// after lets so many bytes of the server's pass and resets the connection.
func after(n int, serve func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		serve(&cutConn{Conn: c, left: n})
	}
}

type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.Conn.Write(b[:c.left])
		_ = c.Conn.(*net.TCPConn).SetLinger(0) //nolint:forcetypeassert // a TCP listener's
		_ = c.Close()
		return 0, errors.New("cut")
	}
	c.left -= len(b)
	return c.Conn.Write(b)
}

// garbled replaces what comes after the ServerHello.
type garbled struct{ net.Conn }

func (c *garbled) Write(b []byte) (int, error) {
	first := 5 + int(b[3])<<8 + int(b[4])
	copy(b[min(first, len(b)):], bytes.Repeat(record(applicationData, []byte("garbage")), 1+len(b)/12))
	return c.Conn.Write(b)
}

func hostiles(w *certs.World) []hostile {
	good := w.CA.Issue(certs.Template(self))
	goodServer := serves(good.Key, nil, good.Chain...)
	tls12 := func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }
	big300k := issued(w, func(c *x509.Certificate) { c.ExtraExtensions = []pkix.Extension{blob(300 << 10)} })
	big16M := issued(w, func(c *x509.Certificate) { c.ExtraExtensions = []pkix.Extension{blob(16<<20 - 2000)} })
	modulus := new(big.Int).SetBit(new(big.Int).Lsh(big.NewInt(1), 16383), 0, 1)
	rsa16384 := w.CA.IssueFor(certs.Template(self), &rsa.PublicKey{N: modulus, E: 65537})
	const closed, failed, notTLS, bad = v1alpha1.ReasonConnectionClosed, v1alpha1.ReasonHandshakeFailed, v1alpha1.ReasonNotTLS, v1alpha1.ReasonCertificateInvalid
	const short = 300 * time.Millisecond
	return []hostile{
		{name: "endless bytes that are no TLS", serve: forever([]byte("\xff\xfe")), reason: notTLS},
		{name: "endless NUL", serve: forever(make([]byte, 100)), reason: notTLS},
		{name: "an HTTP answer without end", serve: forever([]byte("HTTP/1.1 200 OK\r\nX: y\r\n")), reason: notTLS},
		{name: "an endless ServerHello", serve: forever(record(handshakeRecord, append([]byte{2, 0xff, 0xff, 0xff}, make([]byte, 1000)...))), reason: failed},
		{name: "warning alerts", serve: forever(record(alert, []byte{1, 90})), reason: failed},
		{name: "empty records", serve: forever(record(handshakeRecord, nil)), reason: failed},
		{name: "change after change of cipher", serve: forever(record(changeCipherSpec, []byte{1})), reason: notTLS},
		{name: "data before the handshake", serve: forever(record(applicationData, []byte("early"))), reason: notTLS},
		{name: "requests to renegotiate", serve: forever(record(handshakeRecord, []byte{0, 0, 0, 0})), reason: failed},
		{name: "a record larger than allowed", serve: forever(record(handshakeRecord, make([]byte, 0xffff))), reason: notTLS},
		{name: "an alert of 1 byte", serve: once(record(alert, []byte{2})), reason: failed},
		{name: "garbage after the ServerHello", serve: func(c net.Conn) { goodServer(&garbled{c}) }, reason: failed},
		{name: "half a record, then nothing", serve: once([]byte{handshakeRecord, 3}), reason: v1alpha1.ReasonProbeTimeout, timeout: short},
		{name: "one byte after the other", serve: drip(record(handshakeRecord, make([]byte, 4000))), reason: v1alpha1.ReasonProbeTimeout, timeout: short},
		{name: "closes at once", serve: func(net.Conn) {}, reason: closed},
		{name: "closes its half", serve: func(c net.Conn) {
			_ = c.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // a TCP listener's
			_, _ = io.Copy(io.Discard, c)
		}, reason: closed},
		{name: "resets after the first byte", serve: after(1, goodServer), reason: closed},
		{name: "resets within the ServerHello", serve: after(60, goodServer), reason: closed},
		{name: "resets within the certificate, TLS 1.2", serve: after(400, serves(good.Key, tls12, good.Chain...)), reason: closed},
		{name: "a certificate of 300 KiB", serve: serves(big300k.Key, nil, big300k.Chain...), reason: failed},
		{name: "a certificate of 16 MiB", serve: serves(big16M.Key, nil, big16M.Chain...), reason: failed},
		{name: "10,000 certificates", serve: serves(good.Key, nil, chainOf(good, 10000)...), reason: failed},
		{name: "500 certificates", serve: serves(good.Key, nil, chainOf(good, 500)...), reason: v1alpha1.ReasonVerified},
		{name: "5,000 times junk", serve: serves(good.Key, nil, append(good.Chain, junk(5000)...)...), reason: bad},
		{name: "RSA 16384", serve: serves(fakeRSA{&rsa.PublicKey{N: modulus, E: 65537}}, nil, rsa16384), reason: bad},
		{name: "an expensive chain", serve: serves(good.Key, nil, expensiveChain(w)...), reason: bad},
		{name: "a common name of 64 KiB", serve: withNames(w, strings.Repeat("x", 64<<10), "n1"), reason: v1alpha1.ReasonCommonNameMismatch},
		{name: "SANs by the thousand", serve: withNames(w, "system:node:n1", many(4000)...), reason: v1alpha1.ReasonVerified},
		{name: "line feeds and escapes", serve: withNames(w, "system:node:n1\n\x1b[2J\r\x00", "a\nb", "\x1b[31m", "\x00"), reason: v1alpha1.ReasonCommonNameMismatch},
		{name: "right-to-left marks", serve: withNames(w, "system:node:\u202en1\u2066", "n1"), reason: v1alpha1.ReasonCommonNameMismatch},
		{name: "the syntax of labels", serve: withNames(w, `system:node:n1",reason="Verified"} 1`+"\n", "n1"), reason: v1alpha1.ReasonCommonNameMismatch},
		{name: "invalid UTF-8", serve: rawNames(w, "system:node:\xff\xfe\xc0*"), reason: bad},
	}
}

func drip(text []byte) func(net.Conn) {
	return func(c net.Conn) {
		if !hello(c) {
			return
		}
		for i := range text {
			if _, err := c.Write(text[i : i+1]); err != nil {
				return
			}
			// The client's end, or a moment.
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); !isTimeout(err) {
				return
			}
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

func blob(size int) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: bytes.Repeat([]byte{5}, size)}
}

func chainOf(s certs.Served, n int) [][]byte {
	chain := s.Chain
	for len(chain) < n {
		chain = append(chain, s.Chain[0])
	}
	return chain
}

func junk(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = []byte{0x30, 0}
	}
	return list
}

func many(n int) []string {
	list := []string{"n1"}
	for i := range n {
		list = append(list, fmt.Sprintf("name-%d.example", i))
	}
	return list
}

// expensiveChain is a leaf of a CA that is there two hundred times, each signed
// by all the others' name: every path has to be tried.
func expensiveChain(w *certs.World) [][]byte {
	ca := certs.NewCA("maze", w.Now)
	served := ca.Issue(certs.Template(self))
	chain := served.Chain
	for range 200 {
		chain = append(chain, ca.IssueFor(&x509.Certificate{
			Subject: pkix.Name{CommonName: "maze"}, KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		}, ca.Key.Public()))
	}
	return chain
}

// fakeRSA signs with nothing.
type fakeRSA struct{ public *rsa.PublicKey }

func (f fakeRSA) Public() crypto.PublicKey { return f.public }

func (f fakeRSA) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return make([]byte, f.public.Size()), nil
}

// peer listens and serves each connection in one way.
type peer struct{ port int32 }

func startPeer(tb testing.TB, serve func(net.Conn)) *peer {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &peer{port: int32(l.Addr().(*net.TCPAddr).Port)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			serve(c)
			_ = c.Close()
		}
	}()
	tb.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return p
}

func judged(tb testing.TB, w *certs.World, p *peer, timeout time.Duration) verdict.Verdict {
	tb.Helper()
	endpoint := verdict.Endpoint{AddressType: "InternalIP", Host: self.IP.String(), Port: p.port}
	obs, err := (&probe.Prober{AllowLocalAddresses: true}).Probe(tb.Context(), endpoint, timeout)
	if err != nil {
		tb.Fatal(err)
	}
	bundle := verdict.Bundle{Roots: x509.NewCertPool(), Certificates: []*x509.Certificate{w.CA.Certificate}}
	bundle.Roots.AddCert(w.CA.Certificate)
	return verdict.Judge(verdict.Expectation{NodeName: self.NodeName, Endpoint: endpoint}, obs, verdict.Policy{Bundle: bundle}, time.Now())
}

// Whatever a peer does, there is one verdict with the right reason, in words
// that can be shown, and nothing is left of it.
func TestHostilePeers(t *testing.T) {
	w := certs.NewWorld(time.Now())
	for _, h := range hostiles(w) {
		t.Run(h.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) }) // after the peer has ended
			p := startPeer(t, h.serve)
			timeout := h.timeout
			if timeout == 0 {
				timeout = 15 * time.Second
			}
			v := judged(t, w, p, timeout)
			if v.Reason != h.reason {
				t.Errorf("%s, want %s: %s", v.Reason, h.reason, v.Message)
			}
			for _, text := range []string{v.Message, v.Hint} {
				if len(text) > 1024 || !utf8.ValidString(text) || strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
					t.Errorf("%d bytes: %q", len(text), text)
				}
			}
		})
	}
}

// A peer that has sent a byte is not asked again.
func TestHalfAnAnswerIsOne(t *testing.T) {
	p := startPeer(t, once([]byte{handshakeRecord, 3}))
	endpoint := verdict.Endpoint{Host: self.IP.String(), Port: p.port}
	obs, err := (&probe.Prober{AllowLocalAddresses: true}).Probe(t.Context(), endpoint, 300*time.Millisecond)
	if err != nil || obs.Outcome != verdict.OutcomeTimeout || obs.Smaller != nil {
		t.Errorf("%+v, %v", obs, err)
	}
}

// The bound on memory: a probe reads at most 1 MiB, and crypto/tls keeps less.
func BenchmarkHostilePeers(b *testing.B) {
	w := certs.NewWorld(time.Now())
	for _, h := range hostiles(w) {
		if h.timeout > 0 {
			continue
		}
		b.Run(strings.ReplaceAll(h.name, " ", "-"), func(b *testing.B) {
			p := startPeer(b, h.serve)
			b.ReportAllocs()
			for b.Loop() {
				judged(b, w, p, 15*time.Second)
			}
		})
	}
}
