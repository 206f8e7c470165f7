// Package probe opens the only sockets that this project opens to kubelets: one
// TLS handshake each, and never a byte of HTTP, a bearer token or a client
// certificate.
//
// The ClientHello is that of kube-apiserver's transport (client-go: TLS 1.2 at
// least, crypto/tls' default suites and curves, the dialled host as server
// name), but for ALPN: a kubelet that picks HTTP/2 starts talking at once, so
// that our close would reset the connection and leave a line in its log.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// maxHandshakeBytes bounds what one peer may send. The largest handshake message
// that crypto/tls reads is 64 KiB, a Certificate message 256 KiB.
const maxHandshakeBytes = 1 << 20

// Prober probes kubelets. It is safe for concurrent use.
type Prober struct {
	// AllowLocalAddresses dials loopback, link-local, multicast and unspecified
	// addresses too: a Node's addresses are the node's own words.
	AllowLocalAddresses bool
	// Resolver for host names; nil means net.DefaultResolver.
	Resolver *net.Resolver
	// Urgent probes begin before others that share the Limiter, and of those under
	// way they have every second place at the CPU.
	Urgent bool
	// Limiter bounds the probes under way; nil means no bound.
	Limiter *Limiter
}

var (
	errNotAllowed = errors.New("address not allowed")
	errNoHost     = errors.New("neither an IP address nor a host name")
)

// smallerLimit is the time limit of the second look at a peer that has not
// answered: a path that lets a smaller ClientHello through does so at once.
const smallerLimit = 2 * time.Second

// classical curves make a ClientHello that fits into one packet; crypto/tls'
// default since Go 1.24 adds a post-quantum share and does not.
var classical = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521}

// Probe performs one handshake and says what it showed; timeout bounds name
// resolution, connection and handshake together. Where not one byte comes back
// in that time, it looks once more, for at most two seconds, with a smaller
// ClientHello. An error means that ctx ended before there was an observation,
// never that a kubelet misbehaves.
func (p *Prober) Probe(ctx context.Context, endpoint verdict.Endpoint, timeout time.Duration) (verdict.Observation, error) {
	t, err := p.Limiter.begin(ctx, p.Urgent, timeout)
	if err != nil {
		return verdict.Observation{}, err
	}
	answered := false
	defer func() { t.end(answered) }()
	start := time.Now()
	obs, unanswered := p.attempt(ctx, t, endpoint, timeout, nil)
	if unanswered && ctx.Err() == nil {
		if smaller, none := p.attempt(ctx, t, endpoint, min(timeout, smallerLimit), classical); !none {
			obs.Smaller = &smaller
		}
	}
	answered = heard(obs.Outcome)
	if err := ctx.Err(); err != nil {
		return verdict.Observation{}, err
	}
	obs.Duration = time.Since(start)
	return obs, nil
}

// heard says that a peer was there and said something.
func heard(o verdict.Outcome) bool {
	return !slices.Contains([]verdict.Outcome{
		verdict.OutcomeTimeout, verdict.OutcomeUnconnected, verdict.OutcomeUnresolved, verdict.OutcomeAddressNotAllowed, verdict.OutcomeNone,
	}, o)
}

// attempt is one handshake. unanswered says that the connection was made and
// not one byte came over it in time.
func (p *Prober) attempt(ctx context.Context, t *turn, endpoint verdict.Endpoint, timeout time.Duration, curves []tls.CurveID) (obs verdict.Observation, unanswered bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t.pause()
	conn, err := p.dial(ctx, endpoint)
	if err != nil {
		return dialObservation(err), false
	}
	bounded := &boundedConn{Conn: conn, left: maxHandshakeBytes, turn: t, ctx: ctx}
	defer func() { _ = bounded.Close() }()
	if t.resume(ctx) != nil {
		return verdict.Observation{Outcome: verdict.OutcomeTimeout}, false
	}
	obs = handshake(ctx, bounded, endpoint.Host, curves)
	return obs, obs.Outcome == verdict.OutcomeTimeout && bounded.left == maxHandshakeBytes
}

func handshake(ctx context.Context, conn net.Conn, host string, curves []tls.CurveID) verdict.Observation {
	var obs verdict.Observation
	client := tls.Client(conn, &tls.Config{
		MinVersion:       tls.VersionTLS12,
		CurvePreferences: curves,
		ServerName:       host,
		// Verification is the judge's: it wants every check, also where the
		// first one fails. Nothing is sent over this connection.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(state tls.ConnectionState) error {
			// This runs before the peer has proved to hold the key.
			obs.Chain, obs.TLSVersion = state.PeerCertificates, state.Version
			return nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			// crypto/tls asks only after it has verified the peer's signature.
			obs.KeyProven = true
			return &tls.Certificate{}, nil
		},
	})
	if err := client.HandshakeContext(ctx); err != nil {
		obs.Outcome, obs.Detail = handshakeOutcome(err)
		return obs
	}
	obs.Outcome, obs.KeyProven = verdict.OutcomeCompleted, true
	// close_notify, so that the kubelet sees an orderly end and logs nothing.
	_ = client.Close()
	return obs
}

