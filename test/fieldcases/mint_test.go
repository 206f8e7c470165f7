package fieldcases

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

func noIPs(c *x509.Certificate) { c.IPAddresses = nil }

func called(commonName string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.CommonName = commonName }
}

func (s *scene) ecdsaKey(curve elliptic.Curve) *ecdsa.PrivateKey {
	s.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		s.Fatal(err)
	}
	return key
}

func (s *scene) rsaKey() *rsa.PrivateKey {
	s.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		s.Fatal(err)
	}
	return key
}

// selfSigned signs a template by the key that it is for.
func (s *scene) selfSigned(template *x509.Certificate, key crypto.Signer) certs.Served {
	s.Helper()
	self := &certs.CA{Certificate: template, Key: key}
	return certs.Served{Chain: [][]byte{self.IssueFor(template, key.Public())}, Key: key}
}

// root is a CA that departs from a good one.
func (s *scene) root(commonName string, key crypto.Signer, change func(*x509.Certificate)) *certs.CA {
	s.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, NotBefore: s.world.Now.Add(-time.Hour), NotAfter: s.world.Now.Add(9000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	return &certs.CA{Certificate: s.selfSigned(template, key).Leaf(), Key: key}
}

// rootV1 is a CA of X.509 version 1, which has no extensions and so no basic
// constraints. crypto/x509 reads such and writes none.
func (s *scene) rootV1(commonName string) *certs.CA {
	s.Helper()
	key := s.ecdsaKey(elliptic.P256())
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		s.Fatal(err)
	}
	algorithm := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}} // ecdsa-with-SHA256
	name := pkix.Name{CommonName: commonName}.ToRDNSequence()
	toBeSigned := s.der(struct {
		Serial    *big.Int
		Algorithm pkix.AlgorithmIdentifier
		Issuer    pkix.RDNSequence
		Validity  struct{ NotBefore, NotAfter time.Time }
		Subject   pkix.RDNSequence
		PublicKey asn1.RawValue
	}{
		big.NewInt(1), algorithm, name,
		struct{ NotBefore, NotAfter time.Time }{s.world.Now.Add(-time.Hour), s.world.Now.Add(9000 * time.Hour)},
		name, asn1.RawValue{FullBytes: public},
	})
	digest := sha256.Sum256(toBeSigned)
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		s.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(s.der(struct {
		ToBeSigned asn1.RawValue
		Algorithm  pkix.AlgorithmIdentifier
		Signature  asn1.BitString
	}{asn1.RawValue{FullBytes: toBeSigned}, algorithm, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}}))
	if err != nil || certificate.Version != 1 {
		s.Fatalf("version %d, %v", certificate.Version, err)
	}
	return &certs.CA{Certificate: certificate, Key: key}
}

func (s *scene) der(value any) []byte {
	s.Helper()
	der, err := asn1.Marshal(value)
	if err != nil {
		s.Fatal(err)
	}
	return der
}

// withNegativeSerial changes the sign of a certificate's serial number, which
// the tests' CAs make of 16 bytes; the signature is then wrong too, but nobody
// comes as far as that.
func (s *scene) withNegativeSerial(mint func() []byte) []byte {
	s.Helper()
	for {
		der := mint()
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			s.Fatal(err)
		}
		serial := certificate.SerialNumber.Bytes()
		if len(serial) != 16 || serial[0] >= 0x7f { // DER puts a zero before such, or would leave out what becomes 0xff
			continue
		}
		negative := bytes.Clone(der)
		negative[bytes.Index(negative, serial)] |= 0x80
		return negative
	}
}
