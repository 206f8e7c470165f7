package verdict_test

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// FuzzJudge feeds the judge any certificates: it never panics, and what is True
// is so by crypto/x509 and by the KEP's sentence too.
func FuzzJudge(f *testing.F) {
	for _, d := range certs.Defects() {
		if d.Serve == nil {
			continue
		}
		chain := append(d.Serve(world, identity).Chain, nil)
		f.Add(chain[0], chain[1], identity.NodeName, identity.IP.String(), int64(0), uint8(verdict.OutcomeCompleted), true)
		f.Add(chain[0], chain[1], identity.NodeName, identity.IP.String(), int64(1)<<40, uint8(verdict.OutcomeClosed), false)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, nodeName, host string, seconds int64, outcome uint8, proven bool) {
		at := now.Add(time.Duration(seconds) * time.Second)
		obs := verdict.Observation{Outcome: verdict.Outcome(outcome), KeyProven: proven, Detail: nodeName}
		for _, der := range [][]byte{first, second} {
			if c, err := x509.ParseCertificate(der); err == nil {
				obs.Chain = append(obs.Chain, c)
			}
		}
		exp := verdict.Expectation{NodeName: nodeName, Endpoint: verdict.Endpoint{AddressType: "InternalIP", Host: host, Port: 10250}}
		v := verdict.Judge(exp, obs, policy(), at)
		assertPrintable(t, v.Message)
		if len(v.Message) > 1024 || v.Message == "" {
			t.Errorf("a message of %d bytes", len(v.Message))
		}
		if v.Status != verdict.True && !strings.HasSuffix(v.Message, v.Reason.Page()) {
			t.Errorf("%q does not end with its page", v.Message)
		}
		if !v.NextLook.IsZero() && !v.NextLook.After(at) {
			t.Errorf("the next look is at %s, but now is %s", v.NextLook, at)
		}
		later, known := at.Add(time.Duration(seconds%1000)*time.Hour), policy()
		known.Known = v.Path
		assertSame(t, verdict.Judge(exp, obs, known, later), verdict.Judge(exp, obs, policy(), later))
		if v.Status == verdict.True {
			assertTrueForAGoodReason(t, exp, obs, at)
		}
	})
}

func assertTrueForAGoodReason(t *testing.T, exp verdict.Expectation, obs verdict.Observation, at time.Time) {
	t.Helper()
	leaf := obs.Chain[0]
	opts := x509.VerifyOptions{DNSName: exp.Endpoint.Host, Roots: policy().Bundle.Roots, CurrentTime: at, Intermediates: x509.NewCertPool()}
	for _, c := range obs.Chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(opts); err != nil {
		t.Errorf("True, but x509.Verify says %v", err)
	}
	if !obs.KeyProven || leaf.Subject.CommonName != "system:node:"+exp.NodeName || at.Before(leaf.NotBefore) || at.After(leaf.NotAfter) {
		t.Errorf("True, with key proven %t, common name %q, at %s", obs.KeyProven, leaf.Subject.CommonName, at)
	}
}

func assertPrintable(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		t.Errorf("not printable: %q", text)
	}
}

// FuzzQuote: whatever a peer sends can be shown to people.
func FuzzQuote(f *testing.F) {
	for _, text := range []string{"", "n1", "\x1b[2J", "\n", "\x00", "\xff", "\u202e", "\u2028", strings.Repeat("ä", 500), `"`, `\`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted := verdict.Quote(text)
		assertPrintable(t, quoted)
		if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' && !strings.HasSuffix(quoted, "...") {
			t.Errorf("not quoted: %q", quoted)
		}
		if inner := strings.ReplaceAll(strings.ReplaceAll(quoted, `\\`, ""), `\"`, ""); strings.Count(inner, `"`) > 2 {
			t.Errorf("it ends early: %q", quoted)
		}
	})
}
