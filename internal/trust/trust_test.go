package trust_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

var (
	now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	world = certs.NewWorld(now)
)

func block(kind string, headers map[string]string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Headers: headers, Bytes: content})
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// hostileBlock has a type that repaints a terminal.
func hostileBlock() []byte {
	return []byte("-----BEGIN \x1b[2J\u202e-----\nAAAA\n-----END \x1b[2J\u202e-----\n")
}

// hostileCertificate does not parse, for a reason that quotes the words in it.
func hostileCertificate(words string) []byte {
	template := certs.Template(certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("10.0.0.1")})
	template.URIs = []*url.URL{{Scheme: "http", Opaque: "//\x1b" + words}}
	return block("CERTIFICATE", nil, world.CA.Issue(template).Chain[0])
}

// anchor is a certificate of the world's CA, as it may stand in a bundle.
func anchor(change func(*x509.Certificate)) *certs.CA {
	template := certs.Template(certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("10.0.0.1")})
	change(template)
	served := world.CA.Issue(template)
	return &certs.CA{Certificate: served.Leaf(), Key: served.Key}
}

// assertWarnings: one for each text, which it holds.
func assertWarnings(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("warnings %q, want %q", got, want)
	}
	for i, w := range got {
		if !strings.Contains(w, want[i]) {
			t.Errorf("warning %q, want %q", w, want[i])
		}
		assertPrintable(t, w)
	}
}

func TestParse(t *testing.T) {
	one, two := world.CA.PEM(), world.UnknownCA.PEM()
	garbage := block("CERTIFICATE", nil, []byte("not a certificate"))
	key := block("PRIVATE KEY", nil, []byte("secret"))
	leaf := anchor(func(*x509.Certificate) {})
	noSigning := anchor(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageDigitalSignature })
	for name, c := range map[string]struct {
		text     []byte
		want     []*certs.CA
		warnings []string // what each one says, in order
		err      string   // what the error says; empty: none
	}{
		"one certificate":                {text: one, want: []*certs.CA{world.CA}},
		"several, in their order":        {text: join(two, one), want: []*certs.CA{world.UnknownCA, world.CA}},
		"two of one name, different key": {text: join(one, world.TwinCA.PEM()), want: []*certs.CA{world.CA, world.TwinCA}},
		"a duplicate counts once":        {text: join(one, two, one), want: []*certs.CA{world.CA, world.UnknownCA}},
		"comments around blocks":         {text: join([]byte("# the CA\n"), one, []byte("\n# the end")), want: []*certs.CA{world.CA}},
		"an unparsable block is skipped": {
			text: join(garbage, one), want: []*certs.CA{world.CA}, warnings: []string{"block 1 could not be parsed"},
		},
		"a block of another type is skipped": {
			text: join(one, key, two), want: []*certs.CA{world.CA, world.UnknownCA}, warnings: []string{`block 2 ("PRIVATE KEY")`},
		},
		"OpenSSL's own type is another type": {
			text: join(block("TRUSTED CERTIFICATE", nil, world.CA.Certificate.Raw), two),
			want: []*certs.CA{world.UnknownCA}, warnings: []string{`block 1 ("TRUSTED CERTIFICATE")`},
		},
		"a block with PEM headers is skipped": {
			text: join(block("CERTIFICATE", map[string]string{"a": "b"}, world.CA.Certificate.Raw), two),
			want: []*certs.CA{world.UnknownCA}, warnings: []string{"block 1"},
		},
		"an anchor that is a leaf": {
			text: join(leaf.PEM(), one), want: []*certs.CA{leaf, world.CA},
			warnings: []string{`block 1, "CN=system:node:n1,O=system:nodes", is no CA that may sign certificates`},
		},
		"a CA whose key usage lacks signing": {
			text: noSigning.PEM(), want: []*certs.CA{noSigning}, warnings: []string{"block 1, "},
		},
		"hostile bytes": {
			text: join(hostileBlock(), hostileCertificate("[2J"), one), want: []*certs.CA{world.CA},
			warnings: []string{`\x1b[2J\u202e`, "block 2 could not be parsed"},
		},
		"no text":                {text: nil, err: "empty"},
		"no PEM":                 {text: []byte("hello\n"), err: "no PEM block"},
		"a cut PEM block":        {text: one[:len(one)/2], err: "no PEM block"},
		"a private key alone":    {text: key, err: `"PRIVATE KEY"`, warnings: []string{"block 1"}},
		"nothing that parses":    {text: join(garbage, garbage), err: "none of its certificates", warnings: []string{"block 1", "block 2"}},
		"a hostile block, alone": {text: hostileBlock(), err: `\x1b[2J`, warnings: []string{"block 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trust.Parse("here", c.text)
			if got.Source != "here" {
				t.Errorf("source %q", got.Source)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			var want []*x509.Certificate
			for _, ca := range c.want {
				want = append(want, ca.Certificate)
			}
			if !slices.EqualFunc(got.Certificates, want, (*x509.Certificate).Equal) {
				t.Errorf("%d certificates, want %d", len(got.Certificates), len(want))
			}
			if told := strings.Count(strings.Join(got.Warnings, "\n"), " was skipped"); got.Skipped != told {
				t.Errorf("%d skipped, but the warnings tell of %d", got.Skipped, told)
			}
			assertWarnings(t, got.Warnings, c.warnings)
			if err != nil {
				assertPrintable(t, err.Error())
			}

			// kube-apiserver reads the file so.
			theirs := x509.NewCertPool()
			if some := theirs.AppendCertsFromPEM(c.text); some == got.Empty() {
				t.Errorf("crypto/x509 finds a certificate: %v; here the bundle is empty: %v", some, got.Empty())
			}
			if !got.Empty() && !got.Roots.Equal(theirs) {
				t.Error("the pool is not the one that crypto/x509 makes")
			}
		})
	}
}

