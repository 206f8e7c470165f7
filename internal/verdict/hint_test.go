package verdict_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"strings"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// below is a CA that another one issues.
func below(issuer *certs.CA, name string, change func(*x509.Certificate)) *certs.CA {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	served := issuer.Issue(template)
	return &certs.CA{Certificate: served.Leaf(), Key: served.Key}
}

// Where the path ends is where the hint points.
func TestAuthorityHints(t *testing.T) {
	first := below(world.UnknownCA, "first", nil)
	second := below(first, "second", nil)
	odd := below(world.UnknownCA, "odd", func(c *x509.Certificate) {
		c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
	})
	twin := below(world.TwinCA, "below the twin", nil)
	const missing, another, own = "neither the kubelet serves nor the trust bundle holds the issuer", "but with another key", "a root of its own"
	for name, c := range map[string]struct {
		issuer   *certs.CA
		served   []*certs.CA
		bundle   []*certs.CA
		want     string
		mustLack string
	}{
		"nothing is served":                   {second, nil, nil, missing + ` "CN=second"`, another},
		"one of two is served":                {second, []*certs.CA{second}, nil, missing + ` "CN=first"`, another},
		"the other one is":                    {second, []*certs.CA{first}, nil, missing + ` "CN=second"`, another},
		"both are, in any order":              {second, []*certs.CA{first, second}, nil, missing + ` "CN=another-cluster"`, another},
		"the whole way, with its root":        {second, []*certs.CA{second, first, world.UnknownCA}, nil, own, missing},
		"the root alone":                      {world.UnknownCA, []*certs.CA{world.UnknownCA}, nil, own, missing},
		"the same name, two steps up":         {twin, []*certs.CA{twin}, nil, another, missing},
		"an anchor with a critical extension": {odd, nil, []*certs.CA{odd}, "", another},
	} {
		t.Run(name, func(t *testing.T) {
			template := certs.Template(identity)
			template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
			obs := completed(t, c.issuer.Issue(template).With(c.served...))
			v := verdict.Judge(expectation(), obs, verdict.Policy{Bundle: bundleOf(append(c.bundle, world.CA)...)}, now)
			if v.Reason != v1alpha1.ReasonUnknownAuthority && c.want != "" {
				t.Fatalf("%s: %s", v.Reason, v.Message)
			}
			if !strings.Contains(v.Hint, c.want) || strings.Contains(v.Hint, c.mustLack) {
				t.Errorf("%q, want %q and no %q", v.Hint, c.want, c.mustLack)
			}
		})
	}
}

// What is wrong with a common name, where more can be said than that it differs.
func TestCommonNameHints(t *testing.T) {
	const long, another = "ip-10-0-0-1.ec2.internal", "the identity of another node"
	for name, c := range map[string]struct{ node, commonName, want, mustLack string }{
		"bare":                           {"n1", "n1", "a bare node name", another},
		"bare, in another case":          {"n1", "N1", "a bare node name", another},
		"another case":                   {"n1", "system:node:N1", "differs in case only", another},
		"empty":                          {"n1", "", "no common name", another},
		"no name":                        {"n1", "system:node:", "", another},
		"without the domain":             {long, "system:node:ip-10-0-0-1", "no part of a name will do", another},
		"that, bare":                     {long, "ip-10-0-0-1", "no part of a name will do", another},
		"with a domain":                  {"n1", "system:node:N1.example", "no part of a name will do", another},
		"part of a label is no domain":   {"node-1", "system:node:node-12", another + `, "node-12"`, "part of a name"},
		"cut off":                        {strings.Repeat("n", 60), "system:node:" + strings.Repeat("n", 52), "cut off at 64", another},
		"cut off before it had to be":    {strings.Repeat("n", 60), "system:node:" + strings.Repeat("n", 51), another, "cut off"},
		"another node":                   {"n1", "system:node:n2", another + `, "n2"`, "part of a name"},
		"another node, to be quoted":     {"n1", "system:node:\x1b[2J", `another node, "\x1b[2J"`, "\x1b"},
		"a constant says nothing at all": {"n1", "kubelet", "", another},
	} {
		t.Run(name, func(t *testing.T) {
			exp := expectation()
			exp.NodeName = c.node
			template := certs.Template(identity)
			template.Subject.CommonName = c.commonName
			v := verdict.Judge(exp, completed(t, world.CA.Issue(template)), verdict.Policy{Bundle: bundleOf(world.CA)}, now)
			if v.Reason != v1alpha1.ReasonCommonNameMismatch || !strings.Contains(v.Hint, c.want) || strings.Contains(v.Hint, c.mustLack) || c.want == "" && v.Hint != "" {
				t.Errorf("%s: %q, want %q and no %q", v.Reason, v.Hint, c.want, c.mustLack)
			}
			if other, ok := verdict.OtherNode(c.commonName, c.node); ok != strings.Contains(v.Hint, another) || ok && "system:node:"+other != c.commonName {
				t.Errorf("OtherNode says %q, %v; the hint is %q", other, ok, v.Hint)
			}
		})
	}
}

