package probe_test

import (
	"context"
	"crypto/tls"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startFleet(t *testing.T) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Start()
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

func endpointOf(f *fleet.Fleet, ip netip.Addr) verdict.Endpoint {
	return verdict.Endpoint{AddressType: "InternalIP", Host: ip.String(), Port: f.PortOf(ip)}
}

func TestOutcomeOfEachWire(t *testing.T) {
	f, world := startFleet(t), certs.NewWorld(time.Now())
	want := map[certs.Wire]verdict.Outcome{
		certs.WireTLS: verdict.OutcomeCompleted, certs.WireTLS12: verdict.OutcomeCompleted, certs.WireSlow: verdict.OutcomeCompleted,
		certs.WireTLS11: verdict.OutcomeHandshakeFailed, certs.WireNoCertificate: verdict.OutcomeInternalError,
		certs.WirePlainHTTP: verdict.OutcomeNotTLS, certs.WireRefused: verdict.OutcomeUnconnected, certs.WireSilent: verdict.OutcomeTimeout,
		certs.WireCloseAfterHello: verdict.OutcomeClosed, certs.WireReset: verdict.OutcomeClosed,
		certs.WireWrongKey12: verdict.OutcomeHandshakeFailed, certs.WireWrongKey13: verdict.OutcomeHandshakeFailed,
		certs.WireAlertAfterCertificate12: verdict.OutcomeHandshakeFailed, certs.WireAlertAfterCertificate13: verdict.OutcomeInternalError,
		certs.WireCloseAfterCertificate12: verdict.OutcomeClosed, certs.WireCloseAfterCertificate13: verdict.OutcomeClosed,
		certs.WireTLSRequireClientCert12: verdict.OutcomeHandshakeFailed, certs.WireDropsLargeHello: verdict.OutcomeTimeout,
	}
	prober := &probe.Prober{AllowLocalAddresses: true}
	for i, m := range fleet.Populate(f, world, certs.Defects(), len(certs.Defects())) {
		t.Run(m.Defect.Name, func(t *testing.T) {
			timeout := 10 * time.Second
			if expected := want[m.Defect.Wire]; expected == verdict.OutcomeTimeout {
				timeout = 100 * time.Millisecond
			}
			obs, err := prober.Probe(t.Context(), endpointOf(f, m.IP), timeout)
			if err != nil {
				t.Fatal(i, err)
			}
			expected := want[m.Defect.Wire]
			if m.Defect.Unreadable {
				expected = verdict.OutcomeBadCertificate
			}
			if obs.Outcome != expected {
				t.Errorf("outcome %v (%s), want %v", obs.Outcome, obs.Detail, expected)
			}
			if got := len(obs.Chain) > 0; got != m.Defect.Captured() {
				t.Errorf("captured a chain: %v, want %v", got, m.Defect.Captured())
			}
			if m.Defect.Captured() && obs.KeyProven != m.Defect.KeyProven() {
				t.Errorf("key proven: %v, want %v", obs.KeyProven, m.Defect.KeyProven())
			}
			if obs.Duration <= 0 {
				t.Error("no duration")
			}
		})
	}
	if c := f.Total(); c.Requests+c.ApplicationBytes+c.ClientCertificates != 0 {
		t.Errorf("a probe sent more than a handshake: %+v", c)
	}
}

func TestDetailIsTheSameFromProbeToProbe(t *testing.T) {
	f, world := startFleet(t), certs.NewWorld(time.Now())
	prober := &probe.Prober{AllowLocalAddresses: true}
	for _, m := range fleet.Populate(f, world, certs.Defects(), len(certs.Defects())) {
		details := map[string]bool{}
		for range 3 {
			timeout := time.Minute
			if m.Defect.Reason == v1alpha1.ReasonProbeTimeout {
				timeout = 50 * time.Millisecond
			}
			obs, err := prober.Probe(t.Context(), endpointOf(f, m.IP), timeout)
			if err != nil {
				t.Fatal(err)
			}
			details[obs.Detail] = true
		}
		if len(details) != 1 {
			t.Errorf("%s: details %v", m.Defect.Name, details)
		}
	}
}

// A path that drops large ClientHellos is told from a kubelet that is silent,
// and the handshake that came through is no evidence.
func TestASmallerClientHelloIsTriedOnce(t *testing.T) {
	f, world := startFleet(t), certs.NewWorld(time.Now())
	good := func(ip netip.Addr) certs.Served {
		return world.CA.Issue(certs.Template(certs.Identity{NodeName: "n1", IP: ip}))
	}
	for i, c := range []struct {
		wire        certs.Wire
		outcome     verdict.Outcome
		smaller     verdict.Outcome
		connections int64
	}{
		{certs.WireDropsLargeHello, verdict.OutcomeTimeout, verdict.OutcomeCompleted, 2},
		{certs.WireSilent, verdict.OutcomeTimeout, verdict.OutcomeNone, 2},
		{certs.WireTLS, verdict.OutcomeCompleted, verdict.OutcomeNone, 1},
		{certs.WireReset, verdict.OutcomeClosed, verdict.OutcomeNone, 1},
	} {
		t.Run(c.wire.String(), func(t *testing.T) {
			ip := fleet.Address(i)
			f.Set(ip, fleet.Behaviour{Wire: c.wire, Served: good(ip)})
			timeout := 700 * time.Millisecond
			if c.outcome != verdict.OutcomeTimeout {
				timeout = time.Minute
			}
			obs, err := (&probe.Prober{AllowLocalAddresses: true}).Probe(t.Context(), endpointOf(f, ip), timeout)
			if err != nil || obs.Outcome != c.outcome || len(obs.Chain) > 0 != (c.outcome == verdict.OutcomeCompleted) {
				t.Errorf("%v with %d certificates, %v", obs.Outcome, len(obs.Chain), err)
			}
			switch {
			case (obs.Smaller == nil) != (c.smaller == verdict.OutcomeNone):
				t.Errorf("the smaller one: %+v", obs.Smaller)
			case obs.Smaller != nil && (obs.Smaller.Outcome != c.smaller || !obs.Smaller.KeyProven || len(obs.Smaller.Chain) != 1):
				t.Errorf("the smaller one: %+v", obs.Smaller)
			}
			if got := f.Counts(ip).Connections; got != c.connections {
				t.Errorf("%d connections, want %d", got, c.connections)
			}
		})
	}
}

// The server name is the host dialled, and none for an address; a server that
// asks for no client certificate proves its key by finishing.
func TestWhatAServerSees(t *testing.T) {
	f, world := startFleet(t), certs.NewWorld(time.Now())
	ip := netip.MustParseAddr("127.0.0.1")
	seen := make(chan *tls.ClientHelloInfo, 10)
	f.Set(ip, fleet.Behaviour{
		Served: world.CA.Issue(certs.Template(certs.Identity{NodeName: "n1", IP: ip})),
		Configure: func(c *tls.Config) {
			c.ClientAuth = tls.NoClientCert
			c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				seen <- hello
				return nil, nil
			}
		},
	})
	for host, want := range map[string]string{"127.0.0.1": "", "localhost": "localhost"} {
		obs, err := (&probe.Prober{AllowLocalAddresses: true}).Probe(t.Context(), verdict.Endpoint{Host: host, Port: f.Port()}, 10*time.Second)
		if err != nil || obs.Outcome != verdict.OutcomeCompleted || !obs.KeyProven {
			t.Errorf("%s: %+v, %v", host, obs, err)
			continue
		}
		hello := <-seen
		if hello.ServerName != want || len(hello.SupportedProtos) > 0 || slices.Min(hello.SupportedVersions) != tls.VersionTLS12 {
			t.Errorf("%s: server name %q, protocols %q, versions %x", host, hello.ServerName, hello.SupportedProtos, hello.SupportedVersions)
		}
	}
}

