package report_test

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// hostileCluster says the words wherever a peer or a Node has a say.
func hostileCluster(words string) *cluster {
	c := newCluster()
	c.world.CA = certs.NewCA(words, now)
	for _, name := range []string{"x" + words, "y" + words} {
		c.add(name, func(t *x509.Certificate) {
			t.Subject.CommonName, t.Subject.Organization, t.DNSNames = "cn"+words, []string{words}, dnsNames(words)
		})
	}
	c.add("z"+words, func(t *x509.Certificate) { t.Subject.CommonName, t.DNSNames = "system:node:x"+words, nil })
	for i := range c.nodes { // an address of its own, too
		address := &c.nodes[i].Status.Addresses[1].Address
		before := *address
		*address += words
		c.shows[*address] = c.shows[before]
	}
	c.add("w"+words, func(t *x509.Certificate) { t.DNSNames = nil })
	c.shows["10.0.0.4"] = verdict.Observation{Outcome: verdict.OutcomeNotTLS, Detail: words}
	return c.with(func(o *audit.Options) {
		o.Selector, o.Policy.Bundle.Source = "role="+words, "configmap "+words
	})
}

// dnsNames are ASCII, or the certificate cannot be made.
func dnsNames(words string) []string {
	if strings.ContainsFunc(words, func(r rune) bool { return r > unicode.MaxASCII }) {
		return nil
	}
	return []string{words}
}

func raw(r rune) bool     { return r != '\n' && !unicode.IsPrint(r) }
func raw16(r rune) bool   { return r <= 0xFFFF && raw(r) }
func control(r rune) bool { return r != '\n' && unicode.IsControl(r) }

func TestHostileWordsNeverReachTheTerminal(t *testing.T) {
	benign := hostileCluster("benign")
	for name, words := range map[string]string{
		"an escape sequence":      "\x1b[2J\x1b]0;title\a",
		"an escape of eight bits": "\u009b2J",
		"lines":                   "\nREADY: all is well\n",
		"a carriage return":       "\rREADY",
		"cells":                   "\tTrue\tVerified\v\f",
		"the other way round":     "\u202eYDAER\u2066",
		"line separators":         "\u2028\u2029\u0085",
		"nothing visible":         "\u200b\ufeff\u00ad\x00\x7f\uffff\U000e0041",
	} {
		t.Run(name, func(t *testing.T) {
			r := hostileCluster(words).run()
			for _, format := range []report.Format{report.Table, report.Wide} {
				got := render(t, r, format)
				if i := strings.IndexFunc(got, raw); i >= 0 {
					t.Errorf("%s: raw at %q", format, got[max(0, i-20):min(len(got), i+20)])
				}
				if lines, want := strings.Count(got, "\n"), strings.Count(render(t, benign.run(), format), "\n"); lines != want {
					t.Errorf("%s: %d lines, want %d:\n%s", format, lines, want, got)
				}
			}
			// Whatever reads these must not obey either; their own lines are many.
			for _, format := range []report.Format{report.HTML, report.JUnit} {
				if got := render(t, r, format); strings.ContainsFunc(got, raw16) {
					i := strings.IndexFunc(got, raw16)
					t.Errorf("%s: raw at %q", format, got[max(0, i-20):min(len(got), i+20)])
				}
			}
			// Data keep what was said, but escaped. YAML has no escapes outside
			// quotes, and escapes what a terminal obeys.
			for format, bad := range map[report.Format]func(rune) bool{report.JSON: raw16, report.YAML: control} {
				got := render(t, r, format)
				if i := strings.IndexFunc(got, bad); i >= 0 {
					t.Errorf("%s: raw at %q", format, got[max(0, i-20):min(len(got), i+20)])
				}
			}
			text := decode(t, []byte(render(t, r, report.JSON))).(map[string]any)
			if text["selector"] != "role="+words {
				t.Errorf("the JSON says %q, want %q", text["selector"], "role="+words)
			}
		})
	}
}

// The table must not show one node as two, whatever a finding quotes.
func TestHostileClusterHasEveryColumn(t *testing.T) {
	for _, format := range []report.Format{report.Table, report.Wide} {
		got := render(t, hostileCluster("\x1b[2J\n\t").run(), format)
		for _, want := range []string{`cn\x1b[2J\n\t`, `10.0.0.1\x1b[2J\n\t`, `"x\x1b[2J\n\t"`, `role=\x1b[2J\n\t`, `configmap \x1b[2J\n\t`, "Finding " + audit.FindingOtherIdentity} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %s:\n%s", format, want, got)
			}
		}
	}
}

func TestPlainWordsAreNotQuoted(t *testing.T) {
	got := render(t, newCluster().add("knöchel-1", func(t *x509.Certificate) { t.DNSNames = nil }).run(), report.Table)
	if !slices.ContainsFunc(strings.Split(got, "\n"), func(line string) bool { return strings.HasPrefix(line, "knöchel-1 ") }) {
		t.Error(got)
	}
}
