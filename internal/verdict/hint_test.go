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
