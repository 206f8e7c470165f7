package certs

import "fmt"

// Wire is how a server behaves on the wire. The zero value is a kubelet's.
type Wire uint8

const (
	// WireTLS is a kubelet's: TLS 1.2 and 1.3, a client certificate is
	// requested and not required.
	WireTLS Wire = iota
	// WireTLS12 offers TLS 1.2 at most.
	WireTLS12
	// WireTLS11 offers TLS 1.1 at most.
	WireTLS11
	// WireSlow is WireTLS, some 300 ms late.
	WireSlow
	// WireTLSRequireClientCert12 offers TLS 1.2 and requires a client
	// certificate: without one the handshake ends in an alert, after the server
	// has proved that it holds its key.
	WireTLSRequireClientCert12

	// WireNoCertificate answers the ClientHello with the alert internal_error,
	// as a kubelet does that has no serving certificate yet.
	WireNoCertificate
	// WirePlainHTTP answers as an HTTP server without TLS.
	WirePlainHTTP
	// WireRefused has nobody listening.
	WireRefused
	// WireSilent accepts and reads, and never answers.
	WireSilent
	// WireCloseAfterHello closes in order after the ClientHello.
	WireCloseAfterHello
	// WireReset resets the connection after the ClientHello.
	WireReset
	// WireDropsLargeHello is WireTLS behind something that drops a ClientHello
	// of more than 1,400 bytes, which is never answered.
	WireDropsLargeHello

	// WireWrongKey12 shows a certificate in TLS 1.2 and signs with another key.
	WireWrongKey12
	// WireWrongKey13 does so in TLS 1.3.
	WireWrongKey13
	// WireAlertAfterCertificate12 shows a certificate in TLS 1.2 and sends an
	// alert (handshake_failure) where the signature belongs.
	WireAlertAfterCertificate12
	// WireAlertAfterCertificate13 does so in TLS 1.3 (internal_error, the alert
	// that right after the ClientHello means "no certificate yet").
	WireAlertAfterCertificate13
	// WireCloseAfterCertificate12 shows a certificate in TLS 1.2 and closes in
	// order, without an alert, where the signature belongs.
	WireCloseAfterCertificate12
	// WireCloseAfterCertificate13 does so in TLS 1.3.
	WireCloseAfterCertificate13
)

const wireCount = int(WireCloseAfterCertificate13) + 1

// Wires lists every wire.
func Wires() []Wire {
	all := make([]Wire, wireCount)
	for i := range all {
		all[i] = Wire(i)
	}
	return all
}

// String names the wire, as in "tls12".
func (w Wire) String() string {
	names := [wireCount]string{
		WireTLS:                     "tls",
		WireTLS12:                   "tls12",
		WireTLS11:                   "tls11",
		WireSlow:                    "slow",
		WireTLSRequireClientCert12:  "require-client-certificate-tls12",
		WireNoCertificate:           "no-certificate",
		WirePlainHTTP:               "plain-http",
		WireRefused:                 "refused",
		WireSilent:                  "silent",
		WireCloseAfterHello:         "close-after-hello",
		WireReset:                   "reset",
		WireDropsLargeHello:         "drops-large-hello",
		WireWrongKey12:              "wrong-key-tls12",
		WireWrongKey13:              "wrong-key-tls13",
		WireAlertAfterCertificate12: "alert-after-certificate-tls12",
		WireAlertAfterCertificate13: "alert-after-certificate-tls13",
		WireCloseAfterCertificate12: "close-after-certificate-tls12",
		WireCloseAfterCertificate13: "close-after-certificate-tls13",
	}
	if int(w) >= wireCount {
		return fmt.Sprintf("Wire(%d)", uint8(w))
	}
	return names[w]
}

// ProvesKey tells whether a client of TLS 1.2 or newer gets proof that the
// server holds the key of the certificate it shows.
func (w Wire) ProvesKey() bool {
	return w == WireTLS || w == WireTLS12 || w == WireSlow || w == WireTLSRequireClientCert12
}

// ShowsCertificate tells whether the server sends its Certificate message to a
// client of TLS 1.2 or newer, proof of its key or not.
func (w Wire) ShowsCertificate() bool {
	return w.ProvesKey() || (w >= WireWrongKey12 && w <= WireCloseAfterCertificate13)
}
