package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"testing"
	"time"
)

func TestWorldIsDeterministic(t *testing.T) {
	a, b := NewWorld(testNow), NewWorld(testNow.Add(time.Millisecond).Local())
	for _, d := range Defects() {
		if d.Serve == nil {
			continue
		}
		if !slices.EqualFunc(d.Serve(a, testID).Chain, d.Serve(b, testID).Chain, bytes.Equal) {
			t.Errorf("%s: two worlds of one time differ", d.Name)
		}
	}
}

func TestKeysAndSerialsAreFresh(t *testing.T) {
	w := NewWorld(testNow)
	cas := []*CA{w.CA, w.Intermediate, w.UnknownCA, w.TwinCA, NewCA("kubernetes", testNow), NewCA("kubernetes", testNow)}
	seen := map[string]bool{}
	fresh := func(c *x509.Certificate) {
		t.Helper()
		key, err := x509.MarshalPKIXPublicKey(c.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if seen[string(key)] {
			t.Errorf("the key of %q was seen before", c.Subject.CommonName)
		}
		seen[string(key)] = true
	}
	for _, ca := range cas {
		fresh(ca.Certificate)
		first, second := ca.Issue(Template(testID)).Leaf(), ca.Issue(Template(testID)).Leaf()
		fresh(first)
		fresh(second)
		if first.SerialNumber.Cmp(second.SerialNumber) == 0 {
			t.Error("one CA issued one serial number twice")
		}
	}
}

func TestIssueFillsInWhatIsMissing(t *testing.T) {
	ca := NewCA("kubernetes", testNow)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "x"}}
	leaf := ca.Issue(template).Leaf()
	if !leaf.NotBefore.Equal(testNow.Add(-time.Hour)) || !leaf.NotAfter.Equal(testNow.Add(365*24*time.Hour)) {
		t.Errorf("valid from %v to %v", leaf.NotBefore, leaf.NotAfter)
	}
	if template.SerialNumber != nil || !template.NotBefore.IsZero() {
		t.Error("the template was changed")
	}
	bare := &CA{Certificate: ca.Certificate, Key: ca.Key}
	if leaf := bare.Issue(template).Leaf(); time.Since(leaf.NotBefore) < time.Hour || time.Until(leaf.NotAfter) < 24*time.Hour {
		t.Errorf("a CA literal issued from %v to %v", leaf.NotBefore, leaf.NotAfter)
	}
}

func TestTwinSharesTheNameOnly(t *testing.T) {
	w := NewWorld(testNow)
	if !bytes.Equal(w.CA.Certificate.RawSubject, w.TwinCA.Certificate.RawSubject) {
		t.Error("the subjects differ")
	}
	if bytes.Equal(w.CA.Certificate.SubjectKeyId, w.TwinCA.Certificate.SubjectKeyId) {
		t.Error("the key identifiers are equal")
	}
}

func TestPEMIsAKeyPair(t *testing.T) {
	w := NewWorld(testNow)
	served := w.Intermediate.Issue(Template(testID)).With(w.Intermediate)
	pair, err := tls.X509KeyPair(served.CertificatePEM(), served.KeyPEM())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(pair.Certificate, served.TLS().Certificate, bytes.Equal) {
		t.Error("the chain changed on its way through PEM")
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(w.CA.PEM()) {
		t.Error("the CA's PEM does not parse")
	}
	keyless := Served{Chain: served.Chain}
	if keyless.KeyPEM() != nil || keyless.TLS().PrivateKey != nil {
		t.Error("a key came from nowhere")
	}
}

// BenchmarkIssue keeps an eye on what a fleet of thousands costs.
func BenchmarkIssue(b *testing.B) {
	w := NewWorld(testNow)
	for b.Loop() {
		w.CA.Issue(Template(testID))
	}
}
