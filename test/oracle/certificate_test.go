package oracle

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// authority signs. Its certificate may be anything, also none that may sign.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// tbsCertificate is RFC 5280's TBSCertificate, to write what CreateCertificate
// refuses to.
type tbsCertificate struct {
	Version      int `asn1:"optional,explicit,default:0,tag:0"`
	SerialNumber *big.Int
	Algorithm    pkix.AlgorithmIdentifier
	Issuer       asn1.RawValue
	Validity     asn1.RawValue
	Subject      asn1.RawValue
	PublicKey    asn1.RawValue
	Extensions   []pkix.Extension `asn1:"omitempty,optional,explicit,tag:3"`
}

type certificate struct {
	TBS       asn1.RawValue
	Algorithm pkix.AlgorithmIdentifier
	Signature asn1.BitString
}

// issue signs a template. edit, if not nil, changes what CreateCertificate made
// before it is signed once more, for which the authority's key has to be ECDSA.
func (a *authority) issue(template *x509.Certificate, public crypto.PublicKey, edit func(*tbsCertificate)) []byte {
	parent := a.certificate
	if parent == nil {
		parent = template // self-signed
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		panic(fmt.Errorf("create the certificate of %q: %w", template.Subject.CommonName, err))
	}
	if edit == nil {
		return der
	}
	return a.resign(der, edit)
}

func (a *authority) resign(der []byte, edit func(*tbsCertificate)) []byte {
	var outer certificate
	must(asn1.Unmarshal(der, &outer))
	var tbs tbsCertificate
	must(asn1.Unmarshal(outer.TBS.FullBytes, &tbs))
	edit(&tbs)
	inner := must(asn1.Marshal(tbs))
	digest := sha256.Sum256(inner)
	signature := must(a.key.Sign(rand.Reader, digest[:], crypto.SHA256))
	return must(asn1.Marshal(certificate{
		TBS: asn1.RawValue{FullBytes: inner}, Algorithm: outer.Algorithm,
		Signature: asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)},
	}))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func newP256() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// keys that take long to make are made once.
var (
	keyP224    = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader)) })
	keyP384    = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)) })
	keyP521    = sync.OnceValue(func() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)) })
	keyRSA1024 = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 1024)) })
	keyRSA2048 = sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	keyEd25519 = sync.OnceValue(func() crypto.Signer {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return must(crypto.Signer(key), err)
	})
)

// newAuthority makes a CA that issuer signs, or itself without one. change, if
// not nil, changes the template of a good one.
func newAuthority(name string, now time.Time, issuer *authority, change func(*x509.Certificate), edit func(*tbsCertificate)) *authority {
	a := &authority{key: newP256()}
	if issuer == nil {
		issuer = &authority{key: a.key}
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(10 * 365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	a.certificate = must(x509.ParseCertificate(issuer.issue(template, a.key.Public(), edit)))
	return a
}

func serial() *big.Int {
	return must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)))
}

// authorities of all combinations. Which of them a bundle holds is the group's
// to say.
type authorities struct {
	root, rsaRoot, unknown, twinOld, twinNew, absent      *authority
	intermediate, anchoredIntermediate, crossed, deep     *authority
	v1, notCA, notSigning, expired, notYet, clientOnly    *authority
	constrained, pathLength0, sha1, future, misleading    *authority
	expiredInt, clientOnlyInt, excludingInt, permittedInt *authority
	notCAInt, notSigningInt, pathLength0Int, belowPath0   *authority
	unknownCriticalInt, v1Int, mailInt, sameKeyInt        *authority
	crossedByUnknown                                      *authority
}

func newAuthorities(now time.Time) *authorities {
	a := &authorities{}
	ca := func(name string, issuer *authority, change func(*x509.Certificate)) *authority {
		return newAuthority(name, now, issuer, change, nil)
	}
	a.root = ca("kubernetes", nil, nil)
	a.unknown = ca("unknown", nil, nil)
	a.rsaRoot = &authority{key: keyRSA2048()}
	a.rsaRoot.certificate = must(x509.ParseCertificate(a.rsaRoot.issue(&x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "rsa"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(9000 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}, a.rsaRoot.key.Public(), nil)))
	a.twinOld, a.twinNew = ca("twin", nil, nil), ca("twin", nil, nil)
	a.absent = ca("absent", nil, nil)
	a.anchoredIntermediate = ca("anchored intermediate", a.absent, nil)
	a.addRoots(ca, now)
	a.addIntermediates(ca, now)
	return a
}

