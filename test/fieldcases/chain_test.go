package fieldcases

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

var chainTests = map[string]func(*scene){
	"chain-01": func(s *scene) {
		s.issued("n1", s.world.UnknownCA, nil)
		s.is("n1", unknownCA, `no path from issuer "CN=another-cluster"`)
		s.fails("n1", "Chain")
		s.hints("n1", `the issuer "CN=another-cluster"`)
		s.answers(verdict.NotReady, verdict.NotReady, verdict.ReadinessUnknown)
	},
	"chain-02": func(s *scene) {
		s.node("old", nil)
		for _, name := range []string{"new-0", "new-1"} {
			s.issued(name, s.world.UnknownCA, nil)
		}
		s.is("old", verified)
		s.is("new-0", unknownCA)
		s.fails("new-1", "Chain")
		if f := s.finds(audit.FindingSameIssuer, "new-0", "new-1"); !strings.Contains(f.Message, `"CN=another-cluster"`) {
			s.Error(f.Message)
		}
		s.trusts(s.world.CA, s.world.UnknownCA)
		s.is("old", verified)
		s.is("new-0", verified)
		s.is("new-1", verified)
	},
	"chain-03": func(s *scene) {
		s.issued("new-key", s.world.TwinCA, nil)
		s.node("old-key", nil)
		s.is("new-key", unknownCA)
		s.fails("new-key", "Chain")
		s.hints("new-key", "a CA of that very name, but with another key")
		for _, order := range [][]*certs.CA{{s.world.CA, s.world.TwinCA}, {s.world.TwinCA, s.world.CA}} {
			s.trusts(order...)
			s.is("new-key", verified)
			s.is("old-key", verified)
		}
	},
	"chain-04": func(s *scene) {
		s.issued("leaf-alone", s.world.Intermediate, nil)
		s.issued("with-intermediate", s.world.Intermediate, nil, s.world.Intermediate)
		s.is("leaf-alone", unknownCA)
		s.fails("leaf-alone", "Chain")
		s.hints("leaf-alone", `neither the kubelet serves nor the trust bundle holds the issuer "CN=kubelet-serving"`)
		s.is("with-intermediate", verified)
		s.trusts(s.world.CA, s.world.Intermediate)
		s.is("leaf-alone", verified)
	},
	"chain-05": func(s *scene) {
		s.issued("n1", s.world.Intermediate, nil)
		s.issued("n2", s.world.UnknownCA, nil)
		s.trusts(s.world.Intermediate)
		s.is("n1", verified)
		s.is("n2", unknownCA)
	},
	"chain-07": func(s *scene) {
		noBasics := s.root("no basic constraints", s.ecdsaKey(elliptic.P256()), func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false })
		noSigning := s.root("no signing", s.ecdsaKey(elliptic.P256()), func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
		first := s.rootV1("version 1")
		s.issued("n1", noBasics, nil)
		s.issued("n2", noSigning, nil)
		s.issued("n3", first, nil)
		s.trusts(noBasics, noSigning, first)
		s.is("n1", unknownCA)
		s.fails("n1", "Chain")
		s.hints("n1", `the issuer "CN=no basic constraints" may not sign others`)
		s.is("n2", unknownCA)
		s.fails("n2", "Chain")
		s.hints("n2", `the issuer "CN=no signing" may not sign others`)
		s.is("n3", verified)
	},
	"chain-08": weakSignatures,
	"chain-11": func(s *scene) {
		skipped := s.root("skipped", s.ecdsaKey(elliptic.P256()), nil)
		s.node("n1", nil)
		s.issued("n2", skipped, nil)
		// The CA of another CA's issuing, as its serial numbers have 16 bytes.
		bad := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.withNegativeSerial(func() []byte {
			return skipped.IssueFor(skipped.Certificate, skipped.Key.Public())
		})})
		s.bundle = append(bad, s.bundle...)
		s.is("n1", verified)
		s.is("n2", unknownCA)
		s.fails("n2", "Chain")
		w := s.report().TrustBundle.Warnings
		if len(w) != 1 || !strings.Contains(w[0], "block 1 could not be parsed and was skipped") || !strings.Contains(w[0], "negative serial number") {
			s.Errorf("warnings: %q", w)
		}
		if _, err := trust.Parse("the test's", bad); err == nil {
			s.Error("a bundle of nothing is no bundle")
		}
	},
	"chain-12": func(s *scene) {
		s.node("n1", nil)
		code, text := s.audit([]byte{})
		if code != cli.ExitCannotRun || !strings.Contains(text, "it is empty") {
			s.Errorf("exit code %d: %s", code, text)
		}
		s.undialled()
		if code, text = s.audit(s.bundle); code != cli.ExitReady { // the same with a CA
			s.Errorf("exit code %d: %s", code, text)
		}
	},
	"chain-16": func(s *scene) {
		var names []string
		for i := range 3 {
			names = append(names, fmt.Sprintf("n%d", i))
			s.issued(names[i], s.world.UnknownCA, nil)
		}
		s.is("n0", unknownCA)
		s.fails("n0", "Chain")
		f := s.finds(audit.FindingIssuerNotInBundle, names...)
		if len(s.report().Findings) != 1 || !strings.Contains(f.Message, "is this the CA that kube-apiserver uses for kubelets?") {
			s.Errorf("%+v", s.report().Findings)
		}
		s.answers(verdict.NotReady, verdict.NotReady, verdict.ReadinessUnknown)
		s.trusts(s.world.UnknownCA)
		s.answers(verdict.Ready, verdict.Ready, verdict.Ready)
	},
}

// weakSignatures: SHA-1 and MD5 of a leaf are refused, a root's own signature
// is not looked at.
func weakSignatures(s *scene) {
	key := s.rsaKey()
	sha1 := func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA }
	root, weak := s.root("strong", key, nil), s.root("SHA-1 root", key, sha1)
	s.issued("n1", root, sha1)
	s.issued("n2", weak, nil)
	id := s.id("n3")
	template := s.template(id)
	sha1(template)
	served := root.Issue(template)
	// crypto/x509 does not write MD5: the last byte of the algorithm's name, in
	// both places, makes it so.
	served.Chain[0] = bytes.ReplaceAll(served.Chain[0], rsaSignature(5), rsaSignature(4))
	s.serve(id, fleet.Behaviour{Served: served})
	s.trusts(root, weak)
	s.is("n1", unknownCA)
	s.fails("n1", "Chain")
	s.hints("n1", "the signature is made with SHA1-RSA, which is insecure")
	s.is("n2", verified)
	s.is("n3", unknownCA)
	s.hints("n3", "the signature is made with MD5-RSA, which is insecure")
}

// rsaSignature is 1.2.840.113549.1.1.kind in DER.
func rsaSignature(kind byte) []byte {
	return []byte{6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, kind}
}

// audit runs the command on a file of the nodes, and gives its exit code and
// all it says.
func (s *scene) audit(ca []byte) (int, string) {
	s.Helper()
	dir := s.TempDir()
	nodes, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": s.nodes})
	if err != nil {
		s.Fatal(err)
	}
	for name, text := range map[string][]byte{"nodes.yaml": nodes, "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			s.Fatal(err)
		}
	}
	var out bytes.Buffer
	code, err := cli.Run(s.Context(), []string{
		"audit", "-f", filepath.Join(dir, "nodes.yaml"), "--kubelet-certificate-authority", filepath.Join(dir, "ca.crt"),
		"--allow-local-addresses", "--kubelet-preferred-address-types=InternalIP",
	}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	return code, fmt.Sprintf("%s%v", out.String(), err)
}
