package verdict_test

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

var (
	now      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	world    = certs.NewWorld(now)
	identity = certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("10.0.0.11")}
)

func bundleOf(cas ...*certs.CA) verdict.Bundle {
	b := verdict.Bundle{Roots: x509.NewCertPool(), Source: "test"}
	for _, ca := range cas {
		b.Roots.AddCert(ca.Certificate)
		b.Certificates = append(b.Certificates, ca.Certificate)
	}
	return b
}

func policy() verdict.Policy { return verdict.Policy{Bundle: bundleOf(world.CA)} }

func expectation() verdict.Expectation {
	return verdict.Expectation{
		NodeName: identity.NodeName,
		Endpoint: verdict.Endpoint{AddressType: "InternalIP", Host: identity.IP.String(), Port: 10250},
	}
}

func chainOf(t *testing.T, s certs.Served) []*x509.Certificate {
	t.Helper()
	var chain []*x509.Certificate
	for _, der := range s.Chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, c)
	}
	return chain
}

func completed(t *testing.T, s certs.Served) verdict.Observation {
	t.Helper()
	return verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: chainOf(t, s)}
}

func good(t *testing.T, change func(*x509.Certificate)) certs.Served {
	t.Helper()
	template := certs.Template(identity)
	if change != nil {
		change(template)
	}
	return world.CA.Issue(template)
}

func TestDefectsWithAChainAreJudgedAsTheTableSays(t *testing.T) {
	for _, d := range certs.Defects() {
		if d.Serve == nil || !d.Captured() {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			obs := completed(t, d.Serve(world, identity))
			if !d.KeyProven() {
				obs.KeyProven, obs.Outcome = false, verdict.OutcomeHandshakeFailed
				if d.Reason == v1alpha1.ReasonConnectionClosed {
					obs.Outcome = verdict.OutcomeClosed
				}
			}
			v := verdict.Judge(expectation(), obs, policy(), now)
			if v.Status.String() != d.Status || v.Reason != d.Reason {
				t.Errorf("got %v %s, want %s %s: %s", v.Status, v.Reason, d.Status, d.Reason, v.Message)
			}
			if obs.KeyProven {
				assertFails(t, v, d.Fails)
			}
			assertMessage(t, v)
		})
	}
}