// addRoots makes anchors that are unusual or wrong.
func (a *authorities) addRoots(ca func(string, *authority, func(*x509.Certificate)) *authority, now time.Time) {
	a.v1 = newAuthority("v1", now, nil, nil, func(t *tbsCertificate) { t.Version, t.Extensions = 0, nil })
	a.notCA = ca("not a CA", nil, func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = false, false })
	a.notSigning = ca("not signing", nil, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
	a.expired = ca("expired", nil, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) })
	a.notYet = ca("not yet", nil, func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) })
	a.clientOnly = ca("client only", nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	a.constrained = ca("constrained", nil, func(c *x509.Certificate) {
		c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"elsewhere.test"}
	})
	a.pathLength0 = ca("path length 0", nil, func(c *x509.Certificate) { c.MaxPathLenZero = true })
	a.sha1 = ca("SHA-1", nil, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 })
}

func (a *authorities) addIntermediates(ca func(string, *authority, func(*x509.Certificate)) *authority, now time.Time) {
	a.intermediate = ca("intermediate", a.root, nil)
	a.deep = ca("deep", a.intermediate, nil)
	// One key under two issuers, one of which is known.
	a.crossed = ca("crossed", a.root, nil)
	a.crossedByUnknown = &authority{key: a.crossed.key}
	template := *a.crossed.certificate
	template.SerialNumber, template.AuthorityKeyId = serial(), nil
	a.crossedByUnknown.certificate = must(x509.ParseCertificate(a.unknown.issue(&template, a.crossed.key.Public(), nil)))
	a.misleading = ca("crossed", a.root, nil) // its name and another key
	a.expiredInt = ca("expired intermediate", a.root, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) })
	a.future = ca("future intermediate", a.root, func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) })
	a.clientOnlyInt = ca("client only intermediate", a.root, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
	a.mailInt = ca("mail intermediate", a.root, func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection, x509.ExtKeyUsageServerAuth}
	})
	a.excludingInt = ca("excluding", a.root, func(c *x509.Certificate) {
		c.PermittedDNSDomainsCritical = true
		c.ExcludedDNSDomains, c.ExcludedIPRanges = []string{"test", "excluded"}, cidrs("127.0.0.0/8", "fd00::/8")
	})
	a.permittedInt = ca("permitting", a.root, func(c *x509.Certificate) {
		c.PermittedDNSDomainsCritical = true
		c.PermittedDNSDomains, c.PermittedIPRanges = []string{"nodes.test"}, cidrs("127.0.0.0/8", "fd00::/8")
	})
	a.notCAInt = ca("not a CA intermediate", a.root, func(c *x509.Certificate) { c.IsCA = false })
	a.notSigningInt = ca("not signing intermediate", a.root, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
	a.pathLength0Int = ca("path length 0 intermediate", a.root, func(c *x509.Certificate) { c.MaxPathLenZero = true })
	a.belowPath0 = ca("below path length 0", a.pathLength0Int, nil)
	a.unknownCriticalInt = ca("critical intermediate", a.root, func(c *x509.Certificate) { c.ExtraExtensions = []pkix.Extension{unknownExtension(true)} })
	a.v1Int = newAuthority("v1 intermediate", now, a.root, nil, func(t *tbsCertificate) { t.Version, t.Extensions = 0, nil })
	a.sameKeyInt = ca("self", a.root, nil)
}

func unknownExtension(critical bool) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}, Critical: critical, Value: []byte{5, 0}}
}

// clientTemplate is kube-apiserver's identity towards kubelets.
func clientTemplate() *x509.Certificate {
	return &x509.Certificate{
		Subject:  pkix.Name{CommonName: "kube-apiserver-kubelet-client"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}
