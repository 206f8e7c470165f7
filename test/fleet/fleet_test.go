package fleet

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

var world = certs.NewWorld(time.Now())

func start(t *testing.T) *Fleet {
	t.Helper()
	f, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// seen is what a client learns of a server.
type seen struct {
	leaf      *x509.Certificate
	asked     bool // for a client certificate
	completed bool
	err       error
}

// look makes one handshake and reads the connection to its end.
func look(t *testing.T, f *Fleet, ip netip.Addr, clientCertificates ...tls.Certificate) seen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var s seen
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp4", fmt.Sprintf("%s:%d", ip, f.PortOf(ip)))
	if err != nil {
		return seen{err: err}
	}
	defer func() { _ = raw.Close() }()
	client := tls.Client(raw, &tls.Config{
		InsecureSkipVerify: true, // the test looks for itself
		MinVersion:         tls.VersionTLS12,
		VerifyConnection: func(state tls.ConnectionState) error {
			s.leaf = state.PeerCertificates[0]
			return nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			s.asked = true
			if len(clientCertificates) > 0 {
				return &clientCertificates[0], nil
			}
			return &tls.Certificate{}, nil
		},
	})
	if s.err = client.HandshakeContext(ctx); s.err != nil {
		return s
	}
	s.completed = true
	if err := client.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, client); err != nil {
		t.Error(err)
	}
	return s
}

// signs of what a client sees, by wire. A nil sign is a handshake that
// completes.
var signs = map[certs.Wire]func(error) bool{
	certs.WireTLS:                     nil,
	certs.WireTLS12:                   nil,
	certs.WireSlow:                    nil,
	certs.WireTLSRequireClientCert12:  remoteAlert(40),
	certs.WireTLS11:                   remoteAlert(70),
	certs.WireNoCertificate:           remoteAlert(80),
	certs.WirePlainHTTP:               notTLS,
	certs.WireRefused:                 is(syscall.ECONNREFUSED),
	certs.WireCloseAfterHello:         is(io.EOF),
	certs.WireReset:                   is(syscall.ECONNRESET),
	certs.WireWrongKey12:              says("invalid signature by the server certificate"),
	certs.WireWrongKey13:              says("invalid signature by the server certificate"),
	certs.WireAlertAfterCertificate12: remoteAlert(40),
	certs.WireAlertAfterCertificate13: remoteAlert(80),
	certs.WireCloseAfterCertificate12: is(io.EOF),
	certs.WireCloseAfterCertificate13: is(io.EOF),
}

// signsOfUnreadable are those of certificates that crypto/tls refuses itself.
var signsOfUnreadable = map[string]func(error) bool{
	"rsa-too-large": says("RSA key larger than 8192 bits"),
	"unparsable":    says("failed to parse certificate from server"),
}

func remoteAlert(code uint8) func(error) bool {
	return func(err error) bool {
		operation, ok := errors.AsType[*net.OpError](err)
		return ok && operation.Op == "remote error" && operation.Err.Error() == tls.AlertError(code).Error()
	}
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func says(words string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), words) }
}

func notTLS(err error) bool {
	header, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok && string(header.RecordHeader[:]) == "HTTP/"
}

func TestEveryDefectOnTheWire(t *testing.T) {
	f := start(t)
	defects := certs.Defects()
	for _, m := range Populate(f, world, defects, len(defects)) {
		if m.Defect.Wire == certs.WireSilent || m.Defect.Wire == certs.WireDropsLargeHello {
			continue
		}
		t.Run(m.Defect.Name, func(t *testing.T) {
			got := look(t, f, m.IP)
			checkSign(t, m.Defect, got)
			if (got.leaf != nil) != m.Defect.Captured() {
				t.Errorf("certificate captured: %v", got.leaf != nil)
			}
			if proven := got.completed || (got.asked && m.Defect.Wire == certs.WireTLSRequireClientCert12); proven != m.Defect.KeyProven() {
				t.Errorf("key proven: %v", proven)
			}
			checkCounts(t, f, m, got)
		})
	}
}

func checkSign(t *testing.T, d certs.Defect, got seen) {
	t.Helper()
	sign, known := signs[d.Wire]
	if d.Unreadable {
		sign, known = signsOfUnreadable[d.Name]
	}
	switch {
	case !known:
		t.Errorf("nobody wrote down what a client sees of wire %s", d.Wire)
	case sign == nil && got.err != nil:
		t.Errorf("handshake: %v", got.err)
	case sign != nil && (got.err == nil || !sign(got.err)):
		t.Errorf("wire %s shows itself as %T %v", d.Wire, got.err, got.err)
	}
}

