package certs

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
)

var requests atomic.Uint64

// Request is a PEM certificate request with a fresh key, as a kubelet makes it
// for a serving certificate: hosts that are IP addresses become IP SANs.
func Request(nodeName string, hosts ...string) []byte {
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}},
	}
	for _, host := range hosts {
		if ip, err := netip.ParseAddr(host); err == nil {
			template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	return RequestOf(template)
}

// RequestManifest is a CertificateSigningRequest with that, for kubectl.
func RequestManifest(name, nodeName string, hosts ...string) string {
	return fmt.Sprintf(`apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: %s}
spec:
  signerName: kubernetes.io/kubelet-serving
  usages: [digital signature, server auth]
  request: %s
`, name, base64.StdEncoding.EncodeToString(Request(nodeName, hosts...)))
}

// RequestOf signs any template with a fresh key. One that cannot be signed is a
// programming error and panics.
func RequestOf(template *x509.CertificateRequest) []byte {
	der, err := x509.CreateCertificateRequest(rand.Reader, template, keyOf(fmt.Sprintf("request %d", requests.Add(1))))
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
