package oracle

import (
	"bytes"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// option is one way to depart from the base.
type option struct {
	name  string
	apply func(*plan)
}

// dimension is a set of options of which a combination takes at most one. They
// apply in the order of dimensions.
type dimension struct {
	name    string
	options []option
}

const (
	defaultPort = 10250
	secondPort  = 10251

	// elsewhere are addresses at which every connection is closed.
	elsewhere, elsewhere2 = "127.254.0.1", "127.254.0.2"
)

var groups = []*group{
	{
		name:      "one CA, as kubeadm",
		preferred: []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName},
		anchors:   func(a *authorities) []*authority { return []*authority{a.root} },
	},
	{
		name: "many CAs, by default",
		preferred: []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeInternalIP,
			corev1.NodeExternalDNS, corev1.NodeExternalIP},
		anchors: func(a *authorities) []*authority {
			return []*authority{a.root, a.twinOld, a.rsaRoot, a.anchoredIntermediate, a.v1, a.notCA, a.notSigning,
				a.expired, a.notYet, a.clientOnly, a.constrained, a.pathLength0, a.sha1, a.root}
		},
		noise: true,
	},
	{
		name:      "an intermediate alone",
		preferred: []corev1.NodeAddressType{corev1.NodeExternalDNS, corev1.NodeInternalIP},
		anchors:   func(a *authorities) []*authority { return []*authority{a.intermediate, a.twinNew, a.twinOld} },
	},
}

var dimensions = []dimension{
	{"name", []option{
		{"60 characters", func(p *plan) { p.rename(p.name + strings.Repeat("n", 60-len(p.name))); p.nameAfterHost() }},
		{"dotted", func(p *plan) { p.rename(p.name + ".eu-central-1.compute.internal"); p.nameAfterHost() }},
		{"200 characters", func(p *plan) { p.rename(p.name + strings.Repeat(".abc", 49)); p.nameAfterHost() }},
	}},
	{"host", hosts()},
	{"layout", layouts()},
	{"port", []option{
		{"another one", func(p *plan) { p.port = secondPort }},
		{"0, hence the default", func(p *plan) { p.port = 0 }},
		{"negative, hence the default", func(p *plan) { p.port = -1 }},
		{"one on which nobody listens", func(p *plan) { p.port = 9 }},
		{"above 65535", func(p *plan) { p.port = 70000 }},
	}},
	{"issuer", issuers()},
	{"served", serveds()},
	{"common name", commonNames()},
	{"names", names()},
	{"time", times()},
	{"extended key usage", []option{
		{"none", func(p *plan) { p.leaf.ExtKeyUsage = nil }},
		{"any", func(p *plan) { p.leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }},
		{"client", func(p *plan) { p.leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }},
		{"client and server", func(p *plan) { p.leaf.ExtKeyUsage = append(p.leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) }},
		{"code signing", func(p *plan) { p.leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }},
		{"unknown", func(p *plan) { p.leaf.ExtKeyUsage, p.leaf.UnknownExtKeyUsage = nil, []asn1.ObjectIdentifier{{1, 2, 3}} }},
		{"unknown and server", func(p *plan) { p.leaf.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} }},
	}},
	{"key usage", []option{
		{"none", func(p *plan) { p.leaf.KeyUsage = 0 }},
		{"key encipherment", func(p *plan) { p.leaf.KeyUsage = x509.KeyUsageKeyEncipherment }},
		{"certificate signing", func(p *plan) { p.leaf.KeyUsage = x509.KeyUsageCertSign }},
		{"of a CA", func(p *plan) { p.leaf.IsCA, p.leaf.KeyUsage = true, x509.KeyUsageCertSign }},
		{"no basic constraints", func(p *plan) { p.leaf.BasicConstraintsValid = false }},
	}},
	{"key", []option{
		{"P-224", func(p *plan) { p.key = keyP224() }},
		{"P-384", func(p *plan) { p.key = keyP384() }},
		{"P-521", func(p *plan) { p.key = keyP521() }},
		{"Ed25519", func(p *plan) { p.key = keyEd25519() }},
		{"RSA 1024", func(p *plan) { p.key = keyRSA1024() }},
		{"RSA 2048", func(p *plan) { p.key = keyRSA2048() }},
	}},
	{"signature", []option{
		{"SHA-1", func(p *plan) { p.leaf.SignatureAlgorithm = sha1Of(p) }},
		{"SHA-384", func(p *plan) { p.leaf.SignatureAlgorithm = sha384Of(p) }},
		{"broken", func(p *plan) { p.corrupt = true }},
	}},
	{"extension", []option{
		{"unknown and critical", func(p *plan) { p.leaf.ExtraExtensions = append(p.leaf.ExtraExtensions, unknownExtension(true)) }},
		{"unknown", func(p *plan) { p.leaf.ExtraExtensions = append(p.leaf.ExtraExtensions, unknownExtension(false)) }},
		{"policies", func(p *plan) { p.leaf.Policies = []x509.OID{must(x509.ParseOID("1.2.3.4"))} }},
		{"policy required", func(p *plan) {
			// PolicyConstraints, requireExplicitPolicy 0 (RFC 5280, 4.2.1.11).
			p.extension(asn1.ObjectIdentifier{2, 5, 29, 36}, true, []byte{0x30, 3, 0x80, 1, 0})
		}},
		{"name constraints on a leaf", func(p *plan) { p.leaf.PermittedDNSDomains = []string{"elsewhere.test"} }},
		{"an authority key id of nobody", func(p *plan) {
			p.extension(asn1.ObjectIdentifier{2, 5, 29, 35}, false, append([]byte{0x30, 6, 0x80, 4}, "nobo"...))
		}},
	}},
	{"serial", []option{
		{"zero", ecdsaEdit(func(t *tbsCertificate) { t.SerialNumber = big.NewInt(0) })},
		{"negative", ecdsaEdit(func(t *tbsCertificate) { t.SerialNumber = big.NewInt(-5) })},
		{"40 bytes", ecdsaEdit(func(t *tbsCertificate) { t.SerialNumber = new(big.Int).SetBytes(bytes.Repeat([]byte{7}, 40)) })},
	}},
	{"encoding", []option{
		{"version 1", ecdsaEdit(func(t *tbsCertificate) { t.Version, t.Extensions = 0, nil })},
		{"extensions in version 1", ecdsaEdit(func(t *tbsCertificate) { t.Version = 0 })},
		{"an extension twice", ecdsaEdit(func(t *tbsCertificate) { t.Extensions = append(t.Extensions, t.Extensions[0]) })},
	}},
	{"server", servers()},
}

