package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// CA signs. Certificate is self-signed or issued by another CA. It is safe for
// concurrent use. A literal of a certificate and its key works too; what it
// issues is then dated by the wall clock.
type CA struct {
	Certificate *x509.Certificate
	Key         crypto.Signer

	now    time.Time
	issued atomic.Uint64
}

var roots atomic.Uint64

// NewCA makes a self-signed CA, valid from a day before now to ten years after.
// Every call gives another key, also under the same name; the n-th call of a
// process always gives the same.
func NewCA(commonName string, now time.Time) *CA {
	return newRoot(commonName, now, fmt.Sprintf("root %d", roots.Add(1)))
}

// newRoot makes a self-signed CA whose key depends on its seed alone.
func newRoot(commonName string, now time.Time, seed string) *CA {
	template, key := caTemplate(commonName, now), keyOf(seed)
	template.SerialNumber = big.NewInt(1)
	certificate := parse(sign(template, template, key.Public(), key))
	return &CA{Certificate: certificate, Key: key, now: now}
}

// NewIntermediate makes a CA that ca issues, valid as NewCA's.
func (ca *CA) NewIntermediate(commonName string, now time.Time) *CA {
	return ca.issueCA(caTemplate(commonName, now), now)
}

func (ca *CA) issueCA(template *x509.Certificate, now time.Time) *CA {
	served := ca.Issue(template)
	return &CA{Certificate: served.Leaf(), Key: served.Key, now: now}
}

// PEM is the CA's certificate, as a trust bundle holds it.
func (ca *CA) PEM() []byte {
	return certificatePEM(ca.Certificate.Raw)
}

// Issue signs the template, which it leaves as it is, with a fresh key. It
// fills in the serial number and, where zero, NotBefore (an hour before the
// CA's now) and NotAfter (a year after). A template that cannot be signed is a
// programming error and panics.
func (ca *CA) Issue(template *x509.Certificate) Served {
	key := keyOf(ca.nextSeed())
	return Served{Chain: [][]byte{ca.IssueFor(template, key.Public())}, Key: key}
}

// IssueFor is Issue for a key that somebody else holds, or nobody: DER.
func (ca *CA) IssueFor(template *x509.Certificate, public crypto.PublicKey) []byte {
	now := ca.now
	if now.IsZero() {
		now = time.Now()
	}
	filled := *template
	filled.SerialNumber = serialOf(ca.nextSeed())
	if filled.NotBefore.IsZero() {
		filled.NotBefore = now.Add(-time.Hour)
	}
	if filled.NotAfter.IsZero() {
		filled.NotAfter = now.Add(year)
	}
	return sign(&filled, ca.Certificate, public, ca.Key)
}

// nextSeed differs with every call and every CA.
func (ca *CA) nextSeed() string {
	digest := sha256.Sum256(ca.Certificate.Raw)
	return string(binary.BigEndian.AppendUint64(digest[:], ca.issued.Add(1)))
}

// Served is what a server shows, and the key that it signs with.
type Served struct {
	// Chain holds DER, the leaf first.
	Chain [][]byte
	// Key is nil where the server does not hold the leaf's key.
	Key crypto.Signer
}

// With gives the same leaf with the certificates of cas after it.
func (s Served) With(cas ...*CA) Served {
	chain := append([][]byte(nil), s.Chain...)
	for _, ca := range cas {
		chain = append(chain, ca.Certificate.Raw)
	}
	return Served{Chain: chain, Key: s.Key}
}

// CertificatePEM is the whole chain.
func (s Served) CertificatePEM() []byte {
	var blocks [][]byte
	for _, der := range s.Chain {
		blocks = append(blocks, certificatePEM(der))
	}
	return bytes.Join(blocks, nil)
}

// KeyPEM is the key in PKCS #8; empty without a key.
func (s Served) KeyPEM() []byte {
	if s.Key == nil {
		return nil
	}
	der, err := x509.MarshalPKCS8PrivateKey(s.Key)
	if err != nil {
		panic(fmt.Errorf("marshal private key: %w", err))
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// TLS is the chain and the key for a tls.Config.
func (s Served) TLS() tls.Certificate {
	certificate := tls.Certificate{Certificate: s.Chain, Leaf: s.Leaf()}
	if s.Key != nil {
		certificate.PrivateKey = s.Key
	}
	return certificate
}

// Leaf is the first certificate of the chain; nil where there is none or it
// does not parse.
func (s Served) Leaf() *x509.Certificate {
	if len(s.Chain) == 0 {
		return nil
	}
	leaf, err := x509.ParseCertificate(s.Chain[0])
	if err != nil {
		return nil
	}
	return leaf
}

func caTemplate(commonName string, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-day),
		NotAfter:              now.Add(10 * year),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// keyOf derives a P-256 key from a seed. About one digest in 2^32 is no valid
// scalar, hence the loop.
func keyOf(seed string) *ecdsa.PrivateKey {
	digest := sha256.Sum256([]byte("key " + seed))
	for {
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), digest[:]); err == nil {
			return key
		}
		digest = sha256.Sum256(digest[:])
	}
}

// serialOf gives a positive serial number of at most 128 bits.
func serialOf(seed string) *big.Int {
	digest := sha256.Sum256([]byte("serial " + seed))
	return new(big.Int).SetBytes(digest[:16])
}

// sign passes no source of randomness: ECDSA is then deterministic.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) []byte {
	der, err := x509.CreateCertificate(nil, template, parent, public, key)
	if err != nil {
		panic(fmt.Errorf("sign certificate for %q: %w", template.Subject.CommonName, err))
	}
	return der
}

func parse(der []byte) *x509.Certificate {
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		panic(fmt.Errorf("parse own certificate: %w", err))
	}
	return certificate
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
