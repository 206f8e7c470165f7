package verdict

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// evidence is what the rules look at: one served chain, and the result of
// building a path from it.
type evidence struct {
	exp    Expectation
	leaf   *x509.Certificate
	served []*x509.Certificate
	bundle Bundle
	proven bool
	now    time.Time

	// path and chainErr: x509.Verify for serverAuth, without the host name
	// and with the time moved into the leaf's validity, since Verify stops at
	// the first error and an expired leaf of a foreign CA reports only expiry.
	path     *Path
	chainErr error
}

func newEvidence(exp Expectation, obs Observation, policy Policy, now time.Time) *evidence {
	e := &evidence{
		exp: exp, leaf: obs.Chain[0], served: obs.Chain[1:], bundle: policy.Bundle, now: now,
		proven: proven(obs),
	}
	if e.bundle.Empty() {
		return e // never x509's nil Roots, which mean the system's
	}
	at, digest := clamp(now, e.leaf.NotBefore, e.leaf.NotAfter), digestOf(obs.Chain, policy.Bundle)
	if policy.Bundle.SHA256 != "" && policy.Known.holds(digest, at) {
		e.path = policy.Known
		return e
	}
	opts := x509.VerifyOptions{
		Roots:         e.bundle.Roots,
		Intermediates: x509.NewCertPool(),
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, c := range e.served {
		opts.Intermediates.AddCert(c)
	}
	chains, err := e.leaf.Verify(opts)
	e.path, e.chainErr = pathOf(digest, chains), err
	return e
}

// proven: the handshake finished, or failed only after the peer had proved its
// key and asked for our certificate, which kube-apiserver has and we have not.
func proven(obs Observation) bool {
	if !obs.KeyProven {
		return false
	}
	switch obs.Outcome {
	case OutcomeCompleted, OutcomeHandshakeFailed, OutcomeInternalError, OutcomeClosed:
		return true
	case OutcomeNone, OutcomeAddressNotAllowed, OutcomeUnresolved, OutcomeUnconnected,
		OutcomeTimeout, OutcomeNotTLS, OutcomeBadCertificate:
	}
	return false
}

func clamp(t, lo, hi time.Time) time.Time {
	if t.Before(lo) {
		return lo
	}
	if t.After(hi) {
		return hi
	}
	return t
}

// nextLook is the first time after now at which validity changes: of the leaf,
// of the last chain that verifies it, or of the CA that is not valid yet.
func (e *evidence) nextLook() time.Time {
	if e.now.Before(e.leaf.NotBefore) {
		return e.leaf.NotBefore
	}
	if e.now.After(e.leaf.NotAfter) {
		return time.Time{}
	}
	end := e.leaf.NotAfter
	if e.path != nil && e.path.end().Before(end) {
		end = e.path.end()
	}
	var invalid x509.CertificateInvalidError
	if errors.As(e.chainErr, &invalid) && e.now.Before(invalid.Cert.NotBefore) && invalid.Cert.NotBefore.Before(end) {
		return invalid.Cert.NotBefore
	}
	return end.Add(time.Nanosecond) // NotAfter itself is still valid
}

// A rule enforces one sentence of its source. All rules are evaluated; their
// order is the order in which kube-apiserver would report.
type rule struct {
	check  v1alpha1.CheckName
	source string
	judge  func(*evidence) (Result, Finding)
	// needsBundle: without one, nothing from here on can be said.
	needsBundle bool
}

var rules = []rule{
	{
		check:  v1alpha1.CheckChain,
		source: "crypto/x509 Certificate.Verify: a critical extension of the leaf that is not handled is reported before anything else",
		judge:  criticalExtensionRule,
	},
	{
		check:  v1alpha1.CheckValidity,
		source: "crypto/x509 Certificate.Verify: NotBefore and NotAfter of the leaf, both inclusive",
		judge:  validityRule,
	},
	{
		check:  v1alpha1.CheckAddress,
		source: "crypto/x509 Certificate.VerifyHostname on the host that is dialled; the common name is not considered",
		judge:  addressRule,
	},
	{
		check:       v1alpha1.CheckChain,
		source:      "crypto/x509 Certificate.Verify: a path to an anchor with the served certificates as intermediates; then policies and name constraints",
		judge:       chainRule,
		needsBundle: true,
	},
	{
		check:  v1alpha1.CheckKeyUsage,
		source: "crypto/x509 Certificate.Verify: serverAuth over the whole chain",
		judge:  keyUsageRule,
	},
	{
		check:  v1alpha1.CheckCommonName,
		source: `KEP-4872: the Subject Common Name of the leaf equals "system:node:<nodename>", byte for byte`,
		judge:  commonNameRule,
	},
}

func failed(reason v1alpha1.Reason, message string) (Result, Finding) {
	return Fail, Finding{Reason: reason, Message: message}
}

func criticalExtensionRule(e *evidence) (Result, Finding) {
	if n := len(e.leaf.UnhandledCriticalExtensions); n > 0 {
		return failed(v1alpha1.ReasonCertificateInvalid,
			fmt.Sprintf("critical extension %s is not handled", e.leaf.UnhandledCriticalExtensions[0]))
	}
	return NotRun, Finding{} // a pass of Chain takes the whole chain
}

func validityRule(e *evidence) (Result, Finding) {
	switch {
	case e.now.Before(e.leaf.NotBefore):
		return failed(v1alpha1.ReasonCertificateNotYetValid, "the certificate is not yet valid")
	case e.now.After(e.leaf.NotAfter):
		return failed(v1alpha1.ReasonCertificateExpired, "the certificate has expired")
	}
	return Pass, Finding{}
}

func addressRule(e *evidence) (Result, Finding) {
	if err := e.leaf.VerifyHostname(e.exp.Endpoint.Host); err != nil {
		return failed(v1alpha1.ReasonAddressMismatch,
			fmt.Sprintf("the certificate is for %s, not %s", sanList(e.leaf), Quote(e.exp.Endpoint.Host)))
	}
	return Pass, Finding{}
}

func chainRule(e *evidence) (Result, Finding) {
	if e.bundle.Empty() || len(e.leaf.UnhandledCriticalExtensions) > 0 {
		return NotRun, Finding{}
	}
	var invalid x509.CertificateInvalidError
	var authority x509.UnknownAuthorityError
	switch {
	case e.chainErr == nil:
		return Pass, Finding{}
	case errors.As(e.chainErr, &authority):
		return failed(v1alpha1.ReasonUnknownAuthority,
			fmt.Sprintf("no path from issuer %s to the trust bundle", Quote(e.leaf.Issuer.String())))
	case !errors.As(e.chainErr, &invalid):
		return failed(v1alpha1.ReasonCertificateInvalid, Quote(e.chainErr.Error()))
	case invalid.Reason == x509.IncompatibleUsage:
		return Pass, Finding{}
	case invalid.Reason == x509.Expired && invalid.Cert == e.leaf:
		return NotRun, Finding{} // no time is within its validity
	case invalid.Reason == x509.Expired && e.now.Before(invalid.Cert.NotBefore):
		return failed(v1alpha1.ReasonCertificateNotYetValid,
			fmt.Sprintf("the CA %s is not yet valid", Quote(invalid.Cert.Subject.String())))
	case invalid.Reason == x509.Expired:
		return failed(v1alpha1.ReasonCertificateExpired,
			fmt.Sprintf("the CA %s has expired", Quote(invalid.Cert.Subject.String())))
	}
	return failed(v1alpha1.ReasonCertificateInvalid, Quote(e.chainErr.Error()))
}

func keyUsageRule(e *evidence) (Result, Finding) {
	var invalid x509.CertificateInvalidError
	switch {
	case !e.bundle.Empty() && e.chainErr == nil:
		return Pass, Finding{}
	case errors.As(e.chainErr, &invalid) && invalid.Reason == x509.IncompatibleUsage && leafServes(e.leaf):
		return failed(v1alpha1.ReasonKeyUsageMismatch, "the extended key usages of the issuing CA do not allow server authentication")
	case errors.As(e.chainErr, &invalid) && invalid.Reason == x509.IncompatibleUsage, !leafServes(e.leaf):
		return failed(v1alpha1.ReasonKeyUsageMismatch, "the extended key usages lack server authentication")
	}
	return NotRun, Finding{} // without a chain there is no whole chain to look at
}

// leafServes looks at the leaf alone, as x509.Verify does at each certificate:
// no extended key usage at all means any.
func leafServes(c *x509.Certificate) bool {
	if len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0 {
		return true
	}
	for _, usage := range c.ExtKeyUsage {
		if usage == x509.ExtKeyUsageServerAuth || usage == x509.ExtKeyUsageAny {
			return true
		}
	}
	return false
}

func commonNameRule(e *evidence) (Result, Finding) {
	if s := SubjectOf(e.leaf); !s.Identifies(e.exp.NodeName) {
		return failed(v1alpha1.ReasonCommonNameMismatch,
			fmt.Sprintf("the common name is %s, not %s", Quote(s.CommonName), Quote(e.exp.CommonName())))
	}
	return Pass, Finding{}
}