// ecdsaEdit applies where the issuer's key can sign the change.
func ecdsaEdit(edit func(*tbsCertificate)) func(*plan) {
	return func(p *plan) {
		if _, isRSA := p.issuer.key.(*rsa.PrivateKey); !isRSA {
			p.edits = append(p.edits, edit)
		}
	}
}

func sha1Of(p *plan) x509.SignatureAlgorithm {
	if _, isRSA := p.issuer.key.(*rsa.PrivateKey); isRSA {
		return x509.SHA1WithRSA
	}
	return x509.ECDSAWithSHA1
}

func sha384Of(p *plan) x509.SignatureAlgorithm {
	if _, isRSA := p.issuer.key.(*rsa.PrivateKey); isRSA {
		return x509.SHA384WithRSAPSS
	}
	return x509.ECDSAWithSHA384
}

func hosts() []option {
	named := func(format string) func(*plan) { return func(p *plan) { p.named(format) } }
	text := func(f func(*plan) string) func(*plan) { return func(p *plan) { p.dial(f(p)) } }
	return []option{
		{"IPv4 mapped into IPv6", text(func(p *plan) string { return "::ffff:" + p.ip.String() })},
		{"the same in hexadecimal", text(func(p *plan) string {
			b := p.ip.As4()
			return fmt.Sprintf("::ffff:%02x%02x:%02X%02X", b[0], b[1], b[2], b[3])
		})},
		{"leading zeros", text(leadingZeros)},
		{"leading zeros that resolve", func(p *plan) { p.records[leadingZeros(p)] = []netip.Addr{p.ip}; p.dial(leadingZeros(p)) }},
		{"IPv6", func(p *plan) { p.listenV6(p.v6().String()) }},
		{"IPv6 in full and upper case", func(p *plan) { p.listenV6(strings.ToUpper(p.v6().StringExpanded())) }},
		{"IPv6 in brackets", func(p *plan) { p.listenV6("[" + p.v6().String() + "]") }},
		{"IPv6 with a zone", func(p *plan) { p.listenV6(p.v6().String() + "%lo") }},
		{"a name", named("%s.nodes.test")},
		{"a name of one label", named("%s")},
		{"a name in upper case", func(p *plan) { p.named("%s.nodes.test"); p.dial(strings.ToUpper(p.host)) }},
		{"a name with a final dot", named("%s.nodes.test.")},
		{"a name in mixed case with a final dot", func(p *plan) { p.named("%s.nodes.test."); p.dial("N" + p.host[1:len(p.host)-5] + "Test.") }},
		{"a name with two final dots", named("%s.nodes.test..")},
		{"a name with an underscore", named("%s_x.nodes.test")},
		{"a name with a hyphen first", named("-%s.nodes.test")},
		{"a name that does not exist", text(func(p *plan) string { return p.name + ".missing.test" })},
		{"a name that the server fails on", func(p *plan) { p.named("%s.failing.test"); p.records[p.host] = nil }},
		{"a name of IPv6 only", func(p *plan) { p.named("%s.six.test"); p.ip = p.v6(); p.records[p.host] = []netip.Addr{p.ip} }},
		{"a name with umlauts", func(p *plan) {
			p.named("%s-kn\u00f6ten.nodes.test")
			p.records[p.name+"-xn--knten-kua.nodes.test"] = []netip.Addr{p.ip}
		}},
		{"an internationalized label", func(p *plan) {
			p.named("%s.b\u00fccher.test")
			ascii := p.name + ".xn--bcher-kva.test"
			p.records[ascii] = []netip.Addr{p.ip}
			p.leaf.DNSNames = append(p.leaf.DNSNames, ascii)
		}},
		{"a wildcard as a name", func(p *plan) { p.named("*.%s.test") }},
		{"a name with a space", named("%s x.test")},
		{"a name with a slash", named("%s/x")},
		{"a name with an at sign", text(func(p *plan) string { return "x@" + p.ip.String() })},
		{"a name with a percent sign", named("%s%%41.test")},
		{"a name with a port", text(func(p *plan) string { return p.ip.String() + ":10250" })},
		{"a number", func(p *plan) {
			b := p.ip.As4()
			name := fmt.Sprint(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]))
			p.records[name] = []netip.Addr{p.ip}
			p.dial(name)
		}},
		{"an IP with a final dot", text(func(p *plan) string { return p.ip.String() + "." })},
		{"a label of 64 characters", named("%s." + strings.Repeat("l", 64) + ".test")},
		{"a name of 300 characters", named("%s" + strings.Repeat(".abcdefgh", 33))},
		{"empty", text(func(*plan) string { return "" })},
		{"a blank", text(func(*plan) string { return " " })},
		{"a line feed", text(func(p *plan) string { return p.ip.String() + "\n" })},
		{"another node's address", func(p *plan) { p.host = elsewhere2 }},
	}
}