// What has no SAN, and names the node in the common name alone.
func TestLegacyNamesAreTold(t *testing.T) {
	const legacy, none = "in the common name alone", "no DNS or IP SAN at all"
	for commonName, want := range map[string]string{
		expectation().NodeName: legacy, expectation().Endpoint.Host: legacy, "system:node:" + expectation().NodeName: none, "": none,
	} {
		template := certs.Template(identity)
		template.Subject.CommonName, template.DNSNames, template.IPAddresses = commonName, nil, nil
		v := verdict.Judge(expectation(), completed(t, world.CA.Issue(template)), verdict.Policy{Bundle: bundleOf(world.CA)}, now)
		if v.Reason != v1alpha1.ReasonAddressMismatch || !strings.Contains(v.Hint, want) {
			t.Errorf("%q: %s, %q, want %q", commonName, v.Reason, v.Hint, want)
		}
	}
}

// Which signature is refused for its algorithm, and that nobody vouches for
// what is signed by its own key.
func TestSignatureHints(t *testing.T) {
	weak := below(world.CA, "weak", func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 })
	key := certs.NewCA("only its key is used", now).Key
	own := certs.Template(identity)
	own.NotBefore, own.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
	self := &certs.CA{Certificate: own, Key: key}
	sha1 := certs.Template(identity)
	sha1.SignatureAlgorithm = x509.ECDSAWithSHA1
	for name, c := range map[string]struct {
		served certs.Served
		want   string
	}{
		"the leaf's":      {world.CA.Issue(sha1), "the signature is made with ECDSA-SHA1"},
		"an issuing CA's": {weak.Issue(dated()).With(weak), `the signature of the CA "CN=weak" is made with ECDSA-SHA1`},
		"its own":         {certs.Served{Chain: [][]byte{self.IssueFor(own, key.Public())}, Key: key}, "signed by its own key"},
	} {
		v := verdict.Judge(expectation(), completed(t, c.served), verdict.Policy{Bundle: bundleOf(world.CA)}, now)
		if v.Reason != v1alpha1.ReasonUnknownAuthority || !strings.Contains(v.Hint, c.want) {
			t.Errorf("%s: %s, %q, want %q", name, v.Reason, v.Hint, c.want)
		}
	}
}

// dated is a good template for CAs that have no clock of their own.
func dated() *x509.Certificate {
	template := certs.Template(identity)
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
	return template
}

func TestUnresolvedNamesHaveAHint(t *testing.T) {
	v := verdict.Judge(expectation(), verdict.Observation{Outcome: verdict.OutcomeUnresolved}, verdict.Policy{Bundle: bundleOf(world.CA)}, now)
	if v.Status != verdict.Unknown || v.Reason != v1alpha1.ReasonNameResolutionFailed ||
		!strings.Contains(v.Hint, "--kubelet-preferred-address-types") || !strings.Contains(v.Message, v.Hint) {
		t.Errorf("%s %s: %q", v.Status, v.Reason, v.Message)
	}
}
