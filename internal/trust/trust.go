// Package trust reads CA bundles the way kube-apiserver reads its
// --kubelet-certificate-authority, and keeps the last good copy.
package trust

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Parse reads PEM certificates as crypto/x509's AppendCertsFromPEM does, which
// kube-apiserver uses: other blocks and blocks with headers are passed over, and
// so are certificates that cannot be parsed, but here each with a warning. It
// errs where not one certificate is left. A certificate that is there twice
// counts once.
func Parse(source string, text []byte) (verdict.Bundle, error) {
	b := verdict.Bundle{Source: source, Roots: x509.NewCertPool()}
	sum := sha256.New()
	seen := map[string]bool{}
	other := ""
	number := 0
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		number++
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			other = block.Type
			b.Skipped++
			b.Warnings = append(b.Warnings, fmt.Sprintf("block %d (%.40q) is not a plain certificate and was skipped", number, block.Type))
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			b.Skipped++
			b.Warnings = append(b.Warnings, fmt.Sprintf("block %d could not be parsed and was skipped: %.120q", number, err.Error()))
			continue
		}
		if seen[string(certificate.Raw)] {
			continue
		}
		seen[string(certificate.Raw)] = true
		if !maySign(certificate) {
			b.Warnings = append(b.Warnings, fmt.Sprintf("block %d, %s, is no CA that may sign certificates: it vouches for itself alone",
				number, verdict.Quote(certificate.Subject.String())))
		}
		b.Roots.AddCert(certificate)
		b.Certificates = append(b.Certificates, certificate)
		sum.Write(certificate.Raw)
	}
	if len(b.Certificates) == 0 {
		return verdict.Bundle{Source: source, Skipped: b.Skipped, Warnings: b.Warnings}, emptyError(len(text), number, other)
	}
	b.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return b, nil
}

// maySign is what crypto/x509 asks of an issuer (Certificate.CheckSignatureFrom).
func maySign(c *x509.Certificate) bool {
	if c.Version == 3 && !c.BasicConstraintsValid || c.BasicConstraintsValid && !c.IsCA {
		return false
	}
	return c.KeyUsage == 0 || c.KeyUsage&x509.KeyUsageCertSign != 0
}

func emptyError(size, blocks int, other string) error {
	switch {
	case size == 0:
		return errors.New("it is empty")
	case blocks == 0:
		return errors.New("it holds no PEM block")
	case other != "":
		return fmt.Errorf("it holds no certificate, but a PEM block %.40q", other)
	}
	return errors.New("none of its certificates can be parsed")
}