func leadingZeros(p *plan) string {
	b := p.ip.As4()
	return fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3])
}

func layouts() []option {
	at := func(f func(p *plan) []corev1.NodeAddress) func(*plan) { return func(p *plan) { p.layout = f } }
	entry := func(t corev1.NodeAddressType, address string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: t, Address: address}
	}
	return []option{
		{"a second one of the type after it", at(func(p *plan) []corev1.NodeAddress {
			return []corev1.NodeAddress{entry(p.pref[0], p.host), entry(p.pref[0], elsewhere)}
		})},
		{"a second one of the type before it", at(func(p *plan) []corev1.NodeAddress {
			return []corev1.NodeAddress{entry(p.pref[0], elsewhere), entry(p.pref[0], p.host)}
		})},
		{"a less preferred one before it", at(func(p *plan) []corev1.NodeAddress {
			return []corev1.NodeAddress{entry(p.pref[1], elsewhere), entry(p.pref[0], p.host)}
		})},
		{"of the second type", at(func(p *plan) []corev1.NodeAddress { return []corev1.NodeAddress{entry(p.pref[1], p.host)} })},
		{"of the last type", at(func(p *plan) []corev1.NodeAddress {
			return []corev1.NodeAddress{entry("Other", elsewhere), entry(p.pref[len(p.pref)-1], p.host)}
		})},
		{"of a type that is not preferred", at(func(p *plan) []corev1.NodeAddress { return []corev1.NodeAddress{entry("Other", p.host)} })},
		{"of a type in other case", at(func(p *plan) []corev1.NodeAddress {
			return []corev1.NodeAddress{entry(corev1.NodeAddressType(strings.ToLower(string(p.pref[0]))), p.host)}
		})},
		{"none", at(func(*plan) []corev1.NodeAddress { return nil })},
		{"an empty one before it", at(func(p *plan) []corev1.NodeAddress {
			return []corev1.NodeAddress{entry(p.pref[0], ""), entry(p.pref[0], p.host)}
		})},
		{"an empty one of a less preferred type before it", at(func(p *plan) []corev1.NodeAddress {
			return []corev1.NodeAddress{entry(p.pref[1], ""), entry(p.pref[0], p.host)}
		})},
	}
}

