package verdict

import (
	"crypto/x509"
	"net/netip"
	"strings"
)

// Subject is the names of a certificate, or of a request for one.
type Subject struct {
	CommonName  string
	DNSNames    []string
	IPAddresses []netip.Addr // unmapped
}

// SubjectOf a certificate.
func SubjectOf(c *x509.Certificate) Subject {
	return subject(c.Subject.CommonName, c.DNSNames, c.IPAddresses)
}

// SubjectOfRequest is that of the certificate which the request asks for.
func SubjectOfRequest(r *x509.CertificateRequest) Subject {
	return subject(r.Subject.CommonName, r.DNSNames, r.IPAddresses)
}

func subject[IP ~[]byte](commonName string, dnsNames []string, ips []IP) Subject {
	s := Subject{CommonName: commonName, DNSNames: dnsNames}
	for _, b := range ips {
		if ip, ok := netip.AddrFromSlice(b); ok {
			s.IPAddresses = append(s.IPAddresses, ip.Unmap())
		}
	}
	return s
}

// Identifies says that the common name is the node's, byte for byte (KEP-4872).
func (s Subject) Identifies(nodeName string) bool { return s.CommonName == CommonNameOf(nodeName) }

// HostKey gives hosts that crypto/x509 takes for the same one key: IP addresses
// compare as values, whether mapped into IPv6 or not, names without case and
// final dot. A wildcard is like no host.
func HostKey(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" {
		return ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