func assertFails(t *testing.T, v verdict.Verdict, want []v1alpha1.CheckName) {
	t.Helper()
	var got []v1alpha1.CheckName
	for _, c := range v.Checks {
		if c.Result == verdict.Fail {
			got = append(got, c.Name)
			if !strings.Contains(v.Message, c.Message) || c.Message == "" {
				t.Errorf("the message lacks %s: %q", c.Name, v.Message)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("failing checks %v, want %v", got, want)
	}
}

func assertMessage(t *testing.T, v verdict.Verdict) {
	t.Helper()
	if v.Message == "" || len(v.Message) > 1024 || !utf8.ValidString(v.Message) {
		t.Errorf("message of %d bytes: %q", len(v.Message), v.Message)
	}
	if !strings.Contains(v.Message, v.Hint) {
		t.Errorf("message %q lacks hint %q", v.Message, v.Hint)
	}
}

// A verdict that is True must be one that crypto/x509 gives too.
func TestReasonIsWhatVerifyReports(t *testing.T) {
	for _, d := range certs.Defects() {
		if d.Serve == nil || !d.Captured() || !d.KeyProven() {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			obs := completed(t, d.Serve(world, identity))
			v := verdict.Judge(expectation(), obs, policy(), now)
			opts := x509.VerifyOptions{DNSName: identity.IP.String(), Roots: bundleOf(world.CA).Roots, CurrentTime: now, Intermediates: x509.NewCertPool()}
			for _, c := range obs.Chain[1:] {
				opts.Intermediates.AddCert(c)
			}
			_, err := obs.Chain[0].Verify(opts)
			acceptedToday := v.Group() == verdict.GroupVerified || v.Group() == verdict.GroupBreaksWhenEnabled
			if acceptedToday != (err == nil) {
				t.Errorf("verdict %s, but x509.Verify says %v", v.Reason, err)
			}
		})
	}
}

func TestOutcomesWithoutAChain(t *testing.T) {
	for outcome, want := range map[verdict.Outcome]struct {
		status verdict.Status
		reason v1alpha1.Reason
	}{
		verdict.OutcomeNone:              {verdict.Unknown, v1alpha1.ReasonNotProbedYet},
		verdict.OutcomeCompleted:         {verdict.Unknown, v1alpha1.ReasonNotProbedYet},
		verdict.OutcomeAddressNotAllowed: {verdict.Unknown, v1alpha1.ReasonAddressNotAllowed},
		verdict.OutcomeUnresolved:        {verdict.Unknown, v1alpha1.ReasonNameResolutionFailed},
		verdict.OutcomeUnconnected:       {verdict.Unknown, v1alpha1.ReasonConnectionFailed},
		verdict.OutcomeClosed:            {verdict.Unknown, v1alpha1.ReasonConnectionClosed},
		verdict.OutcomeTimeout:           {verdict.Unknown, v1alpha1.ReasonProbeTimeout},
		verdict.OutcomeNotTLS:            {verdict.False, v1alpha1.ReasonNotTLS},
		verdict.OutcomeInternalError:     {verdict.False, v1alpha1.ReasonNoServingCertificate},
		verdict.OutcomeHandshakeFailed:   {verdict.False, v1alpha1.ReasonHandshakeFailed},
		verdict.OutcomeBadCertificate:    {verdict.False, v1alpha1.ReasonCertificateInvalid},
		verdict.Outcome(99):              {verdict.Unknown, v1alpha1.ReasonNotProbedYet},
	} {
		v := verdict.Judge(expectation(), verdict.Observation{Outcome: outcome}, policy(), now)
		if v.Status != want.status || v.Reason != want.reason {
			t.Errorf("%v: got %v %s, want %v %s", outcome, v.Status, v.Reason, want.status, want.reason)
		}
		assertMessage(t, v)
	}
}

func TestWithoutATrustBundle(t *testing.T) {
	none := verdict.Policy{}
	for name, c := range map[string]struct {
		obs    verdict.Observation
		status verdict.Status
		reason v1alpha1.Reason
	}{
		"nothing was probed":                 {verdict.Observation{}, verdict.Unknown, v1alpha1.ReasonNoTrustBundle},
		"a good certificate is no pass":      {completed(t, good(t, nil)), verdict.Unknown, v1alpha1.ReasonNoTrustBundle},
		"a wrong name is no mismatch either": {completed(t, good(t, func(c *x509.Certificate) { c.Subject.CommonName = "n1" })), verdict.Unknown, v1alpha1.ReasonNoTrustBundle},
		"an expired one is refused by any CA": {
			completed(t, good(t, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) })), verdict.False, v1alpha1.ReasonCertificateExpired,
		},
		"plain HTTP is refused by any CA": {verdict.Observation{Outcome: verdict.OutcomeNotTLS}, verdict.False, v1alpha1.ReasonNotTLS},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdict.Judge(expectation(), c.obs, none, now)
			if v.Status != c.status || v.Reason != c.reason {
				t.Errorf("got %v %s: %s", v.Status, v.Reason, v.Message)
			}
			if v.Check(v1alpha1.CheckChain).Result != verdict.NotRun {
				t.Errorf("Chain is %v", v.Check(v1alpha1.CheckChain).Result)
			}
		})
	}
	if !(verdict.Bundle{Roots: x509.NewCertPool()}).Empty() {
		t.Error("a pool without certificates is no bundle")
	}
}