// issuers say who signs, and serve the way to a root where there is one.
func issuers() []option {
	by := func(f func(a *authorities) []*authority) func(*plan) {
		return func(p *plan) {
			line := f(p.a)
			p.issuer, p.extra = line[0], nil
			for _, ca := range line {
				if !bytes.Equal(ca.certificate.RawIssuer, ca.certificate.RawSubject) {
					p.extra = append(p.extra, ca)
				}
			}
		}
	}
	one := func(f func(a *authorities) *authority) func(*plan) {
		return by(func(a *authorities) []*authority { return []*authority{f(a)} })
	}
	return []option{
		{"the root", one(func(a *authorities) *authority { return a.root })},
		{"unknown", one(func(a *authorities) *authority { return a.unknown })},
		{"RSA", one(func(a *authorities) *authority { return a.rsaRoot })},
		{"of an old key", one(func(a *authorities) *authority { return a.twinOld })},
		{"of a new key", one(func(a *authorities) *authority { return a.twinNew })},
		{"an anchored intermediate", one(func(a *authorities) *authority { return a.anchoredIntermediate })},
		{"a root of version 1", one(func(a *authorities) *authority { return a.v1 })},
		{"a root that is no CA", one(func(a *authorities) *authority { return a.notCA })},
		{"a root that may not sign", one(func(a *authorities) *authority { return a.notSigning })},
		{"a root that has expired", one(func(a *authorities) *authority { return a.expired })},
		{"a root that is not yet valid", one(func(a *authorities) *authority { return a.notYet })},
		{"a root for clients", one(func(a *authorities) *authority { return a.clientOnly })},
		{"a root for other names", one(func(a *authorities) *authority { return a.constrained })},
		{"a root of path length 0", one(func(a *authorities) *authority { return a.pathLength0 })},
		{"a root signed with SHA-1", one(func(a *authorities) *authority { return a.sha1 })},
		{"an intermediate", one(func(a *authorities) *authority { return a.intermediate })},
		{"two intermediates", by(func(a *authorities) []*authority { return []*authority{a.deep, a.intermediate} })},
		{"cross-signed", by(func(a *authorities) []*authority { return []*authority{a.crossed, a.crossedByUnknown, a.misleading} })},
		{"cross-signed by the unknown", func(p *plan) {
			p.issuer, p.extra = p.a.crossed, []*authority{p.a.misleading, p.a.crossedByUnknown}
		}},
		{"an expired intermediate", one(func(a *authorities) *authority { return a.expiredInt })},
		{"an intermediate that is not yet valid", one(func(a *authorities) *authority { return a.future })},
		{"an intermediate for clients", one(func(a *authorities) *authority { return a.clientOnlyInt })},
		{"an intermediate for servers too", one(func(a *authorities) *authority { return a.mailInt })},
		{"an intermediate that excludes", one(func(a *authorities) *authority { return a.excludingInt })},
		{"an intermediate that permits", one(func(a *authorities) *authority { return a.permittedInt })},
		{"an intermediate that is no CA", one(func(a *authorities) *authority { return a.notCAInt })},
		{"an intermediate that may not sign", one(func(a *authorities) *authority { return a.notSigningInt })},
		{"an intermediate of path length 0", one(func(a *authorities) *authority { return a.pathLength0Int })},
		{"one below path length 0", by(func(a *authorities) []*authority { return []*authority{a.belowPath0, a.pathLength0Int} })},
		{"an intermediate with a critical extension", one(func(a *authorities) *authority { return a.unknownCriticalInt })},
		{"an intermediate of version 1", one(func(a *authorities) *authority { return a.v1Int })},
		{"itself", func(p *plan) { p.issuer, p.extra = &authority{key: p.key}, nil }},
		{"unknown, but the leaf is in the bundle", func(p *plan) { p.issuer, p.extra, p.pinned = p.a.unknown, nil, true }},
		{"itself, and in the bundle", func(p *plan) { p.issuer, p.extra, p.pinned = &authority{key: p.key}, nil, true }},
	}
}

