package verdict_test

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
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
		b.SHA256 += fmt.Sprintf("%x", sha256.Sum256(ca.Certificate.Raw))
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
	return parsed(s)
}

func parsed(s certs.Served) []*x509.Certificate {
	var chain []*x509.Certificate
	for _, der := range s.Chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			panic(err)
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
	if v.Status != verdict.True && !strings.HasSuffix(v.Message, " See "+v.Reason.Page()) {
		t.Errorf("message %q does not end with its page", v.Message)
	}
	if verdict.WithoutPage(v.Message, v.Reason) == v.Message != (v.Status == verdict.True) {
		t.Errorf("message %q: the page cannot be taken off", v.Message)
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
	p.NewNodeGrace, exp.Created = 0, now.Add(5*time.Minute)
	if v = verdict.Judge(exp, obs, p, now); v.Status != verdict.False || !v.NextLook.IsZero() {
		t.Errorf("without a grace, by a clock that lags: %v, next look %v", v.Status, v.NextLook)
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

// caWith is an intermediate of the trusted CA that departs from a good one.
func caWith(change func(*x509.Certificate)) *certs.CA {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "sub"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	served := world.CA.Issue(template)
	return &certs.CA{Certificate: served.Leaf(), Key: served.Key}
}

// issuedBy has its times set: such a CA would date it by the wall clock.
func issuedBy(t *testing.T, ca *certs.CA, change func(*x509.Certificate)) verdict.Observation {
	t.Helper()
	template := certs.Template(identity)
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(2000*time.Hour)
	if change != nil {
		change(template)
	}
	return completed(t, ca.Issue(template).With(ca))
}

// Each case lets one rule decide, or shows that another does not.
func TestRulesOneByOne(t *testing.T) {
	const pass, fail, notRun = verdict.Pass, verdict.Fail, verdict.NotRun
	unknownCritical := pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}
	for name, c := range map[string]struct {
		obs     verdict.Observation
		status  verdict.Status
		reason  v1alpha1.Reason
		check   v1alpha1.CheckName
		result  verdict.Result
		message string // the check's
	}{
		"valid from this very second": {
			issuedBy(t, world.CA, func(c *x509.Certificate) { c.NotBefore = now }),
			verdict.True, v1alpha1.ReasonVerified, v1alpha1.CheckValidity, pass, "",
		},
		"valid until this very second": {
			issuedBy(t, world.CA, func(c *x509.Certificate) { c.NotAfter = now }),
			verdict.True, v1alpha1.ReasonVerified, v1alpha1.CheckValidity, pass, "",
		},
		"valid at no time": {
			issuedBy(t, world.CA, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(-time.Hour) }),
			verdict.False, v1alpha1.ReasonCertificateNotYetValid, v1alpha1.CheckChain, notRun, "",
		},
		"a critical extension comes first": {
			issuedBy(t, world.UnknownCA, func(c *x509.Certificate) {
				c.ExtraExtensions, c.NotAfter = []pkix.Extension{unknownCritical}, now.Add(-time.Minute)
			}),
			verdict.False, v1alpha1.ReasonCertificateInvalid, v1alpha1.CheckChain, fail, "critical extension 1.2.3 is not handled",
		},
		"expiry comes before the address": {
			issuedBy(t, world.CA, func(c *x509.Certificate) { c.IPAddresses, c.NotAfter = nil, now.Add(-time.Minute) }),
			verdict.False, v1alpha1.ReasonCertificateExpired, v1alpha1.CheckAddress, fail, `the certificate is for "n1", not "10.0.0.11"`,
		},
		"the address comes before the chain": {
			issuedBy(t, world.UnknownCA, func(c *x509.Certificate) { c.IPAddresses = nil }),
			verdict.False, v1alpha1.ReasonAddressMismatch, v1alpha1.CheckChain, fail, `no path from issuer "CN=another-cluster" to the trust bundle`,
		},
		"the chain comes before the common name": {
			issuedBy(t, world.UnknownCA, func(c *x509.Certificate) { c.Subject.CommonName = "n1" }),
			verdict.False, v1alpha1.ReasonUnknownAuthority, v1alpha1.CheckCommonName, fail, `the common name is "n1", not "system:node:n1"`,
		},
		"a CA that is not valid yet": {
			issuedBy(t, caWith(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }), nil),
			verdict.False, v1alpha1.ReasonCertificateNotYetValid, v1alpha1.CheckChain, fail, `the CA "CN=sub" is not yet valid`,
		},
		"a CA that has expired": {
			issuedBy(t, caWith(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }), nil),
			verdict.False, v1alpha1.ReasonCertificateExpired, v1alpha1.CheckChain, fail, `the CA "CN=sub" has expired`,
		},
		"a CA that is for clients": {
			issuedBy(t, caWith(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), nil),
			verdict.False, v1alpha1.ReasonKeyUsageMismatch, v1alpha1.CheckKeyUsage, fail,
			"the extended key usages of the issuing CA do not allow server authentication",
		},
		"for clients": {
			issuedBy(t, world.CA, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
			verdict.False, v1alpha1.ReasonKeyUsageMismatch, v1alpha1.CheckKeyUsage, fail, "the extended key usages lack server authentication",
		},
		"for clients, and of an unknown CA": {
			issuedBy(t, world.UnknownCA, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }),
			verdict.False, v1alpha1.ReasonUnknownAuthority, v1alpha1.CheckKeyUsage, fail, "the extended key usages lack server authentication",
		},
		"for something unknown, and of an unknown CA": {
			issuedBy(t, world.UnknownCA, func(c *x509.Certificate) {
				c.ExtKeyUsage, c.UnknownExtKeyUsage = nil, []asn1.ObjectIdentifier{{1, 2, 3}}
			}),
			verdict.False, v1alpha1.ReasonUnknownAuthority, v1alpha1.CheckKeyUsage, fail, "the extended key usages lack server authentication",
		},
		"for anything, and of an unknown CA": {
			issuedBy(t, world.UnknownCA, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }),
			verdict.False, v1alpha1.ReasonUnknownAuthority, v1alpha1.CheckKeyUsage, notRun, "",
		},
		"for anything": {
			issuedBy(t, world.CA, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }),
			verdict.True, v1alpha1.ReasonVerified, v1alpha1.CheckKeyUsage, pass, "",
		},
		"without extended key usages": {
			issuedBy(t, world.CA, func(c *x509.Certificate) { c.ExtKeyUsage = nil }),
			verdict.True, v1alpha1.ReasonVerified, v1alpha1.CheckKeyUsage, pass, "",
		},
		"a certificate that crypto/tls refuses": {
			verdict.Observation{Outcome: verdict.OutcomeBadCertificate, Detail: "tls: too large"},
			verdict.False, v1alpha1.ReasonCertificateInvalid, v1alpha1.CheckChain, fail, `Refused by crypto/tls: "tls: too large"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdict.Judge(expectation(), c.obs, policy(), now)
			if v.Status != c.status || v.Reason != c.reason {
				t.Errorf("got %v %s: %s", v.Status, v.Reason, v.Message)
			}
			if got := v.Check(c.check); got.Result != c.result || got.Message != c.message {
				t.Errorf("%s is %v, %q", c.check, got.Result, got.Message)
			}
			if n := strings.Count(v.Message, string(c.check)+": "); c.obs.Chain != nil && c.result == fail && n != 1 {
				t.Errorf("the message speaks %d times of %s: %q", n, c.check, v.Message)
			}
			if !strings.Contains(v.Message, c.message) {
				t.Errorf("the message does not say it: %q", v.Message)
			}
		})
	}
}

// What a smaller ClientHello got is told, and changes nothing.
func TestASmallerHelloIsNoEvidence(t *testing.T) {
	answered := completed(t, good(t, nil))
	v := verdict.Judge(expectation(), verdict.Observation{Outcome: verdict.OutcomeTimeout, Smaller: &answered}, policy(), now)
	if v.Status != verdict.Unknown || v.Reason != v1alpha1.ReasonProbeTimeout || v.Leaf != nil || v.Evidence() {
		t.Errorf("got %v %s", v.Status, v.Reason)
	}
	if !strings.Contains(v.Message, "by which it would be True Verified") || !strings.Contains(v.Message, "drops larger ones") {
		t.Errorf("%q", v.Message)
	}
	assertMessage(t, v)
}

func TestWordsWithoutAChain(t *testing.T) {
	notReady := expectation()
	notReady.NotReady = true
	for _, c := range []struct {
		exp  verdict.Expectation
		obs  verdict.Observation
		want string
	}{
		{expectation(), verdict.Observation{}, "Not probed yet"},
		{notReady, verdict.Observation{Outcome: verdict.OutcomeUnconnected}, "; the Node is not Ready either"},
		{notReady, verdict.Observation{Outcome: verdict.OutcomeClosed}, "; the Node is not Ready either"},
		{notReady, verdict.Observation{Outcome: verdict.OutcomeTimeout}, "; the Node is not Ready either"},
	} {
		if v := verdict.Judge(c.exp, c.obs, policy(), now); !strings.Contains(v.Message, c.want) {
			t.Errorf("%q lacks %q", v.Message, c.want)
		}
	}
}

func TestNextLookIsWhenTheChainsValidityChanges(t *testing.T) {
	short := caWith(func(c *x509.Certificate) { c.NotAfter = now.Add(time.Hour) })
	longer := caWith(func(c *x509.Certificate) { c.NotAfter = now.Add(2 * time.Hour) })
	twice := issuedBy(t, short, nil)
	// The same key under the same name with another end: two ways to the root.
	template := *longer.Certificate
	template.AuthorityKeyId, template.SubjectKeyId = nil, short.Certificate.SubjectKeyId
	renewed := world.CA.IssueFor(&template, short.Key.Public())
	twice.Chain = append(twice.Chain, chainOf(t, certs.Served{Chain: [][]byte{renewed}})...)
	for name, c := range map[string]struct {
		obs  verdict.Observation
		want time.Time
		then v1alpha1.Reason
	}{
		"the CA ends first":                {issuedBy(t, short, nil), now.Add(time.Hour + time.Nanosecond), v1alpha1.ReasonCertificateExpired},
		"the last of two ways ends":        {twice, now.Add(2*time.Hour + time.Nanosecond), v1alpha1.ReasonCertificateExpired},
		"a CA that is not valid yet is":    {issuedBy(t, caWith(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }), nil), now.Add(time.Minute), v1alpha1.ReasonVerified},
		"the leaf ends before its CA":      {issuedBy(t, longer, func(c *x509.Certificate) { c.NotAfter = now.Add(time.Minute) }), now.Add(time.Minute + time.Nanosecond), v1alpha1.ReasonCertificateExpired},
		"an unknown CA does not matter":    {issuedBy(t, world.UnknownCA, nil), now.Add(2000*time.Hour + time.Nanosecond), v1alpha1.ReasonCertificateExpired},
		"what has expired does not return": {issuedBy(t, world.CA, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }), time.Time{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdict.Judge(expectation(), c.obs, policy(), now)
			if !v.NextLook.Equal(c.want) {
				t.Fatalf("next look %s, want %s", v.NextLook.Sub(now), c.want.Sub(now))
			}
			if c.want.IsZero() {
				return
			}
			if before := verdict.Judge(expectation(), c.obs, policy(), v.NextLook.Add(-time.Nanosecond)); before.Reason != v.Reason {
				t.Errorf("%s just before the next look, %s now", before.Reason, v.Reason)
			}
			if then := verdict.Judge(expectation(), c.obs, policy(), v.NextLook); then.Reason != c.then {
				t.Errorf("%s at the next look, want %s", then.Reason, c.then)
			}
		})
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
