package certs

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// Defect is one way in which a kubelet's serving can be wrong, or a way in
// which it is unusual and right.
type Defect struct {
	// Name in kebab case, fit for a node's name.
	Name string
	// Summary is one plain sentence.
	Summary string
	// Wire is how the server behaves on the wire.
	Wire Wire
	// Serve gives what the server of id shows; nil where nothing is shown. Its
	// Key is nil where the server does not hold the leaf's key.
	Serve func(w *World, id Identity) Served
	// Status is "True", "False" or "Unknown", what the node's condition must
	// say of a node that is not new.
	Status string
	// Reason goes with Status.
	Reason v1alpha1.Reason
	// Fails lists every check that must fail, in the order of
	// v1alpha1.CheckNames; the others pass. It means nothing unless Captured.
	Fails []v1alpha1.CheckName
	// Unreadable says that crypto/tls refuses the certificates before a client
	// gets hold of them.
	Unreadable bool
}

// Captured tells whether a client made of crypto/tls gets hold of the served
// chain. In TLS 1.2 crypto/tls looks at the Certificate message only once the
// message after it has arrived, so what ends right there captures nothing.
func (d Defect) Captured() bool {
	if d.Wire == WireAlertAfterCertificate12 || d.Wire == WireCloseAfterCertificate12 {
		return false
	}
	return d.Wire.ShowsCertificate() && !d.Unreadable
}

// KeyProven tells whether a client gets proof that the server holds the key of
// the chain that it captured. Without it nothing may be True.
func (d Defect) KeyProven() bool { return d.Wire.ProvesKey() && !d.Unreadable }

const (
	statusTrue    = "True"
	statusFalse   = "False"
	statusUnknown = "Unknown"
)

// Defects lists them all, the good ones first. Every call gives a fresh list.
func Defects() []Defect {
	return slices.Concat(goodOnes(), wrongNames(), wrongAuthorities(), wrongTimes(), wrongAddresses(),
		wrongUses(), unreadables(), noTLS(), noEvidence(), stolenOnes())
}

func goodOnes() []Defect {
	good := func(name, summary string, wire Wire, serve func(*World, Identity) Served) Defect {
		return Defect{Name: name, Summary: summary, Wire: wire, Serve: serve,
			Status: statusTrue, Reason: v1alpha1.ReasonVerified}
	}
	return []Defect{
		good("good", "The certificate is what the kubelet-serving signer issues.", WireTLS, issued(nil)),
		good("good-tls12", "A good certificate, TLS 1.2 at most.", WireTLS12, issued(nil)),
		good("served-intermediate", "The certificate comes from an intermediate CA, which is served with it.", WireTLS,
			func(w *World, id Identity) Served { return w.Intermediate.Issue(Template(id)).With(w.Intermediate) }),
		good("slow", "A good certificate, served late but in time.", WireSlow, issued(nil)),
		good("client-certificate-required", "A good certificate; the handshake then fails for want of a client certificate.",
			WireTLSRequireClientCert12, issued(nil)),
	}
}

func wrongNames() []Defect {
	named := func(name, summary string, change func(*World, Identity, *x509.Certificate)) Defect {
		return refused(name, summary, v1alpha1.ReasonCommonNameMismatch, issued(change), v1alpha1.CheckCommonName)
	}
	return []Defect{
		named("bare-node-name", "The common name is the node's name without system:node:, as k3s, RKE2 and kops issue it.",
			func(_ *World, id Identity, t *x509.Certificate) { t.Subject = pkix.Name{CommonName: id.NodeName} }),
		named("other-node", "The certificate was issued to another node, which once had this address.",
			func(w *World, _ Identity, t *x509.Certificate) {
				t.Subject.CommonName = "system:node:" + w.VictimName
				t.DNSNames = []string{w.VictimName}
			}),
		named("case-differs", "The common name differs from the node's in upper and lower case only.",
			func(_ *World, id Identity, t *x509.Certificate) {
				t.Subject.CommonName = "system:node:" + strings.ToUpper(id.NodeName)
			}),
		named("empty-common-name", "The subject has no common name.",
			func(_ *World, _ Identity, t *x509.Certificate) { t.Subject.CommonName = "" }),
	}
}

func wrongAuthorities() []Defect {
	reason, chain := v1alpha1.ReasonUnknownAuthority, v1alpha1.CheckChain
	return []Defect{
		refused("self-signed", "The kubelet signed its own certificate, host@time, for its host name only: kubeadm's default.",
			v1alpha1.ReasonAddressMismatch, selfSigned(false), chain, v1alpha1.CheckAddress, v1alpha1.CheckCommonName),
		refused("self-signed-named", "The kubelet signed its own certificate, host@time, for its address too.",
			reason, selfSigned(true), chain, v1alpha1.CheckCommonName),
		refused("unknown-ca", "The issuer is not in the trust bundle.", reason,
			func(w *World, id Identity) Served { return w.UnknownCA.Issue(Template(id)) }, chain),
		refused("twin-ca", "The issuer has the name of a trusted CA and another key.", reason,
			func(w *World, id Identity) Served { return w.TwinCA.Issue(Template(id)) }, chain),
		refused("missing-intermediate", "The certificate comes from an intermediate CA, which is not served.", reason,
			func(w *World, id Identity) Served { return w.Intermediate.Issue(Template(id)) }, chain),
		refused("name-constraints", "The issuing CA, served, may not issue for this address.", v1alpha1.ReasonCertificateInvalid,
			func(w *World, id Identity) Served { return w.constrained.Issue(Template(id)).With(w.constrained) }, chain),
	}
}