func TestLocalAddressesAreNotDialled(t *testing.T) {
	f, world := startFleet(t), certs.NewWorld(time.Now())
	ip := fleet.Address(0)
	f.Set(ip, fleet.Behaviour{Wire: certs.WireTLS, Served: world.CA.Issue(certs.Template(certs.Identity{NodeName: "n1", IP: ip}))})
	for _, host := range []string{
		ip.String(), "::1", "::ffff:127.0.0.1", "169.254.1.1", "fe80::1", "224.0.0.1", "ff02::1", "0.0.0.0", "::", "localhost",
	} {
		obs, err := (&probe.Prober{}).Probe(t.Context(), verdict.Endpoint{Host: host, Port: f.Port()}, time.Second)
		if err != nil || obs.Outcome != verdict.OutcomeAddressNotAllowed {
			t.Errorf("%s: %v, %v", host, obs.Outcome, err)
		}
	}
	if c := f.Total(); c.Connections != 0 {
		t.Errorf("%d connections", c.Connections)
	}
}

func TestAnAbortedProbeIsAnErrorAndNoObservation(t *testing.T) {
	f := startFleet(t)
	ip := fleet.Address(0)
	f.Set(ip, fleet.Behaviour{Wire: certs.WireSilent})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for f.Counts(ip).Connections == 0 {
			if ctx.Err() != nil {
				return
			}
		}
		cancel()
	}()
	obs, err := (&probe.Prober{AllowLocalAddresses: true}).Probe(ctx, endpointOf(f, ip), time.Minute)
	if err == nil || obs.Outcome != verdict.OutcomeNone {
		t.Errorf("%v, %v", obs.Outcome, err)
	}
}

func TestNamesThatDoNotResolve(t *testing.T) {
	for _, host := range []string{"no-such-host.invalid", "with space", "", strings300} {
		obs, err := (&probe.Prober{}).Probe(t.Context(), verdict.Endpoint{Host: host, Port: 10250}, 5*time.Second)
		if err != nil || obs.Outcome == verdict.OutcomeCompleted || obs.Outcome == verdict.OutcomeNone {
			t.Errorf("%q: %v, %v", host, obs.Outcome, err)
		}
	}
}

var strings300 = string(make([]byte, 300))