func checkCounts(t *testing.T, f *Fleet, m Member, got seen) {
	t.Helper()
	want := Counts{Connections: 1}
	if m.Defect.Wire == certs.WireRefused {
		want.Connections = 0
	}
	if got.completed {
		want.Handshakes = 1
	}
	counts := settled(t, f, m.IP, want.Connections)
	if want.Connections > 0 && counts.BytesRead == 0 {
		t.Error("no byte was counted")
	}
	if m.Defect.Wire.ShowsCertificate() && counts.BytesWritten < leafBytes(m) {
		t.Errorf("%d bytes written are too few for the certificate", counts.BytesWritten)
	}
	counts.BytesRead, counts.BytesWritten = 0, 0
	if counts != want {
		t.Errorf("counts %+v, want %+v", counts, want)
	}
}

func leafBytes(m Member) int64 {
	return int64(len(m.Defect.Serve(world, certs.Identity{NodeName: m.Node.Name, IP: m.IP}).Chain[0])) - slack
}

// slack is by how much two signatures of one certificate can differ in length.
const slack = 16

// settled waits until that many connections have come and gone.
func settled(t *testing.T, f *Fleet, ip netip.Addr, connections int64) Counts {
	t.Helper()
	for t.Context().Err() == nil {
		c := f.Counts(ip)
		if c.Connections >= connections && c.Open == 0 {
			return c
		}
		runtime.Gosched()
	}
	t.Fatal("connections stay open")
	return Counts{}
}

func TestSilentPeerNeverAnswers(t *testing.T) {
	f := start(t)
	ip := Address(0)
	f.Set(ip, Behaviour{Wire: certs.WireSilent})
	client := dial(t, f, ip)
	if _, err := io.WriteString(client, "hello"); err != nil {
		t.Fatal(err)
	}
	for f.Counts(ip).BytesRead < 5 {
		runtime.Gosched()
	}
	_ = client.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

func TestServesWhatWasSet(t *testing.T) {
	f := start(t)
	served := world.CA.Issue(certs.Template(certs.Identity{NodeName: "a", IP: Address(0)}))
	f.Set(Address(0), Behaviour{Served: served})
	if got := look(t, f, Address(0)); got.leaf == nil || !got.leaf.Equal(served.Leaf()) {
		t.Error("another certificate was served")
	}
}

func TestThousandNodesServeTheirOwn(t *testing.T) {
	const nodes, clients = 1000, 16
	f := start(t)
	members := Populate(f, world, certs.Defects()[:1], nodes)
	queue := make(chan Member)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for m := range queue {
				got := look(t, f, m.IP)
				if !got.completed || got.leaf.Subject.CommonName != "system:node:"+m.Node.Name {
					t.Errorf("%s: %+v", m.Node.Name, got)
				}
			}
		})
	}
	for _, m := range members {
		queue <- m
	}
	close(queue)
	wg.Wait()
	if total := f.Total(); total.Handshakes != nodes || total.Connections != nodes || total.ApplicationBytes != 0 {
		t.Errorf("total %+v", total)
	}
}

func TestChangeWhileRunning(t *testing.T) {
	f := start(t)
	id := certs.Identity{NodeName: "a", IP: Address(0)}
	if got := look(t, f, id.IP); got.err == nil {
		t.Error("an unknown address answered")
	}
	for _, name := range []string{"bare-node-name", "good", "other-node"} {
		d := find(t, name)
		b := BehaviourOf(world, d, id)
		f.Set(id.IP, b)
		if got := look(t, f, id.IP); !got.completed || !got.leaf.Equal(b.Served.Leaf()) {
			t.Errorf("%s: not served after the change", name)
		}
	}

	f.Set(id.IP, Behaviour{Wire: certs.WireRefused})
	if got := f.PortOf(id.IP); got != f.RefusedPort() || got == f.Port() {
		t.Errorf("port %d of a node that refuses", got)
	}
	if got := look(t, f, id.IP); !errors.Is(got.err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want refused", got.err)
	}

	f.Remove(id.IP)
	if got := look(t, f, id.IP); got.err == nil || f.PortOf(id.IP) != f.Port() {
		t.Errorf("a removed node answered")
	}
	if got := f.Counts(id.IP).Handshakes; got != 3 {
		t.Errorf("%d handshakes are remembered, want 3", got)
	}
	if f.Total().Handshakes != 3 {
		t.Error("the total forgot a removed node")
	}
}

