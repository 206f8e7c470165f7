package verdict

import (
	"bytes"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// selfSignedName is what client-go's GenerateSelfSignedCertKey writes, which
// the kubelet uses where it is given no certificate: host@unixtime.
var selfSignedName = regexp.MustCompile(`@[0-9]{9,11}$`)

// hint names the known pattern behind the first failing check.
func hint(e *evidence, v Verdict, findings []Finding) string {
	if len(findings) == 0 {
		return ""
	}
	if IsSelfSignedFallback(e.leaf.Subject.CommonName, e.leaf.Issuer.CommonName) {
		return "this is the kubelet's self-signed fallback; set serverTLSBootstrap: true in its configuration and approve its request"
	}
	//exhaustive:ignore
	switch v.Reason {
	case v1alpha1.ReasonAddressMismatch:
		return addressHint(e)
	case v1alpha1.ReasonUnknownAuthority:
		return authorityHint(e)
	case v1alpha1.ReasonCommonNameMismatch:
		return commonNameHint(e)
	}
	return ""
}

// IsSelfSignedFallback recognises the pair that a kubelet makes for itself.
func IsSelfSignedFallback(commonName, issuer string) bool {
	return selfSignedName.MatchString(commonName) && strings.Contains(issuer, "-ca@")
}

func addressHint(e *evidence) string {
	ip, err := netip.ParseAddr(e.exp.Endpoint.Host)
	if err != nil {
		return ""
	}
	for _, dns := range e.leaf.DNSNames {
		if in, err := netip.ParseAddr(dns); err == nil && in.Unmap() == ip.Unmap() {
			return "the IP address stands in a DNS SAN, where it does not count; it belongs into an IP SAN"
		}
	}
	if len(e.leaf.IPAddresses) == 0 {
		return "the certificate has no IP SANs, but kube-apiserver dials an IP address"
	}
	return ""
}

func authorityHint(e *evidence) string {
	for _, c := range e.bundle.Certificates {
		if bytes.Equal(c.RawSubject, e.leaf.RawIssuer) {
			return "the trust bundle holds a CA of that very name, but with another key"
		}
	}
	last := e.leaf
	if n := len(e.served); n > 0 {
		last = e.served[n-1]
	}
	if bytes.Equal(last.RawSubject, last.RawIssuer) {
		return "the kubelet serves a root of its own that is not in the trust bundle"
	}
	return fmt.Sprintf("neither the kubelet serves nor the trust bundle holds the issuer %s", Quote(last.Issuer.String()))
}

func commonNameHint(e *evidence) string {
	cn, want := e.leaf.Subject.CommonName, e.exp.CommonName()
	switch other, named := strings.CutPrefix(cn, commonNamePrefix); {
	case cn == e.exp.NodeName:
		return "a bare node name is what k3s, RKE2 and kops issue: it is so on every node, and a certificate made by hand does not last; leave the check off until the distribution issues system:node: names"
	case strings.EqualFold(cn, want):
		return "it differs in case only, and the comparison is byte for byte"
	case cn == "":
		return "the certificate has no common name"
	case named:
		return fmt.Sprintf("this is the identity of another node, %s", Quote(other))
	}
	return ""
}