func TestNoAddressComesBeforeAnyObservation(t *testing.T) {
	exp := verdict.Expectation{NodeName: "n1"}
	if v := verdict.Judge(exp, completed(t, good(t, nil)), policy(), now); v.Status != verdict.Unknown || v.Reason != v1alpha1.ReasonNoAddress {
		t.Errorf("got %v %s", v.Status, v.Reason)
	}
}

// The key is what makes a certificate the peer's own.
func TestAnUnprovenChainIsNeverTrue(t *testing.T) {
	bad := completed(t, world.UnknownCA.Issue(certs.Template(identity)))
	bare := completed(t, good(t, func(c *x509.Certificate) { c.Subject.CommonName = "n1" }))
	for name, c := range map[string]struct {
		obs     verdict.Observation
		outcome verdict.Outcome
		proven  bool
		status  verdict.Status
		reason  v1alpha1.Reason
	}{
		"wrong signature":                           {completed(t, good(t, nil)), verdict.OutcomeHandshakeFailed, false, verdict.False, v1alpha1.ReasonHandshakeFailed},
		"alert internal_error":                      {completed(t, good(t, nil)), verdict.OutcomeInternalError, false, verdict.False, v1alpha1.ReasonHandshakeFailed},
		"closed":                                    {completed(t, good(t, nil)), verdict.OutcomeClosed, false, verdict.Unknown, v1alpha1.ReasonConnectionClosed},
		"silent":                                    {completed(t, good(t, nil)), verdict.OutcomeTimeout, false, verdict.Unknown, v1alpha1.ReasonProbeTimeout},
		"silent after the proof":                    {completed(t, good(t, nil)), verdict.OutcomeTimeout, true, verdict.Unknown, v1alpha1.ReasonProbeTimeout},
		"refused chain, wrong signature":            {bad, verdict.OutcomeHandshakeFailed, false, verdict.False, v1alpha1.ReasonUnknownAuthority},
		"refused chain, closed":                     {bad, verdict.OutcomeClosed, false, verdict.False, v1alpha1.ReasonUnknownAuthority},
		"wrong name, wrong signature":               {bare, verdict.OutcomeHandshakeFailed, false, verdict.False, v1alpha1.ReasonHandshakeFailed},
		"wrong name, closed":                        {bare, verdict.OutcomeClosed, false, verdict.Unknown, v1alpha1.ReasonConnectionClosed},
		"our certificate missing, after the proof":  {completed(t, good(t, nil)), verdict.OutcomeHandshakeFailed, true, verdict.True, v1alpha1.ReasonVerified},
		"closed for want of ours, after the proof":  {completed(t, good(t, nil)), verdict.OutcomeClosed, true, verdict.True, v1alpha1.ReasonVerified},
		"wrong name and certificate of ours wanted": {bare, verdict.OutcomeHandshakeFailed, true, verdict.False, v1alpha1.ReasonCommonNameMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			c.obs.Outcome, c.obs.KeyProven = c.outcome, c.proven
			v := verdict.Judge(expectation(), c.obs, policy(), now)
			if v.Status != c.status || v.Reason != c.reason {
				t.Errorf("got %v %s: %s", v.Status, v.Reason, v.Message)
			}
			for _, check := range v.Checks {
				if check.Result == verdict.Pass && v.Status == verdict.Unknown {
					t.Errorf("%s passes on a certificate that may be anybody's", check.Name)
				}
			}
		})
	}
}

func TestNoCertificateYetIsUnknownWhileTheNodeIsYoung(t *testing.T) {
	p := policy()
	p.NewNodeGrace = 5 * time.Minute
	exp := expectation()
	exp.Created = now.Add(-4 * time.Minute)
	obs := verdict.Observation{Outcome: verdict.OutcomeInternalError}
	v := verdict.Judge(exp, obs, p, now)
	if v.Status != verdict.Unknown || v.Reason != v1alpha1.ReasonNoServingCertificate || !v.NextLook.Equal(now.Add(time.Minute)) {
		t.Errorf("young: %v %s, next look %v", v.Status, v.Reason, v.NextLook)
	}
	if v = verdict.Judge(exp, obs, p, v.NextLook); v.Status != verdict.False || !v.NextLook.IsZero() {
		t.Errorf("at the end of the grace: %v", v.Status)
	}
}

