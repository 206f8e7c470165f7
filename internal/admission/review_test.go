package admission_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/admission"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

var key = sync.OnceValue(func() *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
})

// good is what the kubelet of node-a asks for.
func good() *x509.CertificateRequest {
	return &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:node-a", Organization: []string{"system:nodes"}},
		DNSNames: []string{"node-a"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 11)},
	}
}

func signed(template *x509.CertificateRequest) []byte {
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key())
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// request is node-a's, but for the change.
func request(change func(*x509.CertificateRequest)) admission.Request {
	template := good()
	if change != nil {
		change(template)
	}
	return admission.Request{
		PEM: signed(template), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		User: "system:node:node-a", Groups: []string{"system:nodes", "system:authenticated"},
	}
}

func (c change) of(r admission.Request) admission.Request { c(&r); return r }

type change func(*admission.Request)

func as(user string, groups ...string) change {
	return func(r *admission.Request) { r.User, r.Groups = user, groups }
}

func node(name string, labels map[string]string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// cluster has node-a and node-b, a control plane, and a node without addresses.
func cluster() *admission.Index {
	x := &admission.Index{}
	controlPlane := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	for _, n := range []*corev1.Node{
		node("node-a", nil, "10.0.0.11", "node-a", "2001:db8::11", "10.96.0.1", "10.0.0.1", "127.0.0.1", "node-a.internal.example", "203.0.113.11"),
		node("node-b", nil, "10.0.0.12", "node-b", "Node-B.Example.", "::ffff:10.9.9.9"),
		node("master", controlPlane, "10.0.0.1", "master"),
		node("young", nil),
	} {
		x.Set(n)
	}
	return x
}

var reserved = admission.Reserved{
	Services: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Endpoints: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")},
}

func ips(texts ...string) []net.IP {
	var list []net.IP
	for _, text := range texts {
		list = append(list, net.ParseIP(text))
	}
	return list
}

func names(dns ...string) func(*x509.CertificateRequest) {
	return func(c *x509.CertificateRequest) { c.DNSNames, c.IPAddresses = dns, nil }
}

func addresses(texts ...string) func(*x509.CertificateRequest) {
	return func(c *x509.CertificateRequest) { c.DNSNames, c.IPAddresses = nil, ips(texts...) }
}

func uses(usages ...certificatesv1.KeyUsage) admission.Request {
	r := request(nil)
	r.Usages = usages
	return r
}

func organization(o ...string) admission.Request {
	return request(func(c *x509.CertificateRequest) { c.Subject.Organization = o })
}

const (
	requester    = v1alpha1.ReviewRequesterNotNode
	commonName   = v1alpha1.ReviewCommonNameNotRequester
	orgInvalid   = v1alpha1.ReviewOrganizationInvalid
	badUsages    = v1alpha1.ReviewUsagesInvalid
	sanRequired  = v1alpha1.ReviewSANRequired
	sanType      = v1alpha1.ReviewSANTypeForbidden
	wildcard     = v1alpha1.ReviewWildcardSAN
	isReserved   = v1alpha1.ReviewReservedAddress
	foreign      = v1alpha1.ReviewForeignAddress
	notReported  = v1alpha1.ReviewAddressNotReported
	notKnown     = v1alpha1.ReviewAddressesUnknown
	malformed    = v1alpha1.ReviewMalformedRequest
	commonNames  = v1alpha1.ReviewMultipleCommonNames
	signature    = certificatesv1.UsageDigitalSignature
	encipherment = certificatesv1.UsageKeyEncipherment
	server       = certificatesv1.UsageServerAuth
)

// cases of each rule; those of the field bear their names.
var cases = []struct {
	name    string
	request admission.Request
	want    []v1alpha1.ReviewReason
	says    string // in the first message
}{
	{"a kubelet's own", request(nil), nil, ""},
	{"with every address of its own", request(func(c *x509.CertificateRequest) { c.IPAddresses = ips("10.0.0.11", "2001:db8::11") }), nil, ""},
	{"IPv6 written otherwise", request(addresses("2001:db8:0:0::11")), nil, ""},
	{"a name in other case and with a final dot", request(names("NODE-A.internal.example.")), nil, ""},
	{"an address that nobody reports", request(addresses("10.0.0.99")), []v1alpha1.ReviewReason{notReported}, `"10.0.0.99"`},
	{"another node's, mapped into IPv6", request(addresses("10.9.9.9")), []v1alpha1.ReviewReason{foreign}, `node "node-b" reports`},
	{"another node's name in other case", request(names("node-b.EXAMPLE")), []v1alpha1.ReviewReason{foreign}, "node-b"},
	{"loopback, though it reports it", request(addresses("127.0.0.1")), []v1alpha1.ReviewReason{isReserved}, "127.0.0.1"},
	{"link-local", request(addresses("169.254.1.1")), []v1alpha1.ReviewReason{isReserved}, ""},
	{"unspecified", request(addresses("::")), []v1alpha1.ReviewReason{isReserved}, ""},
	{"multicast", request(addresses("224.0.0.1")), []v1alpha1.ReviewReason{isReserved}, ""},
	{"localhost", request(names("localhost")), []v1alpha1.ReviewReason{isReserved}, ""},
	{"below localhost", request(names("a.LOCALHOST.")), []v1alpha1.ReviewReason{isReserved}, ""},
	{"the API server's full name", request(names("kubernetes.default.svc.cluster.local")), []v1alpha1.ReviewReason{isReserved}, ""},
	{"an endpoint of the API server, though it reports it", request(addresses("10.0.0.1")), []v1alpha1.ReviewReason{isReserved}, ""},
	{"an endpoint, by a control-plane node", as("system:node:master", "system:nodes").of(request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:master", []string{"master"}, nil
	})), nil, ""},
	{"another endpoint, by that node", as("system:node:master", "system:nodes").of(request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:master", []string{"master"}, ips("10.0.0.2")
	})), []v1alpha1.ReviewReason{isReserved}, "10.0.0.2"},
	{"the address of the Service, though it reports it", request(addresses("10.96.0.1")), []v1alpha1.ReviewReason{isReserved}, "10.96.0.1"},
	{"its own name, before it reports anything", as("system:node:young", "system:nodes").of(request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:young", []string{"young"}, nil
	})), nil, ""},
	{"two common names", request(func(c *x509.CertificateRequest) {
		c.Subject.ExtraNames = []pkix.AttributeTypeAndValue{
			{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:node:node-b"}, {Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:node:node-a"}}
	}), []v1alpha1.ReviewReason{commonNames}, "2 common names"},
	{"a common name in other case", request(func(c *x509.CertificateRequest) { c.Subject.CommonName = "system:node:Node-A" }), []v1alpha1.ReviewReason{commonName}, ""},
	{"e-mail", request(func(c *x509.CertificateRequest) { c.EmailAddresses = []string{"a@example"} }), []v1alpha1.ReviewReason{sanType}, `an e-mail address, "a@example"`},
	{"a URI", request(func(c *x509.CertificateRequest) { c.URIs = []*url.URL{{Scheme: "https", Host: "a"}} }), []v1alpha1.ReviewReason{sanType}, `a URI, "https://a"`},
	{"a registered ID, which Go passes over", request(rawSANs([]asn1.RawValue{{Class: 2, Tag: 8, Bytes: []byte{0x2a, 3}}, {Class: 2, Tag: 2, Bytes: []byte("node-a")}})), []v1alpha1.ReviewReason{sanType}, "(8)"},
	{"names in two extensions, of which the last counts", request(func(c *x509.CertificateRequest) {
		rawSANs([]asn1.RawValue{{Class: 2, Tag: 2, Bytes: []byte("node-b")}})(c)
		c.ExtraExtensions = append(c.ExtraExtensions, sanExtension([]asn1.RawValue{{Class: 2, Tag: 2, Bytes: []byte("node-a")}}))
	}), []v1alpha1.ReviewReason{malformed}, ""},
	{"no PEM", change(func(r *admission.Request) { r.PEM = []byte("text") }).of(request(nil)), []v1alpha1.ReviewReason{malformed}, ""},
	{"another block", change(func(r *admission.Request) { r.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}) }).of(request(nil)), []v1alpha1.ReviewReason{malformed}, ""},
	{"headers", change(func(r *admission.Request) {
		block, _ := pem.Decode(r.PEM)
		block.Headers = map[string]string{"a": "b"}
		r.PEM = pem.EncodeToMemory(block)
	}).of(request(nil)), []v1alpha1.ReviewReason{malformed}, ""},
	{"something after it", change(func(r *admission.Request) { r.PEM = append(r.PEM, r.PEM...) }).of(request(nil)), []v1alpha1.ReviewReason{malformed}, ""},
	{"a signature of another key", change(func(r *admission.Request) {
		block, _ := pem.Decode(r.PEM)
		block.Bytes[len(block.Bytes)-1] ^= 1
		r.PEM = pem.EncodeToMemory(block)
	}).of(request(nil)), []v1alpha1.ReviewReason{malformed}, "not signed with its own key"},
	{"a node's name without the group", as("system:node:node-a", "system:authenticated").of(request(nil)), []v1alpha1.ReviewReason{requester, foreign}, "in the group system:nodes"},
	{"no Node yet", as("system:node:new", "system:nodes").of(request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:new", []string{"new"}, ips("10.0.0.77")
	})), []v1alpha1.ReviewReason{notKnown}, ""},
	{"everything at once, in order", as("somebody").of(uses(server)), []v1alpha1.ReviewReason{requester, badUsages, foreign}, "somebody"},

	{"csr-01", request(names("node-b", "kubernetes-api.corp.example.com")), []v1alpha1.ReviewReason{foreign, notReported}, "node-b"},
	{"csr-02", request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:node-b", []string{"node-b"}, ips("10.0.0.12")
	}), []v1alpha1.ReviewReason{commonName, foreign}, "system:node:node-a"},
	{"csr-04", request(names("node-a", "*.compute.internal")), []v1alpha1.ReviewReason{wildcard}, "*.compute.internal"},
	{"csr-05", request(func(c *x509.CertificateRequest) {
		c.DNSNames, c.IPAddresses = []string{"node-a", "kubernetes.default.svc"}, ips("10.0.0.11", "10.96.0.1")
	}), []v1alpha1.ReviewReason{isReserved}, "kubernetes.default.svc"},
	{"csr-06", as("system:serviceaccount:minio:minio-operator", "system:serviceaccounts").of(request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:*.minio-hl.svc.cluster.local", []string{"minio.svc"}, nil
	})), []v1alpha1.ReviewReason{requester}, "minio-operator"},
	{"csr-07", as("test", "system:nodes").of(request(nil)), []v1alpha1.ReviewReason{requester, foreign}, `"test" is no node: those are system:node:<name>`},
	{"csr-08", as("system:node:young", "system:nodes").of(request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:young", []string{"young"}, ips("10.0.0.13")
	})), []v1alpha1.ReviewReason{notKnown}, "10.0.0.13"},
	{"csr-10", request(func(c *x509.CertificateRequest) {
		c.DNSNames, c.IPAddresses = []string{"node-a.internal.example"}, ips("10.0.0.11", "203.0.113.11")
	}), nil, ""},
	{"csr-11, an IP address alone", request(addresses("10.0.0.11")), nil, ""},
	{"csr-11, a DNS name alone", request(names("node-a")), nil, ""},
	{"csr-11, neither", request(names()), []v1alpha1.ReviewReason{sanRequired}, ""},
	{"csr-12, ECDSA", uses(server, signature), nil, ""},
	{"csr-12, RSA", uses(signature, encipherment, server), nil, ""},
	{"csr-12, client too", uses(signature, server, certificatesv1.UsageClientAuth), []v1alpha1.ReviewReason{badUsages}, "client auth"},
	{"csr-12, server alone", uses(server), []v1alpha1.ReviewReason{badUsages}, ""},
	{"csr-13, one too many", organization("system:nodes", "system:masters"), []v1alpha1.ReviewReason{orgInvalid}, "system:masters"},
	{"csr-13, none", organization(), []v1alpha1.ReviewReason{orgInvalid}, "empty"},
	{"csr-13, the one", organization("system:nodes"), nil, ""},
}

