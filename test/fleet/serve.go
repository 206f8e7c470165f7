package fleet

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// slowness is how late certs.WireSlow answers.
const slowness = 300 * time.Millisecond

// mostRequestBytes bounds what one client may send inside TLS.
const mostRequestBytes = 1 << 20

// logs is the body of every container's logs.
const logs = "simulated kubelet\n"

// serverOf prepares what all connections of a node's behaviour share.
func (f *Fleet) serverOf(n *node, b Behaviour) func(*conn) {
	mustBeServable(b)
	switch b.Wire {
	case certs.WireTLS, certs.WireTLS12, certs.WireTLS11, certs.WireTLSRequireClientCert12:
		return serveTLS(configOf(n, b))
	case certs.WireSlow:
		serve := serveTLS(configOf(n, b))
		return func(c *conn) {
			if f.wait(slowness) {
				serve(c)
			}
		}
	case certs.WireNoCertificate:
		config := configOf(n, b)
		config.Certificates = nil
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return nil, errors.New("no serving certificate available for the kubelet")
		}
		return serveTLS(config)
	case certs.WireWrongKey12, certs.WireWrongKey13:
		return serveTLS(withSigner(configOf(n, b), wrongSigner(b.Served)))
	case certs.WireAlertAfterCertificate12, certs.WireAlertAfterCertificate13:
		return serveTLS(withSigner(configOf(n, b), failingSigner(b.Served, func() {})))
	case certs.WireCloseAfterCertificate12, certs.WireCloseAfterCertificate13:
		return closeAfterCertificate(configOf(n, b), b.Served)
	case certs.WirePlainHTTP:
		return servePlainHTTP
	case certs.WireSilent:
		return (*conn).drain
	case certs.WireDropsLargeHello:
		return dropLargeHello(serveTLS(configOf(n, b)))
	case certs.WireCloseAfterHello:
		return closeAfterHello
	case certs.WireReset, certs.WireRefused:
		return reset
	default:
		panic(fmt.Sprintf("fleet: unknown %s", b.Wire))
	}
}

// mustBeServable panics where the wire needs what the behaviour does not hold.
func mustBeServable(b Behaviour) {
	if b.Wire.ShowsCertificate() && len(b.Served.Chain) == 0 {
		panic(fmt.Sprintf("fleet: wire %s needs a certificate to show", b.Wire))
	}
	if (b.Wire.ProvesKey() || b.Wire == certs.WireDropsLargeHello) && b.Served.Key == nil {
		panic(fmt.Sprintf("fleet: wire %s needs the certificate's key", b.Wire))
	}
}

// configOf is a kubelet's, within the wire's versions. Tickets are off, so
// that every connection costs and proves a full handshake.
func configOf(n *node, b Behaviour) *tls.Config {
	config := &tls.Config{
		Certificates:           []tls.Certificate{b.Served.TLS()},
		ClientAuth:             tls.RequestClientCert,
		MinVersion:             tls.VersionTLS12,
		MaxVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		// Called once per handshake in which the client answered the request
		// for a certificate, before it proves that it holds the key.
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) > 0 {
				n.clientCertificates.Add(1)
			}
			return nil
		},
	}
	switch b.Wire {
	case certs.WireTLS11:
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	case certs.WireTLSRequireClientCert12:
		config.ClientAuth = tls.RequireAnyClientCert
		config.MaxVersion = tls.VersionTLS12
	case certs.WireTLS12, certs.WireWrongKey12, certs.WireAlertAfterCertificate12, certs.WireCloseAfterCertificate12:
		config.MaxVersion = tls.VersionTLS12
	case certs.WireWrongKey13, certs.WireAlertAfterCertificate13, certs.WireCloseAfterCertificate13:
		config.MinVersion = tls.VersionTLS13
	case certs.WireTLS, certs.WireSlow, certs.WireNoCertificate, certs.WirePlainHTTP, certs.WireRefused,
		certs.WireSilent, certs.WireCloseAfterHello, certs.WireReset, certs.WireDropsLargeHello: // a kubelet's, where it is used at all
	}
	if b.Configure != nil {
		b.Configure(config)
	}
	return config
}

