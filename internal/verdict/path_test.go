package verdict_test

import (
	"crypto/x509"
	"reflect"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// same as far as anybody is told: a known path may lead to an earlier next look.
func assertSame(t *testing.T, got, want verdict.Verdict) {
	t.Helper()
	got.Path, got.NextLook, want.Path, want.NextLook = nil, time.Time{}, nil, time.Time{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with a known path: %s %s: %s\nafresh: %s %s: %s", got.Status, got.Reason, got.Message, want.Status, want.Reason, want.Message)
	}
}

// A known path saves time, and changes no verdict: not at another time, not with
// another bundle, not with other certificates.
func TestAKnownPathChangesNoVerdict(t *testing.T) {
	other := certs.NewCA("kubernetes", now) // the name of the world's CA
	times := []time.Duration{0, -48 * time.Hour, 48 * time.Hour, 400 * 24 * time.Hour, 4000 * 24 * time.Hour, -4000 * 24 * time.Hour}
	others := verdict.Judge(expectation(), completed(t, world.CA.Issue(certs.Template(identity))), policy(), now).Path
	for _, d := range certs.Defects() {
		if d.Serve == nil || d.Unreadable {
			continue
		}
		obs := verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: parsed(d.Serve(world, identity))}
		paths := map[*verdict.Path]bool{others: true}
		for _, bundle := range []verdict.Bundle{bundleOf(world.CA), bundleOf(other), bundleOf(world.CA, other), {}} {
			for _, after := range times {
				fresh := verdict.Judge(expectation(), obs, verdict.Policy{Bundle: bundle}, now.Add(after))
				paths[fresh.Path] = true
				for known := range paths {
					assertSame(t, verdict.Judge(expectation(), obs, verdict.Policy{Bundle: bundle, Known: known}, now.Add(after)), fresh)
				}
			}
		}
	}
}

// At its very ends as well: the CA's, since the leaf's own are looked at anyway.
func TestAKnownPathEndsWithItsCA(t *testing.T) {
	obs := completed(t, world.CA.Issue(certs.Template(identity)))
	from, until := now.Add(-time.Minute).Truncate(time.Second), now.Add(time.Minute).Truncate(time.Second)
	short := *world.CA.Certificate // its signature is not looked at
	short.NotBefore, short.NotAfter = from, until
	bundle := verdict.Bundle{Roots: x509.NewCertPool(), Certificates: []*x509.Certificate{&short}, SHA256: "short"}
	bundle.Roots.AddCert(&short)
	known := verdict.Judge(expectation(), obs, verdict.Policy{Bundle: bundle}, now).Path
	if known == nil {
		t.Fatal("no path")
	}
	for at, want := range map[time.Time]verdict.Status{
		from.Add(-time.Nanosecond): verdict.False, from: verdict.True, until: verdict.True, until.Add(time.Nanosecond): verdict.False,
	} {
		fresh := verdict.Judge(expectation(), obs, verdict.Policy{Bundle: bundle}, at)
		if fresh.Status != want {
			t.Errorf("%s: %s, want %s", at, fresh.Status, want)
		}
		assertSame(t, verdict.Judge(expectation(), obs, verdict.Policy{Bundle: bundle, Known: known}, at), fresh)
	}
}

// That it saves anything shows where the CA's signature would be looked at: here
// it is broken after the first time.
func TestAKnownPathIsUsed(t *testing.T) {
	obs := completed(t, world.CA.Issue(certs.Template(identity)))
	p := policy()
	first := verdict.Judge(expectation(), obs, p, now)
	broken := *obs.Chain[0]
	broken.Signature = append([]byte(nil), broken.Signature...)
	broken.Signature[8] ^= 1
	obs.Chain = []*x509.Certificate{&broken}
	if v := verdict.Judge(expectation(), obs, p, now); v.Status != verdict.False {
		t.Fatalf("%s: %s", v.Status, v.Message)
	}
	p.Known = first.Path
	if v := verdict.Judge(expectation(), obs, p, now); v.Status != verdict.True {
		t.Errorf("%s: %s", v.Status, v.Message)
	}
	p.Bundle.SHA256 = ""
	if v := verdict.Judge(expectation(), obs, p, now); v.Status != verdict.False {
		t.Errorf("a bundle that does not say what it is: %s: %s", v.Status, v.Message)
	}
}
