package audit_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// twice serves one certificate for two nodes.
func twice() *cluster {
	c := clusterOf("a good")
	c.add(c.id("b"), certs.Served{Chain: [][]byte{c.shows["10.0.0.1"].Chain[0].Raw}})
	return c
}

// impersonated has b answered for by a, whose certificate names b's address.
func impersonated(as string) *cluster {
	c := clusterOf("a good")
	b := c.id("b")
	template := certs.Template(b)
	template.Subject.CommonName = "system:node:" + as
	c.add(b, world.CA.Issue(template))
	return c
}

// sameAddress gives two nodes one address, each at its port.
func sameAddress(address string, ports ...int32) *cluster {
	c := clusterOf()
	for i, port := range ports {
		node := clusterOf([]string{"a good", "b good"}[i]).nodes[0]
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		if i > 0 {
			node.Status.Addresses[0].Address = strings.ToUpper(address)
		}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
		c.nodes = append(c.nodes, node)
	}
	return c
}

// foreignK3s has bare names, issued by a CA that the bundle lacks.
func foreignK3s() *cluster {
	c := clusterOf()
	for _, name := range []string{"a", "b"} {
		id := c.id(name)
		template := certs.Template(id)
		template.Subject.CommonName = name
		c.add(id, world.UnknownCA.Issue(template))
	}
	return c
}

func virtual() *cluster {
	c := clusterOf("a good", "b good")
	c.nodes[0].Labels["type"] = "virtual-kubelet"
	return c
}

// narrow has b answer a smaller ClientHello alone.
func narrow() *cluster {
	c := clusterOf("a good", "b good")
	answered := c.shows["10.0.0.2"]
	c.shows["10.0.0.2"] = verdict.Observation{Outcome: verdict.OutcomeTimeout, Smaller: &answered}
	return c
}

// replaced has b and c answered for by a.
func replaced() *cluster {
	c := impersonated("a")
	id := c.id("c")
	template := certs.Template(id)
	template.Subject.CommonName = "system:node:a"
	c.add(id, world.CA.Issue(template))
	return c
}

// selfSigned has bare names, each signed by its own key.
func selfSigned() *cluster {
	c := clusterOf()
	for _, name := range []string{"a", "b"} {
		id := c.id(name)
		template := certs.Template(id)
		template.Subject = pkix.Name{CommonName: name}
		c.add(id, ownIssue(template))
	}
	return c
}

// ownIssue signs a template by the key that it is for.
func ownIssue(template *x509.Certificate) certs.Served {
	key := certs.NewCA("only its key is used", now).Key
	self := &certs.CA{Certificate: template, Key: key}
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
	return certs.Served{Chain: [][]byte{self.IssueFor(template, key.Public())}, Key: key}
}

// unfitCA may sign nothing, and does.
func unfitCA(t *testing.T) *certs.CA {
	t.Helper()
	served := ownIssue(&x509.Certificate{Subject: pkix.Name{CommonName: "unfit"}, BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature})
	return &certs.CA{Certificate: served.Leaf(), Key: served.Key}
}

