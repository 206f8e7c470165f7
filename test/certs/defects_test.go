package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

var (
	testNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	testID  = Identity{NodeName: "worker-1", IP: netip.MustParseAddr("127.1.0.1")}
)

func TestDefectsAreWellFormed(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, d := range Defects() {
		if seen[d.Name] || !kebab.MatchString(d.Name) {
			t.Errorf("%s: not unique or not in kebab case", d.Name)
		}
		seen[d.Name] = true
		if d.Summary == "" || d.Summary[len(d.Summary)-1] != '.' {
			t.Errorf("%s: summary %q is no sentence", d.Name, d.Summary)
		}
		if !slices.Contains(v1alpha1.Reasons(), d.Reason) {
			t.Errorf("%s: unknown reason %q", d.Name, d.Reason)
		}
		if (d.Status == statusTrue) != (d.Reason == v1alpha1.ReasonVerified) {
			t.Errorf("%s: %s with %s", d.Name, d.Status, d.Reason)
		}
		if d.Status == statusTrue && !d.KeyProven() {
			t.Errorf("%s: True without proof of the key", d.Name)
		}
		if d.Wire.ShowsCertificate() && d.Serve == nil {
			t.Errorf("%s: wire %s has nothing to show", d.Name, d.Wire)
		}
	}
}

func TestEveryWireHasADefect(t *testing.T) {
	used := map[Wire]bool{}
	for _, d := range Defects() {
		used[d.Wire] = true
	}
	names := map[string]bool{}
	for _, w := range Wires() {
		if !used[w] {
			t.Errorf("wire %s is shown by no defect", w)
		}
		if names[w.String()] || w.String() == "" {
			t.Errorf("wire %d: name %q is empty or not unique", w, w)
		}
		names[w.String()] = true
	}
}

// TestShownChains judges every chain with crypto/x509 alone.
func TestShownChains(t *testing.T) {
	w := NewWorld(testNow)
	for _, d := range Defects() {
		if !d.Wire.ShowsCertificate() || d.Unreadable {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			served := d.Serve(w, testID)
			if fails := failing(w, served); !slices.Equal(fails, d.Fails) {
				t.Errorf("failing checks %v, want %v", fails, d.Fails)
			}
			if !d.KeyProven() {
				if served.Key != nil || len(d.Fails) > 0 {
					t.Errorf("a stolen certificate must be good and come without its key")
				}
				return
			}
			if reason := reasonOf(w, served); reason != d.Reason {
				t.Errorf("reason %s, want %s", reason, d.Reason)
			}
			checkKey(t, served)
		})
	}
}

func checkKey(t *testing.T, served Served) {
	t.Helper()
	want, err := x509.MarshalPKIXPublicKey(served.Leaf().PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	got, err := x509.MarshalPKIXPublicKey(served.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the key is not the leaf's")
	}
}

// reasonOf is the first thing that an API server with the CN check would say.
func reasonOf(w *World, served Served) v1alpha1.Reason {
	err := verify(w, served, w.Now, testID.IP.String(), x509.ExtKeyUsageServerAuth)
	if err == nil {
		if served.Leaf().Subject.CommonName != "system:node:"+testID.NodeName {
			return v1alpha1.ReasonCommonNameMismatch
		}
		return v1alpha1.ReasonVerified
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return v1alpha1.ReasonAddressMismatch
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return v1alpha1.ReasonUnknownAuthority
	}
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case ok && invalid.Reason == x509.Expired && w.Now.Before(invalid.Cert.NotBefore):
		return v1alpha1.ReasonCertificateNotYetValid
	case ok && invalid.Reason == x509.Expired:
		return v1alpha1.ReasonCertificateExpired
	case ok && invalid.Reason == x509.IncompatibleUsage:
		return v1alpha1.ReasonKeyUsageMismatch
	default:
		return v1alpha1.ReasonCertificateInvalid
	}
}

// failing asks for one check at a time, with the others out of its way.
func failing(w *World, served Served) []v1alpha1.CheckName {
	leaf := served.Leaf()
	at := w.Now
	if at.After(leaf.NotAfter) {
		at = leaf.NotAfter
	}
	if at.Before(leaf.NotBefore) {
		at = leaf.NotBefore
	}
	chain := verify(w, served, at, "", x509.ExtKeyUsageAny)
	usage := verify(w, served, at, "", x509.ExtKeyUsageServerAuth)
	var fails []v1alpha1.CheckName
	add := func(name v1alpha1.CheckName, failed bool) {
		if failed {
			fails = append(fails, name)
		}
	}
	add(v1alpha1.CheckChain, chain != nil)
	add(v1alpha1.CheckAddress, leaf.VerifyHostname(testID.IP.String()) != nil)
	add(v1alpha1.CheckValidity, !at.Equal(w.Now))
	add(v1alpha1.CheckKeyUsage, chain == nil && usage != nil)
	add(v1alpha1.CheckCommonName, leaf.Subject.CommonName != "system:node:"+testID.NodeName)
	return fails
}

func verify(w *World, served Served, at time.Time, host string, usage x509.ExtKeyUsage) error {
	options := x509.VerifyOptions{
		DNSName: host, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage},
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
	}
	options.Roots.AddCert(w.CA.Certificate)
	for _, der := range served.Chain[1:] {
		options.Intermediates.AddCert(parse(der))
	}
	_, err := served.Leaf().Verify(options)
	return err
}

func TestExpiredCAIsNotTheLeaf(t *testing.T) {
	w := NewWorld(testNow)
	served := find(t, "expired-ca").Serve(w, testID)
	err := verify(w, served, w.Now, testID.IP.String(), x509.ExtKeyUsageServerAuth)
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	if !ok || invalid.Cert.Equal(served.Leaf()) {
		t.Errorf("got %v, want an error about the CA", err)
	}
}

func TestSelfSignedIsWhatAKubeletMakes(t *testing.T) {
	w := NewWorld(testNow)
	served := find(t, "self-signed").Serve(w, testID)
	leaf := served.Leaf()
	if got, want := leaf.Subject.CommonName, "worker-1@1772366400"; got != want {
		t.Errorf("common name %q, want %q", got, want)
	}
	if got, want := leaf.Issuer.CommonName, "worker-1-ca@1772366400"; got != want {
		t.Errorf("issuer %q, want %q", got, want)
	}
	if len(served.Chain) != 2 || leaf.CheckSignatureFrom(parse(served.Chain[1])) != nil {
		t.Error("the throw-away CA is not served")
	}
}

func TestUnreadableChains(t *testing.T) {
	w := NewWorld(testNow)
	if bits := find(t, "rsa-too-large").Serve(w, testID).Leaf().PublicKey.(interface{ Size() int }).Size() * 8; bits <= 8192 {
		t.Errorf("the RSA key has %d bits", bits)
	}
	if leaf := find(t, "unparsable").Serve(w, testID).Leaf(); leaf != nil {
		t.Errorf("parsed as %v", leaf.Subject)
	}
}

func find(t *testing.T, name string) Defect {
	t.Helper()
	for _, d := range Defects() {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("no defect %s", name)
	return Defect{}
}
