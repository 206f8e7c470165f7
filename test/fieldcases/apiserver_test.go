package fieldcases

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
)

// agrees asks crypto/tls, which kube-apiserver leaves the verifying to, what it
// makes of a node that is not Unknown. It does not know the common name.
func (s *scene) agrees(n audit.Node) {
	s.Helper()
	if n.Status == "Unknown" || s.bundle == nil {
		return
	}
	err := s.dial(n)
	accepted := n.Status == "True" || n.Reason == v1alpha1.ReasonCommonNameMismatch
	if accepted != (err == nil) {
		s.Errorf("%s is %s %s, and crypto/tls says %v", n.Name, n.Status, n.Reason, err)
	}
	if reason := refusal(err); reason != "" && reason != n.Reason {
		s.Errorf("%s is %s, and crypto/tls says %v", n.Name, n.Reason, err)
	}
}

// dial is a handshake with verification on, as client-go's transport sets it up.
func (s *scene) dial(n audit.Node) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.bundle)
	ctx, cancel := context.WithTimeout(s.Context(), s.timeout)
	defer cancel()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Resolver: s.prober.Resolver}, Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(n.Address, strconv.Itoa(int(n.Port))))
	if err != nil {
		return err
	}
	return conn.Close()
}

// refusal is the reason that an error of verification stands for; "" for any
// other.
func refusal(err error) v1alpha1.Reason {
	var host x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &host):
		return v1alpha1.ReasonAddressMismatch
	case errors.As(err, &authority):
		return v1alpha1.ReasonUnknownAuthority
	case !errors.As(err, &invalid):
		return ""
	case invalid.Reason == x509.IncompatibleUsage:
		return v1alpha1.ReasonKeyUsageMismatch
	case invalid.Reason == x509.Expired && strings.Contains(invalid.Detail, " is before "):
		return v1alpha1.ReasonCertificateNotYetValid
	case invalid.Reason == x509.Expired:
		return v1alpha1.ReasonCertificateExpired
	}
	return v1alpha1.ReasonCertificateInvalid
}