func wrongTimes() []Defect {
	expire := func(w *World, t *x509.Certificate) {
		t.NotBefore, t.NotAfter = w.Now.Add(-20*time.Hour), w.Now.Add(-time.Hour)
	}
	return []Defect{
		refused("expired", "The certificate has expired.", v1alpha1.ReasonCertificateExpired,
			issued(func(w *World, _ Identity, t *x509.Certificate) { expire(w, t) }), v1alpha1.CheckValidity),
		refused("expired-ca", "The certificate is valid, its issuing CA, served, has expired.", v1alpha1.ReasonCertificateExpired,
			func(w *World, id Identity) Served { return w.expired.Issue(Template(id)).With(w.expired) }, v1alpha1.CheckChain),
		refused("not-yet-valid", "The certificate is valid from tomorrow.", v1alpha1.ReasonCertificateNotYetValid,
			issued(func(w *World, _ Identity, t *x509.Certificate) { t.NotBefore = w.Now.Add(day) }), v1alpha1.CheckValidity),
		refused("expired-and-unknown-ca", "The certificate has expired, and its issuer is not in the trust bundle.",
			v1alpha1.ReasonCertificateExpired, func(w *World, id Identity) Served {
				t := Template(id)
				expire(w, t)
				return w.UnknownCA.Issue(t)
			}, v1alpha1.CheckChain, v1alpha1.CheckValidity),
	}
}

func wrongAddresses() []Defect {
	reason, address := v1alpha1.ReasonAddressMismatch, v1alpha1.CheckAddress
	elsewhere := func(w *World, t *x509.Certificate) { t.IPAddresses = []net.IP{w.VictimIP.AsSlice()} }
	return []Defect{
		refused("dns-san-only", "The certificate names the host but not the IP address that is dialled.", reason,
			issued(func(_ *World, _ Identity, t *x509.Certificate) { t.IPAddresses = nil }), address),
		refused("other-ip", "The certificate names another IP address.", reason,
			issued(func(w *World, _ Identity, t *x509.Certificate) { elsewhere(w, t) }), address),
		refused("no-san", "The certificate has no subject alternative name.", reason,
			issued(func(_ *World, _ Identity, t *x509.Certificate) { t.DNSNames, t.IPAddresses = nil, nil }), address),
		refused("bare-and-wrong-address", "The common name lacks system:node:, and the certificate names another IP address.", reason,
			issued(func(w *World, id Identity, t *x509.Certificate) {
				t.Subject.CommonName = id.NodeName
				elsewhere(w, t)
			}), address, v1alpha1.CheckCommonName),
		refused("copied-certificate", "The node serves another node's certificate and holds its key.", reason,
			func(w *World, _ Identity) Served { return w.Victim }, address, v1alpha1.CheckCommonName),
	}
}

func wrongUses() []Defect {
	return []Defect{
		refused("client-auth-only", "The certificate is good for client authentication only.", v1alpha1.ReasonKeyUsageMismatch,
			issued(func(_ *World, _ Identity, t *x509.Certificate) {
				t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			}), v1alpha1.CheckKeyUsage),
		refused("client-auth-only-ca", "The issuing CA, served, is good for client authentication only.",
			v1alpha1.ReasonKeyUsageMismatch,
			func(w *World, id Identity) Served { return w.clientOnly.Issue(Template(id)).With(w.clientOnly) },
			v1alpha1.CheckKeyUsage),
		refused("unhandled-critical-extension", "The certificate has a critical extension that nobody knows.",
			v1alpha1.ReasonCertificateInvalid, issued(func(_ *World, _ Identity, t *x509.Certificate) {
				oid := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 32473, 1} // reserved for examples
				t.ExtraExtensions = []pkix.Extension{{Id: oid, Critical: true, Value: []byte{5, 0}}}
			}), v1alpha1.CheckChain),
	}
}

func unreadables() []Defect {
	return []Defect{
		{Name: "rsa-too-large", Summary: "The RSA key is longer than TLS clients accept.",
			Wire: WireWrongKey13, Serve: rsaTooLarge, Unreadable: true,
			Status: statusFalse, Reason: v1alpha1.ReasonCertificateInvalid},
		{Name: "unparsable", Summary: "What is served is no certificate.",
			Wire: WireTLS, Serve: unparsable, Unreadable: true,
			Status: statusFalse, Reason: v1alpha1.ReasonCertificateInvalid},
	}
}