func assertPrintable(t *testing.T, s string) {
	t.Helper()
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("raw bytes of the input: %q", s)
	}
	if len(s) > 1000 {
		t.Errorf("%d bytes", len(s))
	}
}

func TestWarningsAreBounded(t *testing.T) {
	long := strings.Repeat("X", 10_000)
	got, err := trust.Parse("here", join(block(long, nil, []byte("x")), hostileCertificate(long)))
	if err == nil || len(got.Warnings) != 2 {
		t.Fatalf("%d warnings, error %v", len(got.Warnings), err)
	}
	for _, words := range append(got.Warnings, err.Error()) {
		assertPrintable(t, words)
	}
}

// The system's roots are what nil means to crypto/x509: a bundle that could not
// be read must be recognised as empty before it comes to that.
func TestNothingReadIsAnEmptyBundle(t *testing.T) {
	if got, err := trust.Parse("here", nil); err == nil || !got.Empty() || got.SHA256 != "" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestFingerprint(t *testing.T) {
	fingerprint := func(text ...[]byte) string {
		t.Helper()
		b, err := trust.Parse("here", join(text...))
		if err != nil {
			t.Fatal(err)
		}
		return b.SHA256
	}
	one, two := world.CA.PEM(), world.UnknownCA.PEM()
	sum := sha256.Sum256(world.CA.Certificate.Raw)
	if got := fingerprint(one); got != hex.EncodeToString(sum[:]) {
		t.Errorf("of one certificate %s, want its own, %x", got, sum)
	}
	for name, text := range map[string][]byte{
		"comments":         join([]byte("# CA\n\n"), one, []byte("# end\n")),
		"line ends of DOS": bytes.ReplaceAll(one, []byte("\n"), []byte("\r\n")),
		"a duplicate":      join(one, one),
		"a skipped block":  join(one, block("PRIVATE KEY", nil, []byte("secret"))),
	} {
		if fingerprint(text) != fingerprint(one) {
			t.Errorf("%s change the fingerprint", name)
		}
	}
	different := []string{fingerprint(one), fingerprint(two), fingerprint(one, two), fingerprint(world.TwinCA.PEM())}
	slices.Sort(different)
	if len(slices.Compact(different)) != 4 {
		t.Errorf("different certificates share a fingerprint: %q", different)
	}
}