func serveTLS(config *tls.Config) func(*conn) {
	return func(c *conn) {
		defer c.finish()
		secure := tls.Server(c, config)
		// The connection has its deadline and ends with the fleet.
		if secure.HandshakeContext(context.Background()) != nil {
			return
		}
		c.node.handshakes.Add(1)
		answerRequests(c.node, secure)
		_ = secure.CloseWrite()
	}
}

// answerRequests reads until the client ends. It answers as a kubelet as far
// as "kubectl logs" needs it; all else is not found.
func answerRequests(n *node, secure *tls.Conn) {
	received := &countingReader{Reader: io.LimitReader(secure, mostRequestBytes), node: n}
	reader := bufio.NewReader(received)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			_, _ = io.Copy(io.Discard, received)
			return
		}
		n.requests.Add(1)
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		if _, err := io.WriteString(secure, responseTo(request)); err != nil || request.Close {
			return
		}
	}
}

func responseTo(request *http.Request) string {
	status, body := "404 Not Found", "not found\n"
	if request.Method == http.MethodGet && strings.HasPrefix(request.URL.Path, "/containerLogs/") {
		status, body = "200 OK", logs
	}
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

type countingReader struct {
	io.Reader
	node *node
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.node.applicationBytes.Add(int64(n))
	return n, err
}

// closeAfterCertificate lets the signature fail. crypto/tls then sends all
// that it has buffered, from ServerHello to Certificate, with its alert in one
// write, and the connection withholds that write's last record.
func closeAfterCertificate(shared *tls.Config, served certs.Served) func(*conn) {
	return func(c *conn) {
		config := withSigner(shared.Clone(), failingSigner(served, func() { c.withhold = true }))
		serveTLS(config)(c)
	}
}

func servePlainHTTP(c *conn) {
	if c.readRecord() {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"+
			"Connection: close\r\n\r\n400 Bad Request")
	}
	c.finish()
}

// mostHello is the size of the largest ClientHello that comes through.
const mostHello = 1400

// dropLargeHello answers nothing that begins with a large record.
func dropLargeHello(serve func(*conn)) func(*conn) {
	return func(c *conn) {
		var header [5]byte
		if _, err := io.ReadFull(c, header[:]); err != nil {
			return
		}
		if int(binary.BigEndian.Uint16(header[3:]))+len(header) > mostHello {
			c.drain()
			return
		}
		c.unread = header[:]
		serve(c)
	}
}

func closeAfterHello(c *conn) {
	c.readRecord()
	c.finish()
}

func reset(c *conn) {
	c.readRecord()
	_ = c.SetLinger(0)
}

func withSigner(config *tls.Config, signer crypto.Signer) *tls.Config {
	certificate := config.Certificates[0]
	certificate.PrivateKey = signer
	config.Certificates = []tls.Certificate{certificate}
	return config
}

// signer claims to hold the key of a certificate that it does not hold.
type signer struct {
	public crypto.PublicKey
	sign   func(digest []byte, opts crypto.SignerOpts) ([]byte, error)
}

func (s signer) Public() crypto.PublicKey { return s.public }

func (s signer) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return s.sign(digest, opts)
}

// publicOf the leaf, which may be one that cannot be parsed.
func publicOf(served certs.Served) crypto.PublicKey {
	if leaf := served.Leaf(); leaf != nil {
		return leaf.PublicKey
	}
	return served.Key.Public()
}

func wrongSigner(served certs.Served) signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(fmt.Errorf("generate key: %w", err))
	}
	return signer{public: publicOf(served), sign: func(digest []byte, opts crypto.SignerOpts) ([]byte, error) {
		return key.Sign(rand.Reader, digest, opts)
	}}
}

func failingSigner(served certs.Served, onSign func()) signer {
	return signer{public: publicOf(served), sign: func([]byte, crypto.SignerOpts) ([]byte, error) {
		onSign()
		return nil, errors.New("the key is not here")
	}}
}
