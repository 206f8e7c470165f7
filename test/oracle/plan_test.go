package oracle

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// group is a start of kube-apiserver: what its flags say.
type group struct {
	name      string
	preferred []corev1.NodeAddressType
	// anchors of the bundle, the one that signs unless an option says otherwise
	// first; and whether other PEM text comes before them.
	anchors func(*authorities) []*authority
	noise   bool
}

// plan is one combination being made into a Node and its kubelet.
type plan struct {
	now  time.Time
	a    *authorities
	pref []corev1.NodeAddressType

	name    string
	ip      netip.Addr // where the kubelet listens, and nobody else
	host    string     // what the Node reports in the place that matters
	records map[string][]netip.Addr
	layout  func(p *plan) []corev1.NodeAddress
	port    int32

	leaf       *x509.Certificate
	commonName string // as crypto/x509 will read it
	key        crypto.Signer
	issuer     *authority
	extra      []*authority
	raw        [][]byte // served after extra
	edits      []func(*tbsCertificate)
	corrupt    bool
	replaced   [][]byte // served instead of all that
	pinned     bool

	wire      certs.Wire
	configure []func(*tls.Config)
}

// newPlan is the base, which every option departs from: all is well.
func newPlan(a *authorities, g *group, number int, now time.Time) *plan {
	p := &plan{
		now: now, a: a, pref: g.preferred, name: fmt.Sprintf("n%d", number), ip: fleet.Address(number),
		records: map[string][]netip.Addr{}, port: defaultPort,
		key: newP256(), issuer: g.anchors(a)[0], wire: certs.WireTLS,
	}
	p.host = p.ip.String()
	p.layout = func(p *plan) []corev1.NodeAddress {
		return []corev1.NodeAddress{{Type: "Other", Address: "192.0.2.7"}, {Type: p.pref[0], Address: p.host}}
	}
	p.rename(p.name)
	p.leaf = &x509.Certificate{
		SerialNumber: serial(), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	p.subject(p.commonName)
	p.nameAfterHost()
	return p
}

func (p *plan) rename(name string) {
	p.name, p.commonName = name, "system:node:"+name
	if p.leaf != nil {
		p.subject(p.commonName)
	}
}

func (p *plan) subject(commonName string) {
	p.commonName = commonName
	p.leaf.Subject = pkix.Name{Organization: []string{"system:nodes"}, CommonName: commonName}
}

// dial has the Node report another host, and the certificate cover it where a
// certificate can.
func (p *plan) dial(host string) {
	p.host = host
	p.nameAfterHost()
}

func (p *plan) nameAfterHost() {
	p.leaf.DNSNames, p.leaf.IPAddresses = []string{p.name}, []net.IP{p.ip.AsSlice()}
	if ip := net.ParseIP(p.host); ip != nil {
		p.leaf.IPAddresses = append(p.leaf.IPAddresses, ip)
		return
	}
	name := strings.ToLower(strings.TrimSuffix(p.host, "."))
	if name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" {
		p.leaf.DNSNames = append(p.leaf.DNSNames, name)
	}
}

// named is a host name of the node's own that resolves to it.
func (p *plan) named(format string) {
	name := fmt.Sprintf(format, p.name)
	p.records[name] = []netip.Addr{p.ip}
	p.dial(name)
}

func (p *plan) v6() netip.Addr {
	b := p.ip.As4()
	return netip.AddrFrom16([16]byte{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, b[1], b[2], b[3]})
}

// listenV6 moves the kubelet to its IPv6 address.
func (p *plan) listenV6(host string) {
	p.ip = p.v6()
	p.dial(host)
}

func (p *plan) node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Status: corev1.NodeStatus{
			Addresses:       p.layout(p),
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: p.port}},
		},
	}
}

// served makes the certificates; once, since a bundle may pin the leaf.
func (p *plan) served() certs.Served {
	if p.replaced != nil {
		return certs.Served{Chain: p.replaced, Key: p.key}
	}
	var edit func(*tbsCertificate)
	if len(p.edits) > 0 {
		edit = func(t *tbsCertificate) {
			for _, e := range p.edits {
				e(t)
			}
		}
	}
	leaf := p.issuer.issue(p.leaf, p.key.Public(), edit)
	if p.corrupt {
		leaf[len(leaf)-1] ^= 1
	}
	chain := [][]byte{leaf}
	for _, ca := range p.extra {
		chain = append(chain, ca.certificate.Raw)
	}
	return certs.Served{Chain: append(chain, p.raw...), Key: p.key}
}

func (p *plan) behaviour(served certs.Served) fleet.Behaviour {
	return fleet.Behaviour{Wire: p.wire, Served: served, Configure: func(c *tls.Config) {
		for _, f := range p.configure {
			f(c)
		}
	}}
}

// extension replaces what CreateCertificate would write for the template.
func (p *plan) extension(id asn1.ObjectIdentifier, critical bool, value []byte) {
	p.leaf.ExtraExtensions = append(p.leaf.ExtraExtensions, pkix.Extension{Id: id, Critical: critical, Value: value})
}

func cidrs(texts ...string) []*net.IPNet {
	var list []*net.IPNet
	for _, text := range texts {
		_, network, err := net.ParseCIDR(text)
		list = append(list, must(network, err))
	}
	return list
}