func TestNextLookIsWhenValidityEnds(t *testing.T) {
	obs := completed(t, good(t, func(c *x509.Certificate) { c.NotAfter = now.Add(time.Hour) }))
	v := verdict.Judge(expectation(), obs, policy(), now)
	if !v.NextLook.After(now.Add(time.Hour)) || v.NextLook.After(now.Add(time.Hour+time.Second)) {
		t.Fatalf("next look %v", v.NextLook)
	}
	if before := verdict.Judge(expectation(), obs, policy(), now.Add(time.Hour)); before.Status != verdict.True {
		t.Errorf("NotAfter itself is still valid, got %s", before.Reason)
	}
	if then := verdict.Judge(expectation(), obs, policy(), v.NextLook); then.Reason != v1alpha1.ReasonCertificateExpired {
		t.Errorf("got %s at the next look", then.Reason)
	}

	obs = completed(t, good(t, func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }))
	if v := verdict.Judge(expectation(), obs, policy(), now); !v.NextLook.Equal(now.Add(time.Minute)) {
		t.Errorf("not yet valid: next look %v", v.NextLook)
	}
}

func TestHostileNamesAreQuotedAndBounded(t *testing.T) {
	evil := "\x1b[2J\n\u202e" + strings.Repeat("ä", 5000) + "\xff"
	obs := completed(t, good(t, nil))
	leaf := *obs.Chain[0]
	leaf.Subject.CommonName = evil
	leaf.DNSNames = slices.Repeat([]string{evil}, 1000)
	leaf.IPAddresses = nil
	obs.Chain[0] = &leaf
	v := verdict.Judge(expectation(), obs, policy(), now)
	assertMessage(t, v)
	for _, r := range v.Message {
		if r < ' ' || r == '\u202e' || r == utf8.RuneError {
			t.Errorf("raw %U in %q", r, v.Message)
		}
	}
}

func TestEveryReasonIsProduced(t *testing.T) {
	seen := map[v1alpha1.Reason]bool{v1alpha1.ReasonNoAddress: true, v1alpha1.ReasonNoTrustBundle: true}
	for _, d := range certs.Defects() {
		seen[d.Reason] = true
	}
	for o := verdict.OutcomeNone; o <= verdict.OutcomeBadCertificate; o++ {
		seen[verdict.Judge(expectation(), verdict.Observation{Outcome: o}, policy(), now).Reason] = true
	}
	for _, r := range v1alpha1.Reasons() {
		if !seen[r] {
			t.Errorf("nothing yields %s", r)
		}
	}
}

func TestHints(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*x509.Certificate)
		want   string
	}{
		"bare":          {func(c *x509.Certificate) { c.Subject.CommonName = "n1" }, "k3s"},
		"case":          {func(c *x509.Certificate) { c.Subject.CommonName = "system:node:N1" }, "case only"},
		"empty":         {func(c *x509.Certificate) { c.Subject.CommonName = "" }, "no common name"},
		"other node":    {func(c *x509.Certificate) { c.Subject.CommonName = "system:node:n2" }, `another node, "n2"`},
		"no IP SAN":     {func(c *x509.Certificate) { c.IPAddresses = nil }, "no IP SANs"},
		"IP as DNS SAN": {func(c *x509.Certificate) { c.IPAddresses = nil; c.DNSNames = []string{"10.0.0.11"} }, "DNS SAN"},
	} {
		if v := verdict.Judge(expectation(), completed(t, good(t, c.change)), policy(), now); !strings.Contains(v.Hint, c.want) {
			t.Errorf("%s: hint %q lacks %q", name, v.Hint, c.want)
		}
	}
}