// serveds change what is shown after the leaf.
func serveds() []option {
	return []option{
		{"nothing more", func(p *plan) { p.extra = nil }},
		{"the intermediates in reverse", func(p *plan) {
			for i, j := 0, len(p.extra)-1; i < j; i, j = i+1, j-1 {
				p.extra[i], p.extra[j] = p.extra[j], p.extra[i]
			}
		}},
		{"the root too", func(p *plan) { p.extra = append(p.extra, p.a.root) }},
		{"the unknown root too", func(p *plan) { p.extra = append(p.extra, p.a.unknown) }},
		{"strangers first", func(p *plan) { p.extra = append([]*authority{p.a.unknown, p.a.deep, p.a.v1}, p.extra...) }},
		{"no certificate", func(p *plan) { p.raw = append(p.raw, []byte("no certificate")) }},
		{"30 strangers", func(p *plan) {
			for range 30 {
				p.extra = append(p.extra, p.a.misleading)
			}
		}},
		{"a critical extension", func(p *plan) { p.extra = append(p.extra, p.a.unknownCriticalInt) }},
	}
}

func commonNames() []option {
	is := func(f func(p *plan) string) func(*plan) { return func(p *plan) { p.subject(f(p)) } }
	two := func(first, last func(p *plan) string) func(*plan) {
		return func(p *plan) {
			p.subject(last(p))
			p.leaf.Subject = pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
				{Type: commonNameID, Value: first(p)}, {Type: commonNameID, Value: last(p)}}}
		}
	}
	right := func(p *plan) string { return "system:node:" + p.name }
	return []option{
		{"bare", is(func(p *plan) string { return p.name })},
		{"empty", is(func(*plan) string { return "" })},
		{"another node's", is(func(p *plan) string { return right(p) + "1" })},
		{"upper case", is(func(p *plan) string { return "system:node:" + strings.ToUpper(p.name) })},
		{"prefix in upper case", is(func(p *plan) string { return "SYSTEM:NODE:" + p.name })},
		{"with a space", is(func(p *plan) string { return right(p) + " " })},
		{"with a final dot", is(func(p *plan) string { return right(p) + "." })},
		{"with a NUL", is(func(p *plan) string { return right(p) + "\x00" })},
		{"cut at 64 bytes", is(func(p *plan) string { return right(p)[:min(64, len(right(p)))] })},
		{"60 KiB", is(func(*plan) string { return strings.Repeat("x", 30<<10) })},
		{"two, the right one last", two(func(*plan) string { return "system:node:other" }, right)},
		{"two, the right one first", two(right, func(*plan) string { return "system:node:other" })},
	}
}

var commonNameID = asn1.ObjectIdentifier{2, 5, 4, 3}