func sanExtension(values []asn1.RawValue) pkix.Extension {
	der, err := asn1.Marshal(values)
	if err != nil {
		panic(err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: der}
}

func rawSANs(values []asn1.RawValue) func(*x509.CertificateRequest) {
	return func(c *x509.CertificateRequest) {
		c.DNSNames, c.IPAddresses, c.ExtraExtensions = nil, nil, []pkix.Extension{sanExtension(values)}
	}
}

func TestReview(t *testing.T) {
	nodes := cluster()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			findings := admission.Review(c.request, nodes, reserved)
			var got []v1alpha1.ReviewReason
			for _, f := range findings {
				got = append(got, f.Reason)
				if f.Message == "" || len(f.Message) > 1024 || f.WarnOnly != (f.Reason == notKnown) || (len(f.Nodes) > 0) != (f.Reason == foreign) {
					t.Errorf("%+v", f)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("got %v, want %v: %+v", got, c.want, findings)
			}
			if len(findings) > 0 && !strings.Contains(findings[0].Message, c.says) {
				t.Errorf("%q does not say %q", findings[0].Message, c.says)
			}
		})
	}
}

func TestEveryReviewReasonIsProduced(t *testing.T) {
	seen := map[v1alpha1.ReviewReason]bool{}
	for _, c := range cases {
		for _, r := range c.want {
			seen[r] = true
		}
	}
	for _, r := range v1alpha1.ReviewReasons() {
		if !seen[r] {
			t.Errorf("no case yields %s", r)
		}
	}
}

