package verdict

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// selfSignedName is what client-go's GenerateSelfSignedCertKey writes, which
// the kubelet uses where it is given no certificate: host@unixtime.
var selfSignedName = regexp.MustCompile(`@[0-9]{4,11}$`)

// maxCommonName is the limit of X.520 (ub-common-name), which crypto/x509 does
// not enforce and OpenSSL does.
const maxCommonName = 64

// unresolvedHint: only a look from where kube-apiserver runs could say more.
const unresolvedHint = "kube-apiserver asks its own resolver, and tries no other address either; if the name does not resolve there, " +
	"put InternalIP before its type in --kubelet-preferred-address-types"

// hint says what to do about the node's request, or names the known pattern
// behind the first failing check.
func hint(e *evidence, v Verdict, findings []Finding) string {
	if len(findings) == 0 {
		return ""
	}
	if h := requestHint(e.exp.Request, e.leaf); h != "" {
		return h
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
	return selfSignedName.MatchString(commonName) && (strings.Contains(issuer, "-ca@") || issuer == commonName)
}

// IsSelfSigned says that a certificate is signed by its own key.
func IsSelfSigned(c *x509.Certificate) bool {
	return bytes.Equal(c.RawSubject, c.RawIssuer) && c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

// IsLongNodeName says that the node's common name exceeds what CAs issue that
// keep the limit of X.520.
func IsLongNodeName(nodeName string) bool { return len(CommonNameOf(nodeName)) > maxCommonName }

// OtherNode is the node whose identity a common name is, where it is not merely
// another spelling of nodeName.
func OtherNode(commonName, nodeName string) (other string, ok bool) {
	other, named := strings.CutPrefix(commonName, commonNamePrefix)
	if !named || other == "" || strings.EqualFold(other, nodeName) || oneHost(other, nodeName) || cutOff(commonName, nodeName) {
		return "", false
	}
	return other, true
}

// oneHost says that one of two names is the other without its domain.
func oneHost(a, b string) bool {
	long, short := strings.ToLower(a), strings.ToLower(b)
	if len(long) < len(short) {
		long, short = short, long
	}
	return short != "" && strings.HasPrefix(long, short+".")
}

// cutOff says that a common name is the node's, as far as X.520 lets it go.
func cutOff(commonName, nodeName string) bool {
	return IsLongNodeName(nodeName) && commonName == CommonNameOf(nodeName)[:maxCommonName]
}

func addressHint(e *evidence) string {
	names := len(e.leaf.DNSNames) + len(e.leaf.IPAddresses)
	switch cn := e.leaf.Subject.CommonName; {
	case names == 0 && cn != "" && (strings.EqualFold(cn, e.exp.Endpoint.Host) || strings.EqualFold(cn, e.exp.NodeName)):
		return "the name stands in the common name alone, where it has not counted since Go 1.15; it belongs into a SAN"
	case names == 0:
		return "the certificate has no DNS or IP SAN at all, as a client certificate has not"
	}
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

// authorityHint climbs from the leaf as far as signatures lead, and says why
// there is no way on.
func authorityHint(e *evidence) string {
	if IsSelfSigned(e.leaf) {
		return "the certificate is signed by its own key, so no CA vouches for it; let the kubelet request one that a CA signs"
	}
	top := e.leaf
	for range e.served { // at most one step for each
		issuer := issuerOf(top, e.served)
		if issuer == nil || bytes.Equal(issuer.RawSubject, issuer.RawIssuer) {
			break
		}
		top = issuer
	}
	for _, ca := range slices.Concat(e.bundle.Certificates, e.served) {
		if !bytes.Equal(ca.RawSubject, top.RawIssuer) || ca.Equal(top) {
			continue
		}
		if h := namesakeHint(e, top, ca); h != "" {
			return h
		}
	}
	if bytes.Equal(top.RawSubject, top.RawIssuer) || issuerOf(top, e.served) != nil {
		return "the kubelet serves a root of its own that is not in the trust bundle"
	}
	return fmt.Sprintf("neither the kubelet serves nor the trust bundle holds the issuer %s", Quote(top.Issuer.String()))
}

// issuerOf finds the certificate that signed c, other than itself.
func issuerOf(c *x509.Certificate, among []*x509.Certificate) *x509.Certificate {
	for _, ca := range among {
		if bytes.Equal(ca.RawSubject, c.RawIssuer) && !ca.Equal(c) && c.CheckSignatureFrom(ca) == nil {
			return ca
		}
	}
	return nil
}

// namesakeHint says why a CA of the right name does not do for c; "" where the
// signature is right, and the reason lies further up.
func namesakeHint(e *evidence, c, ca *x509.Certificate) string {
	err := c.CheckSignatureFrom(ca)
	var constraint x509.ConstraintViolationError
	var insecure x509.InsecureAlgorithmError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &constraint):
		return fmt.Sprintf("the issuer %s may not sign others: it lacks the basic constraints of a CA, or the key usage for certificates", Quote(ca.Subject.String()))
	case errors.As(err, &insecure):
		if !c.Equal(e.leaf) {
			return fmt.Sprintf("the signature of the CA %s is made with %s, which is insecure and refused", Quote(c.Subject.String()), c.SignatureAlgorithm)
		}
		return fmt.Sprintf("the signature is made with %s, which is insecure and refused", c.SignatureAlgorithm)
	}
	return "there is a CA of that very name, but with another key"
}

func commonNameHint(e *evidence) string {
	cn, node := e.leaf.Subject.CommonName, e.exp.NodeName
	other, another := OtherNode(cn, node)
	switch {
	case strings.EqualFold(cn, node):
		return "a bare node name is what k3s, RKE2 and kops issue: it is so on every node, and a certificate made by hand does not last; leave the check off until the distribution issues system:node: names"
	case strings.EqualFold(cn, CommonNameOf(node)):
		return "it differs in case only, and the comparison is byte for byte"
	case cutOff(cn, node):
		return "it is cut off at 64 characters, the limit of X.520, which this issuer keeps: a node name over 52 characters is too long for it"
	case cn == "":
		return "the certificate has no common name"
	case oneHost(strings.TrimPrefix(cn, commonNamePrefix), node):
		return "it is the node's name with less or more of its domain, and no part of a name will do"
	case another:
		return fmt.Sprintf("this is the identity of another node, %s", Quote(other))
	}
	return ""
}