func names() []option {
	only := func(dns []string, ips ...net.IP) func(*plan) {
		return func(p *plan) { p.leaf.DNSNames, p.leaf.IPAddresses = dns, ips }
	}
	dns := func(f func(p *plan) []string) func(*plan) {
		return func(p *plan) { p.leaf.DNSNames, p.leaf.IPAddresses = f(p), nil }
	}
	domain := func(p *plan) string { _, rest, _ := strings.Cut(p.host, "."); return strings.ToLower(rest) }
	sanID := asn1.ObjectIdentifier{2, 5, 29, 17}
	raw := func(critical bool, f func(p *plan) []asn1.RawValue) func(*plan) {
		return func(p *plan) {
			p.leaf.DNSNames, p.leaf.IPAddresses = nil, nil
			p.extension(sanID, critical, must(asn1.Marshal(f(p))))
		}
	}
	value := func(tag int, b []byte) asn1.RawValue {
		return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tag, Bytes: b}
	}
	return []option{
		{"none", only(nil)},
		{"none, but the common name", func(p *plan) { only(nil)(p); p.subject(p.host) }},
		{"the node's DNS name alone", dns(func(p *plan) []string { return []string{p.name} })},
		{"the address alone", func(p *plan) { p.leaf.DNSNames = nil }},
		{"the host as DNS, IP or not", raw(false, func(p *plan) []asn1.RawValue { return []asn1.RawValue{value(2, []byte(ascii(p.host)))} })},
		{"another address", only([]string{"other"}, net.IPv4(192, 0, 2, 1))},
		{"a wildcard of the domain", dns(func(p *plan) []string { return []string{"*." + domain(p)} })},
		{"a wildcard of everything", dns(func(*plan) []string { return []string{"*"} })},
		{"a wildcard of the top", dns(func(*plan) []string { return []string{"*.test"} })},
		{"a wildcard within a label", dns(func(p *plan) []string { return []string{"n*." + domain(p)} })},
		{"a wildcard of the second label", dns(func(p *plan) []string { return []string{p.name + ".*.test"} })},
		{"in upper case", dns(func(p *plan) []string { return []string{strings.ToUpper(ascii(p.host))} })},
		{"with a final dot", dns(func(p *plan) []string { return []string{ascii(p.host) + "."} })},
		{"200 others", only(many(200))},
		{"200 others and the right ones", func(p *plan) { p.leaf.DNSNames = append(many(200), p.leaf.DNSNames...) }},
		{"e-mail", func(p *plan) { only(nil)(p); p.leaf.EmailAddresses = []string{"root@" + ascii(p.host)} }},
		{"URI", func(p *plan) { only(nil)(p); p.leaf.URIs = []*url.URL{{Scheme: "https", Host: "n.test"}} }},
		{"critical", func(p *plan) {
			var list []asn1.RawValue
			for _, ip := range p.leaf.IPAddresses {
				if v4 := ip.To4(); v4 != nil {
					ip = v4
				}
				list = append(list, value(7, ip))
			}
			for _, name := range p.leaf.DNSNames {
				list = append(list, value(2, []byte(name)))
			}
			p.leaf.DNSNames, p.leaf.IPAddresses = nil, nil
			p.extension(sanID, true, must(asn1.Marshal(list)))
		}},
		{"IPv4 in sixteen bytes", raw(false, func(p *plan) []asn1.RawValue { b := p.ip.As16(); return []asn1.RawValue{value(7, b[:])} })},
		{"an IP of five bytes", raw(false, func(*plan) []asn1.RawValue { return []asn1.RawValue{value(7, []byte{127, 0, 0, 1, 1})} })},
		{"DNS with a space", raw(false, func(p *plan) []asn1.RawValue { return []asn1.RawValue{value(2, []byte(p.name+" x"))} })},
		{"DNS beyond ASCII", raw(false, func(*plan) []asn1.RawValue { return []asn1.RawValue{value(2, []byte("kn\u00f6ten"))} })},
		{"an empty DNS name", raw(false, func(*plan) []asn1.RawValue { return []asn1.RawValue{value(2, nil)} })},
		{"an empty list", raw(false, func(*plan) []asn1.RawValue { return []asn1.RawValue{} })},
		{"a critical other name", raw(true, func(*plan) []asn1.RawValue { return []asn1.RawValue{value(8, []byte{0x2a, 3})} })},
	}
}