func TestLocalAddressesMayBeAllowed(t *testing.T) {
	lifted := reserved
	lifted.AllowLocal = true
	if got := admission.Review(request(addresses("127.0.0.1")), cluster(), lifted); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	if got := admission.Review(request(names("localhost")), cluster(), lifted); len(got) != 1 || got[0].Reason != isReserved {
		t.Errorf("localhost: %+v", got)
	}
}

func TestDecide(t *testing.T) {
	byNode, bySoftware := request(addresses("10.0.0.12")), as("system:serviceaccount:a:b").of(request(addresses("10.0.0.12")))
	young := as("system:node:young", "system:nodes").of(request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:young", nil, ips("10.0.0.13")
	}))
	for _, c := range []struct {
		name    string
		request admission.Request
		spec    v1alpha1.AdmissionSpec
		denied  bool
		warned  bool
	}{
		{"off", byNode, v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionOff}, false, false},
		{"warn", byNode, v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionWarn}, false, true},
		{"warn is the default", byNode, v1alpha1.AdmissionSpec{}, false, true},
		{"enforce", byNode, v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionEnforce}, true, false},
		{"enforce, and no node asks", bySoftware, v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionEnforce}, false, true},
		{"enforce for all", bySoftware, v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionEnforce, DenyNonNodes: true}, true, false},
		{"warn for all", bySoftware, v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionWarn, DenyNonNodes: true}, false, true},
		{"enforce, but nothing is known", young, v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionEnforce}, false, true},
		{"enforce, and all is well", request(nil), v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionEnforce, DenyNonNodes: true}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := admission.Decide(c.request, admission.Review(c.request, cluster(), reserved), c.spec)
			if d.Denied != c.denied || (len(d.Warnings) > 0) != c.warned || (d.Message != "") != c.denied || (d.Reason != "") != c.denied {
				t.Errorf("%+v", d)
			}
		})
	}
}