func noTLS() []Defect {
	return []Defect{
		{Name: "no-certificate", Summary: "The kubelet has no serving certificate yet.",
			Wire: WireNoCertificate, Status: statusFalse, Reason: v1alpha1.ReasonNoServingCertificate},
		{Name: "plain-http", Summary: "The port speaks HTTP without TLS.",
			Wire: WirePlainHTTP, Status: statusFalse, Reason: v1alpha1.ReasonNotTLS},
		{Name: "tls11-only", Summary: "The kubelet offers TLS 1.1 at most.",
			Wire: WireTLS11, Serve: issued(nil), Status: statusFalse, Reason: v1alpha1.ReasonHandshakeFailed},
	}
}

func noEvidence() []Defect {
	return []Defect{
		{Name: "refused", Summary: "Nobody listens.",
			Wire: WireRefused, Status: statusUnknown, Reason: v1alpha1.ReasonConnectionFailed},
		{Name: "silent", Summary: "The connection is accepted and never answered.",
			Wire: WireSilent, Status: statusUnknown, Reason: v1alpha1.ReasonProbeTimeout},
		{Name: "drops-large-hello", Summary: "Something on the way drops a ClientHello that does not fit into one packet.",
			Wire: WireDropsLargeHello, Serve: issued(nil), Status: statusUnknown, Reason: v1alpha1.ReasonProbeTimeout},
		{Name: "closes", Summary: "The connection is closed after the ClientHello.",
			Wire: WireCloseAfterHello, Status: statusUnknown, Reason: v1alpha1.ReasonConnectionClosed},
		{Name: "resets", Summary: "The connection is reset after the ClientHello.",
			Wire: WireReset, Status: statusUnknown, Reason: v1alpha1.ReasonConnectionClosed},
	}
}

// stolenOnes show the real node's good certificate without holding its key:
// anybody who has ever dialled the node can do that.
func stolenOnes() []Defect {
	stolen := func(name, summary string, wire Wire, status string, reason v1alpha1.Reason) Defect {
		return Defect{Name: name, Summary: "The node's good certificate is shown without its key; " + summary,
			Wire: wire, Serve: withoutKey, Status: status, Reason: reason}
	}
	failed, closed := v1alpha1.ReasonHandshakeFailed, v1alpha1.ReasonConnectionClosed
	return []Defect{
		stolen("stolen-wrong-signature-tls12", "another key signs (TLS 1.2).", WireWrongKey12, statusFalse, failed),
		stolen("stolen-wrong-signature-tls13", "another key signs (TLS 1.3).", WireWrongKey13, statusFalse, failed),
		stolen("stolen-alert-tls12", "an alert follows (TLS 1.2).", WireAlertAfterCertificate12, statusFalse, failed),
		stolen("stolen-alert-tls13", "an alert follows (TLS 1.3).", WireAlertAfterCertificate13, statusFalse, failed),
		stolen("stolen-close-tls12", "the connection closes (TLS 1.2).", WireCloseAfterCertificate12, statusUnknown, closed),
		stolen("stolen-close-tls13", "the connection closes (TLS 1.3).", WireCloseAfterCertificate13, statusUnknown, closed),
	}
}

// refused is a defect of the certificate alone.
func refused(name, summary string, reason v1alpha1.Reason, serve func(*World, Identity) Served, fails ...v1alpha1.CheckName) Defect {
	return Defect{Name: name, Summary: summary, Wire: WireTLS, Serve: serve,
		Status: statusFalse, Reason: reason, Fails: fails}
}

// issued serves what the trusted CA makes of the good template after change.
func issued(change func(*World, Identity, *x509.Certificate)) func(*World, Identity) Served {
	return func(w *World, id Identity) Served {
		template := Template(id)
		if change != nil {
			change(w, id, template)
		}
		return w.CA.Issue(template)
	}
}

// selfSigned serves what a kubelet makes that was given no certificate
// (client-go's GenerateSelfSignedCertKey): the leaf and its throw-away CA.
func selfSigned(withIP bool) func(*World, Identity) Served {
	return func(w *World, id Identity) Served {
		name := fmt.Sprintf("%s-ca@%d", id.NodeName, w.Now.Unix())
		ca := newRoot(name, w.Now, "throw-away "+name)
		template := Template(id)
		template.Subject = pkix.Name{CommonName: fmt.Sprintf("%s@%d", id.NodeName, w.Now.Unix())}
		if !withIP {
			template.IPAddresses = nil
		}
		return ca.Issue(template).With(ca)
	}
}

func withoutKey(w *World, id Identity) Served {
	return Served{Chain: issued(nil)(w, id).Chain}
}

// rsaTooLarge has a key that nobody holds: finding a real one of this size
// takes a minute, and clients refuse it for its size alone.
func rsaTooLarge(w *World, id Identity) Served {
	const bits = 8200
	modulus := new(big.Int).Lsh(big.NewInt(1), bits-1)
	modulus.SetBit(modulus, 0, 1)
	leaf := w.CA.IssueFor(Template(id), &rsa.PublicKey{N: modulus, E: 65537})
	return Served{Chain: [][]byte{leaf}}
}

func unparsable(w *World, id Identity) Served {
	served := issued(nil)(w, id)
	served.Chain = [][]byte{[]byte("not a certificate")}
	return served
}