// ascii keeps what a DNS SAN may hold.
func ascii(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x21 || r > 0x7e {
			return -1
		}
		return r
	}, s)
}

func many(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("other-%d.test", i)
	}
	return list
}

func times() []option {
	from := func(before, after time.Duration) func(*plan) {
		return func(p *plan) { p.leaf.NotBefore, p.leaf.NotAfter = p.now.Add(before), p.now.Add(after) }
	}
	const hour = time.Hour
	return []option{
		{"expired long ago", from(-2000*hour, -1000*hour)},
		{"expired a second ago", from(-hour, -time.Second)},
		{"not yet valid", from(hour, 2*hour)},
		{"from this second", from(0, hour)},
		{"upside down", from(hour, -hour)},
		{"until 2049 and on", func(p *plan) { p.leaf.NotAfter = time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"for ever", func(p *plan) { p.leaf.NotAfter = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) }},
		{"since 1950", func(p *plan) { p.leaf.NotBefore = time.Date(1950, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"beyond its CA", func(p *plan) { p.leaf.NotAfter = p.now.Add(40 * 365 * 24 * hour) }},
	}
}

// servers say how TLS is spoken, or what is instead.
func servers() []option {
	config := func(f func(*tls.Config)) func(*plan) { return func(p *plan) { p.configure = append(p.configure, f) } }
	suites := func(ids ...uint16) func(*plan) {
		return config(func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, ids })
	}
	curves := func(ids ...tls.CurveID) func(*plan) { return config(func(c *tls.Config) { c.CurvePreferences = ids }) }
	wire := func(w certs.Wire) func(*plan) { return func(p *plan) { p.wire = w } }
	return []option{
		{"TLS 1.2", config(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })},
		{"TLS 1.3", config(func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 })},
		{"TLS 1.1", wire(certs.WireTLS11)},
		{"RSA key exchange", suites(tls.TLS_RSA_WITH_AES_128_GCM_SHA256)},
		{"ECDHE-RSA", suites(tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)},
		{"ECDHE-ECDSA", suites(tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)},
		{"CBC", suites(tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA)},
		{"CBC with SHA-256", suites(tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256)},
		{"RC4", suites(tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA, tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA)},
		{"ChaCha20", suites(tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)},
		{"P-521", curves(tls.CurveP521)},
		{"P-256", curves(tls.CurveP256)},
		{"ML-KEM", curves(tls.X25519MLKEM768)},
		{"no client certificate", config(func(c *tls.Config) { c.ClientAuth = tls.NoClientCert })},
		{"client certificate required", config(func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert })},
		{"client certificate required, TLS 1.2", wire(certs.WireTLSRequireClientCert12)},
		{"no certificate", wire(certs.WireNoCertificate)},
		{"plain HTTP", wire(certs.WirePlainHTTP)},
		{"closes", wire(certs.WireCloseAfterHello)},
		{"resets", wire(certs.WireReset)},
		{"slow", wire(certs.WireSlow)},
		{"another key signs, TLS 1.2", wire(certs.WireWrongKey12)},
		{"another key signs, TLS 1.3", wire(certs.WireWrongKey13)},
		{"no signature, TLS 1.2", wire(certs.WireAlertAfterCertificate12)},
		{"no signature, TLS 1.3", wire(certs.WireAlertAfterCertificate13)},
		{"closes instead of a signature, TLS 1.2", wire(certs.WireCloseAfterCertificate12)},
		{"closes instead of a signature, TLS 1.3", wire(certs.WireCloseAfterCertificate13)},
		{"an RSA key of 8200 bits", func(p *plan) {
			p.wire = certs.WireWrongKey13
			modulus := new(big.Int).Lsh(big.NewInt(1), 8199)
			modulus.SetBit(modulus, 0, 1)
			p.replaced = [][]byte{p.issuer.issue(p.leaf, &rsa.PublicKey{N: modulus, E: 65537}, nil)}
		}},
		{"a chain of junk", func(p *plan) { p.replaced = [][]byte{[]byte("no certificate")} }},
	}
}