func TestIndexFollowsTheNodes(t *testing.T) {
	x := &admission.Index{}
	owners := func(host string) string { return strings.Join(x.Owners(verdict.HostKey(host)), " ") }
	x.Set(node("b", nil, "10.0.0.1", "10.0.0.1", ""))
	x.Set(node("a", nil, "10.0.0.1"))
	if got := owners("::ffff:10.0.0.1"); got != "a b" {
		t.Errorf("two report it: %q", got)
	}
	x.Set(node("b", nil, "10.0.0.2"))
	if a, b := owners("10.0.0.1"), owners("10.0.0.2"); a != "a" || b != "b" {
		t.Errorf("b has moved: %q, %q", a, b)
	}
	x.Delete("a")
	x.Delete("unknown")
	if known, _ := x.Reports("a"); owners("10.0.0.1") != "" || known {
		t.Error("a is gone")
	}
	x.Set(node("c", nil, ""))
	if known, _ := x.Reports("c"); known {
		t.Error("c reports nothing")
	}
	if got := owners(""); got != "" {
		t.Errorf("an empty address is none: %q", got)
	}
}

// Whether an address is a Node's own name makes no difference.
func TestIndexOfOwnNames(t *testing.T) {
	x := &admission.Index{}
	expect := func(host, want string) {
		t.Helper()
		if got := strings.Join(x.Owners(verdict.HostKey(host)), " "); got != want {
			t.Errorf("%s is of %q, want %q", host, got, want)
		}
	}
	x.Set(node("b", nil, "B", "b.", "10.0.0.1"))
	x.Set(node("c", nil, "10.0.0.3"))
	x.Set(node("10.0.0.9", nil, "10.0.0.9"))
	expect("b", "b")
	expect("c", "")
	expect("10.0.0.9", "10.0.0.9")
	x.Set(node("a", nil, "b", "c"))
	x.Set(node("d", nil, "b"))
	expect("B.", "a b d")
	expect("c", "a")
	x.Set(node("b", nil, "10.0.0.1"))
	expect("b", "a d")
	expect("10.0.0.1", "b")
	x.Set(node("b", nil, "b"))
	expect("b", "a b d")
	expect("10.0.0.1", "")
	if known, _ := x.Reports("b"); !known {
		t.Error("b reports its name")
	}
	x.Delete("a")
	expect("b", "b d")
	expect("c", "")
	x.Delete("b")
	expect("b", "d")
	x.Delete("d")
	expect("b", "")
}