func TestRequestsAndCertificatesAreCounted(t *testing.T) {
	f := start(t)
	ip := Address(0)
	f.Set(ip, BehaviourOf(world, find(t, "good"), certs.Identity{NodeName: "a", IP: ip}))

	client := tls.Client(dial(t, f, ip), &tls.Config{
		InsecureSkipVerify: true, // what is served is not the question here
		Certificates:       []tls.Certificate{world.Victim.TLS()},
	})
	reader := bufio.NewReader(client)
	for path, want := range map[string]string{"/containerLogs/ns/pod/container?follow=true": logs, "/exec/ns/pod/c": "not found\n"} {
		if _, err := fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != want {
			t.Errorf("GET %s: %q, %v", path, body, err)
		}
	}
	_ = client.Close()

	got := settled(t, f, ip, 1)
	if got.Handshakes != 1 || got.Requests != 2 || got.ClientCertificates != 1 || got.ApplicationBytes < 100 || got.BytesRead <= got.ApplicationBytes {
		t.Errorf("counts %+v", got)
	}
}

func TestBytesThatAreNoRequestAreCounted(t *testing.T) {
	f := start(t)
	ip := Address(0)
	f.Set(ip, BehaviourOf(world, find(t, "good-tls12"), certs.Identity{NodeName: "a", IP: ip}))
	client := tls.Client(dial(t, f, ip), &tls.Config{InsecureSkipVerify: true}) // as above
	if _, err := io.WriteString(client, "x\r\n\r\nsome more"); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	if got := settled(t, f, ip, 1); got.ApplicationBytes != 14 || got.Requests != 0 || got.ClientCertificates != 0 {
		t.Errorf("counts %+v", got)
	}
}

func TestRequiredClientCertificate(t *testing.T) {
	f := start(t)
	ip := Address(0)
	f.Set(ip, BehaviourOf(world, find(t, "client-certificate-required"), certs.Identity{NodeName: "a", IP: ip}))
	if got := look(t, f, ip, world.Victim.TLS()); !got.completed {
		t.Errorf("with a certificate: %v", got.err)
	}
	if got := settled(t, f, ip, 1); got.ClientCertificates != 1 || got.Handshakes != 1 {
		t.Errorf("counts %+v", got)
	}
}

// TestCloseEndsWhatHangs leaves connections of every kind open; TestMain finds
// what stays.
func TestCloseEndsWhatHangs(t *testing.T) {
	f := start(t)
	defects := certs.Defects()
	for _, m := range Populate(f, world, defects, len(defects)) {
		if m.Defect.Wire != certs.WireRefused {
			dial(t, f, m.IP)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if open := f.Total().Open; open != 0 {
		t.Errorf("%d connections are open", open)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if got := look(t, f, Address(0)); !errors.Is(got.err, syscall.ECONNREFUSED) {
		t.Errorf("after close: %v", got.err)
	}
}

func TestConcurrentChanges(t *testing.T) {
	f := start(t)
	ip := Address(0)
	behaviours := []Behaviour{
		BehaviourOf(world, find(t, "good"), certs.Identity{NodeName: "a", IP: ip}),
		BehaviourOf(world, find(t, "stolen-close-tls13"), certs.Identity{NodeName: "a", IP: ip}),
		{Wire: certs.WireRefused},
	}
	var wg sync.WaitGroup
	for _, b := range behaviours {
		wg.Go(func() {
			for range 20 {
				f.Set(ip, b)
				look(t, f, ip)
				f.Remove(ip)
			}
		})
	}
	wg.Wait()
}

func TestBehaviourThatCannotBeIsRefused(t *testing.T) {
	f := start(t)
	for name, b := range map[string]Behaviour{
		"no certificate": {Wire: certs.WireWrongKey12},
		"no key":         {Served: certs.Served{Chain: world.Victim.Chain}},
		"no such wire":   {Wire: 200},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("did not panic")
				}
			}()
			f.Set(Address(0), b)
		})
	}
}

func dial(t *testing.T, f *Fleet, ip netip.Addr) net.Conn {
	t.Helper()
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", fmt.Sprintf("%s:%d", ip, f.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return raw
}

func find(t *testing.T, name string) certs.Defect {
	t.Helper()
	for _, d := range certs.Defects() {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no defect %s", name)
	return certs.Defect{}
}

// BenchmarkHandshake is client and server together.
func BenchmarkHandshake(b *testing.B) {
	f, err := Start()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	m := Populate(f, world, certs.Defects()[:1], 1)[0]
	for b.Loop() {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // as above
		client, err := dialer.DialContext(b.Context(), "tcp4", fmt.Sprintf("%s:%d", m.IP, f.Port()))
		if err != nil {
			b.Fatal(err)
		}
		_ = client.Close()
	}
}