// What is in the bundle is not found to lack there.
func TestFindingsOfABundleThatHoldsTheIssuer(t *testing.T) {
	own, unfit := selfSigned(), unfitCA(t)
	signed := clusterOf()
	for _, name := range []string{"a", "b"} {
		id := signed.id(name)
		template := certs.Template(id)
		template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
		signed.add(id, unfit.Issue(template))
	}
	for name, c := range map[string]struct {
		cluster *cluster
		bundle  []*certs.CA
		want    []string
	}{
		"certificates that are in it themselves": {own, []*certs.CA{own.anchor("10.0.0.1"), own.anchor("10.0.0.2")}, []string{audit.FindingBareNodeNames}},
		"a CA that may not sign":                 {signed, []*certs.CA{unfit}, nil},
		"another one":                            {signed, []*certs.CA{world.CA}, []string{audit.FindingIssuerNotInBundle}},
	} {
		opts := options(c.cluster)
		opts.Policy.Bundle = bundleOf(c.bundle...)
		var got []string
		for _, f := range audit.Run(t.Context(), c.cluster.nodes, opts).Findings {
			got = append(got, f.Kind)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// anchor makes what is served at an address a certificate of a bundle.
func (c *cluster) anchor(address string) *certs.CA {
	return &certs.CA{Certificate: c.shows[address].Chain[0]}
}

func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		cluster *cluster
		want    []string // "Kind: node node"
	}{
		"nothing to see":              {clusterOf("a good", "b good"), nil},
		"nobody there":                {clusterOf(), nil},
		"the bundle lacks one issuer": {clusterOf("a unknown-ca", "b unknown-ca"), []string{"IssuerNotInBundle: a b"}},
		"it does, whatever else is wrong with a node": {
			clusterOf("a unknown-ca", "b expired-and-unknown-ca"), []string{"IssuerNotInBundle: a b"},
		},
		"the bundle has a CA of that name, with another key": {clusterOf("a twin-ca", "b twin-ca"), []string{"IssuerNotInBundle: a b"}},
		"one node is no pattern":                             {clusterOf("a unknown-ca"), nil},
		"another node is fine, so the bundle is":             {clusterOf("a unknown-ca", "b unknown-ca", "c good"), []string{"SameIssuer: a b"}},
		"it lacks an intermediate":                           {clusterOf("a missing-intermediate", "b missing-intermediate", "c good"), []string{"SameIssuer: a b"}},
		"one node of that issuer is no pattern":              {clusterOf("a unknown-ca", "b good"), nil},
		"two foreign issuers":                                {clusterOf("a unknown-ca", "b twin-ca"), nil},
		"the chain fails, but the issuer is there":           {clusterOf("a expired-ca", "b expired-ca"), nil},
		"k3s":                                 {clusterOf("a bare-node-name", "b bare-node-name", "c good"), []string{"BareNodeNames: a b"}},
		"one bare name":                       {clusterOf("a bare-node-name", "b good"), nil},
		"kubeadm":                             {clusterOf("a self-signed", "b self-signed", "c good"), []string{"SelfSignedFallback: a b"}},
		"one self-signed node":                {clusterOf("a self-signed", "b good"), nil},
		"one certificate, two nodes":          {twice(), []string{"OtherNodesIdentity: b a", "SharedCertificate: b a"}},
		"another node's identity":             {impersonated("a"), []string{"OtherNodesIdentity: b a"}},
		"the identity of a node that is gone": {impersonated("gone"), []string{"AbsentNodesIdentity: b"}},
		"identities of nodes that are gone":   {clusterOf("a other-node", "b other-node", "c good"), []string{"AbsentNodesIdentity: a b"}},
		"the node's own, in another case":     {impersonated("B"), nil},
		"the node's own, with a domain":       {impersonated("b.example"), nil},
		"two nodes answered for by one":       {replaced(), []string{"OtherNodesIdentity: b c a"}},
		"bare names, self-signed":             {selfSigned(), []string{"SelfSignedFallback: a b"}},
		"one address, two nodes":              {sameAddress("10.0.0.9", 10250, 10250), []string{"SharedAddress: a b"}},
		"one host name, whatever its case":    {sameAddress("host.example", 10250, 10250), []string{"SharedAddress: a b"}},
		"one address, two ports":              {sameAddress("10.0.0.9", 10250, 10251), nil},
		"two nodes without an address":        {sameAddress("", 10250, 10250), nil},
		"a virtual kubelet":                   {virtual(), []string{"VirtualKubelets: a"}},
		"a name that is too long for X.520":   {clusterOf(strings.Repeat("n", 53) + " good"), []string{"LongNodeNames: " + strings.Repeat("n", 53)}},
		"one that just is not":                {clusterOf(strings.Repeat("n", 52) + " good"), nil},
		"a way that drops large ClientHellos": {narrow(), []string{"LargeClientHelloDropped: b"}},
		"the bundle's fault leads the nodes'": {foreignK3s(), []string{"IssuerNotInBundle: a b", "BareNodeNames: a b"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := audit.Run(t.Context(), chosen(t, c.cluster.nodes), options(c.cluster))
			var got []string
			for _, f := range r.Findings {
				got = append(got, f.Kind+": "+strings.Join(f.Nodes, " "))
				if f.Message == "" {
					t.Errorf("%s has no words", f.Kind)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Every kind that the code knows of is listed, and reported somewhere above.
func TestFindingKindsAreComplete(t *testing.T) {
	source, err := os.ReadFile("findings.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\tFinding\w+ += "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	var names []string
	for _, d := range declared {
		names = append(names, d[1])
	}
	if listed := audit.FindingKinds(); !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(listed))) {
		t.Errorf("declared %q, listed %q", names, listed)
	}
}

func TestWithoutACATheBundleIsNotBlamed(t *testing.T) {
	for _, defect := range []string{"unknown-ca", "unhandled-critical-extension"} { // the latter fails Chain even so
		c := clusterOf("a "+defect, "b "+defect)
		opts := options(c)
		opts.Policy.Bundle = verdict.Bundle{}
		r := audit.Run(t.Context(), c.nodes, opts)
		if len(r.Findings) != 1 || r.Findings[0].Kind != audit.FindingSameIssuer || !slices.Equal(r.Findings[0].Nodes, []string{"a", "b"}) {
			t.Errorf("%s: %+v", defect, r.Findings)
		}
	}
}

func TestFindingsQuoteThePeer(t *testing.T) {
	hostile := certs.NewCA("\x1b[2Jevil\nCA", now)
	c := clusterOf()
	for _, name := range []string{"a", "b"} {
		id := c.id(name)
		c.add(id, hostile.Issue(certs.Template(id)))
	}
	r := audit.Run(t.Context(), c.nodes, options(c))
	if len(r.Findings) != 1 || r.Findings[0].Kind != audit.FindingIssuerNotInBundle {
		t.Fatalf("%+v", r.Findings)
	}
	if m := r.Findings[0].Message; !strings.Contains(m, `\x1b[2Jevil`) || strings.ContainsAny(m, "\x1b\n") {
		t.Errorf("%q", m)
	}
}

func TestCertificateIsDescribedAsServed(t *testing.T) {
	c := clusterOf()
	id := c.id("a")
	template := certs.Template(id)
	template.DNSNames, template.Subject.Organization = []string{"x", "y"}, []string{"system:nodes"}
	served := world.CA.Issue(template)
	c.add(id, served)
	got := audit.Run(t.Context(), c.nodes, options(c)).Nodes[0].Certificate
	leaf, err := x509.ParseCertificate(served.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	if got.CommonName != "system:node:a" || !slices.Equal(got.Organizations, []string{"system:nodes"}) || got.Issuer != "CN=kubernetes" {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(got.DNSNames, []string{"x", "y"}) || !slices.Equal(got.IPAddresses, []string{netip.MustParseAddr("10.0.0.1").String()}) {
		t.Errorf("%+v", got)
	}
	if got.SerialNumber != leaf.SerialNumber.Text(16) || !got.NotBefore.Equal(leaf.NotBefore) || !got.NotAfter.Equal(leaf.NotAfter) || len(got.SHA256) != 64 {
		t.Errorf("%+v", got)
	}
}