func TestSameToIndex(t *testing.T) {
	was := node("a", nil, "10.0.0.1")
	beat := node("a", map[string]string{"other": ""}, "10.0.0.1")
	beat.ResourceVersion, beat.Status.Conditions = "2", []corev1.NodeCondition{{Type: corev1.NodeReady}}
	for name, c := range map[string]struct {
		after *corev1.Node
		same  bool
	}{
		"a heartbeat":              {beat, true},
		"moved":                    {node("a", nil, "10.0.0.2"), false},
		"of the control plane now": {node("a", map[string]string{"node-role.kubernetes.io/control-plane": ""}, "10.0.0.1"), false},
	} {
		if got := admission.SameToIndex(was, c.after); got != c.same {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// FuzzReview: nothing a requester sends makes it panic, and Enforce lets no name
// through that another Node reports.
func FuzzReview(f *testing.F) {
	for _, c := range cases {
		block, _ := pem.Decode(c.request.PEM)
		if block != nil {
			f.Add(block.Bytes, c.request.User, "system:nodes")
		}
	}
	nodes := cluster()
	enforce := v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionEnforce, DenyNonNodes: true}
	f.Fuzz(func(t *testing.T, der []byte, user, group string) {
		r := request(nil)
		r.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		r.User, r.Groups = user, []string{group}
		d := admission.Decide(r, admission.Review(r, nodes, reserved), enforce)
		if len(d.Message) > 2048 {
			t.Errorf("a message of %d bytes", len(d.Message))
		}
		csr, err := x509.ParseCertificateRequest(der)
		if err != nil || d.Denied {
			return
		}
		for _, host := range append(csr.DNSNames, texts(csr.IPAddresses)...) {
			for _, owner := range nodes.Owners(verdict.HostKey(host)) {
				if owner != r.Node() {
					t.Errorf("%q was let through for %q, and %s reports it", host, user, owner)
				}
			}
		}
	})
}

func texts(ips []net.IP) []string {
	var list []string
	for _, ip := range ips {
		list = append(list, ip.String())
	}
	return list
}

// Where a SAN is no wildcard, hosts have one key if and only if crypto/x509 takes
// the SAN for the host.
func TestHostKeyIsCryptoX509s(t *testing.T) {
	hosts := []string{"node-a", "NODE-A", "node-a.", "node-b", "node-a.example", "10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "2001:DB8:0::1", "fe80::1"}
	for _, san := range hosts {
		c := &x509.Certificate{}
		if ip := net.ParseIP(san); ip != nil {
			c.IPAddresses = []net.IP{ip}
		} else {
			c.DNSNames = []string{strings.TrimSuffix(san, ".")}
		}
		for _, host := range hosts {
			covers := c.VerifyHostname(host) == nil
			if same := verdict.HostKey(san) == verdict.HostKey(host); same != covers {
				t.Errorf("SAN %q, host %q: one key %t, covered %t", san, host, same, covers)
			}
		}
	}
}