func (p *Prober) dial(ctx context.Context, endpoint verdict.Endpoint) (net.Conn, error) {
	// kube-apiserver writes a URL and reads it again before it dials.
	written := (&url.URL{Scheme: "https", Host: endpoint.HostPort()}).String()
	if _, err := url.Parse(written); err != nil {
		return nil, errNoHost
	}
	var refused atomic.Bool
	dialer := &net.Dialer{
		Resolver:  p.Resolver,
		KeepAlive: -1,
		Control: func(_, address string, _ syscall.RawConn) error {
			if p.AllowLocalAddresses || allowed(address) {
				return nil
			}
			refused.Store(true)
			return errNotAllowed
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", endpoint.HostPort())
	if refused.Load() {
		// A name that also resolves to such an address may lead kube-apiserver
		// there, so another address of it proves nothing.
		if err == nil {
			_ = conn.Close()
		}
		return nil, errNotAllowed
	}
	return conn, err
}

// allowed looks at an address as it is about to be dialled, so that a name which
// resolves to a forbidden one is caught too.
func allowed(hostPort string) bool {
	addrPort, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return false
	}
	ip := addrPort.Addr().Unmap()
	return !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified() &&
		!ip.IsInterfaceLocalMulticast()
}

func dialObservation(err error) verdict.Observation {
	var dns *net.DNSError
	switch {
	case errors.Is(err, errNotAllowed):
		return verdict.Observation{Outcome: verdict.OutcomeAddressNotAllowed}
	case errors.Is(err, errNoHost):
		return verdict.Observation{Outcome: verdict.OutcomeUnresolved, Detail: errNoHost.Error()}
	case errors.As(err, &dns):
		return verdict.Observation{Outcome: verdict.OutcomeUnresolved, Detail: resolutionDetail(dns)}
	case timedOut(err):
		return verdict.Observation{Outcome: verdict.OutcomeTimeout}
	}
	return verdict.Observation{Outcome: verdict.OutcomeUnconnected, Detail: cause(err)}
}

// resolutionDetail is in our words: the error's own hold local ports.
func resolutionDetail(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "no such host"
	case err.IsTimeout:
		return "the lookup timed out"
	}
	return "the lookup failed"
}

// cause is the innermost error: outer ones carry local ports, which differ from
// probe to probe.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// handshakeOutcome reads crypto/tls' error.
func handshakeOutcome(err error) (verdict.Outcome, string) {
	var header tls.RecordHeaderError
	var op *net.OpError
	switch {
	case timedOut(err):
		return verdict.OutcomeTimeout, ""
	case errors.As(err, &header):
		return verdict.OutcomeNotTLS, header.Msg
	case errors.As(err, &op) && op.Op == "remote error":
		if op.Err.Error() == tls.AlertError(alertInternalError).Error() {
			return verdict.OutcomeInternalError, err.Error()
		}
		return verdict.OutcomeHandshakeFailed, err.Error()
	case errors.As(err, &op) && op.Op == "local error": // what came is no sound TLS
		return verdict.OutcomeHandshakeFailed, err.Error()
	case refusedCertificate(err):
		return verdict.OutcomeBadCertificate, err.Error()
	case strings.HasPrefix(err.Error(), "tls: "):
		return verdict.OutcomeHandshakeFailed, err.Error()
	case errors.Is(err, errTooMuch):
		return verdict.OutcomeHandshakeFailed, err.Error()
	}
	return verdict.OutcomeClosed, ""
}

const alertInternalError = 80

// refusedCertificate recognises what crypto/tls refuses before it verifies
// (handshake_client.go, verifyServerCertificate), for which it has no types.
func refusedCertificate(err error) bool {
	text := err.Error()
	return strings.HasPrefix(text, "tls: failed to parse certificate from server: ") ||
		strings.HasPrefix(text, "tls: server sent certificate containing RSA key larger than ") ||
		strings.HasPrefix(text, "tls: server's certificate contains an unsupported type of public key: ")
}

var errTooMuch = errors.New("the peer sent too much within the handshake")

// boundedConn ends a handshake whose peer never stops sending, and gives the
// probe's turn to others while the peer keeps it waiting.
type boundedConn struct {
	net.Conn
	left int
	turn *turn
	ctx  context.Context //nolint:containedctx // that of the one handshake over it
}

// Read fails once the budget is spent.
func (c *boundedConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	c.turn.pause()
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	if ended := c.turn.resume(c.ctx); ended != nil && err == nil {
		err = ended
	}
	return n, err
}
