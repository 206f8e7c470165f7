package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// Judge says whether a kube-apiserver with the CN check on would accept what
// was observed at now. It never panics, and True implies that the peer proved
// its key, that x509.Verify accepts the chain for the host and that the common
// name is the node's.
func Judge(exp Expectation, obs Observation, policy Policy, now time.Time) Verdict {
	switch {
	case obs.Outcome == OutcomeNone && policy.Bundle.Empty():
		return unknown(exp, v1alpha1.ReasonNoTrustBundle, "No CA to judge by", "")
	case exp.Endpoint.Host == "":
		return unknown(exp, v1alpha1.ReasonNoAddress, "The Node reports no address of the preferred types", "")
	case obs.Outcome == OutcomeNone:
		return unknown(exp, v1alpha1.ReasonNotProbedYet, "Not probed yet under the present settings", "")
	case len(obs.Chain) == 0:
		return judgeOutcome(exp, obs, policy, now)
	}
	return judgeChain(exp, obs, policy, now)
}

func judgeChain(exp Expectation, obs Observation, policy Policy, now time.Time) Verdict {
	e := newEvidence(exp, obs, policy, now)
	v := Verdict{Status: True, Reason: v1alpha1.ReasonVerified, Leaf: e.leaf, Path: e.path, NextLook: e.nextLook(), Checks: notRun()}
	var named, noBundle bool
	var findings []Finding
	for _, r := range rules {
		result, finding := r.judge(e)
		finding.Check = r.check
		if result == Fail {
			findings = append(findings, finding)
		}
		v.check(r.check).merge(result, finding.Message)
		switch {
		case named:
		case result == Fail:
			v.Status, v.Reason, named = False, finding.Reason, true
		case r.needsBundle && policy.Bundle.Empty():
			v.Status, v.Reason, named, noBundle = Unknown, v1alpha1.ReasonNoTrustBundle, true, true
		}
	}
	for i := range v.Checks {
		if !e.proven && v.Checks[i].Result == Pass {
			v.Checks[i].Result = NotRun
		}
	}
	if !e.proven && (v.Status != False || v.Reason == v1alpha1.ReasonCommonNameMismatch) {
		// kube-apiserver verifies the chain, which it would accept, and then
		// fails as this handshake did: the peer did not prove the key.
		o := outcomeVerdict(obs, policy, exp, now)
		v.Status, v.Reason, v.NextLook = o.status, o.reason, o.nextLook
		v.Message = message(exp, v.Reason, o.text+": it showed a certificate but did not prove to hold its key", nil, "")
		return v
	}
	v.Hint = hint(e, v, findings)
	v.Message = message(exp, v.Reason, headline(v, noBundle), findings, v.Hint)
	return v
}

func headline(v Verdict, noBundle bool) string {
	switch {
	case v.Status == True:
		return "Accepted, also with the CN check on"
	case v.Reason == v1alpha1.ReasonCommonNameMismatch:
		return "Works today, refused once the CN check is on"
	case noBundle:
		return "No CA to judge by"
	}
	return "Refused by kube-apiserver"
}

// check to write to, which is there.
func (v *Verdict) check(name v1alpha1.CheckName) *Check {
	return &v.Checks[slices.IndexFunc(v.Checks, func(c Check) bool { return c.Name == name })]
}

// merge keeps the worst result of the rules of one check, and the first words.
func (c *Check) merge(result Result, message string) {
	switch {
	case c.Result == Fail:
	case result == Fail:
		c.Result, c.Message = Fail, message
	case result != NotRun:
		c.Result = result
	}
}

func judgeOutcome(exp Expectation, obs Observation, policy Policy, now time.Time) Verdict {
	o := outcomeVerdict(obs, policy, exp, now)
	v := Verdict{Status: o.status, Reason: o.reason, NextLook: o.nextLook, Checks: notRun(), Hint: o.hint}
	if o.reason == v1alpha1.ReasonCertificateInvalid {
		v.check(v1alpha1.CheckChain).merge(Fail, o.text)
	}
	v.Message = message(exp, o.reason, o.text, nil, o.hint)
	return v
}

type outcomeAnswer struct {
	status   Status
	reason   v1alpha1.Reason
	text     string
	hint     string
	nextLook time.Time
}

// outcomeVerdict answers for a handshake that showed no usable chain.
func outcomeVerdict(obs Observation, policy Policy, exp Expectation, now time.Time) outcomeAnswer {
	detail := ""
	if obs.Detail != "" {
		detail = ": " + Quote(obs.Detail)
	}
	switch obs.Outcome {
	case OutcomeAddressNotAllowed:
		return outcomeAnswer{reason: v1alpha1.ReasonAddressNotAllowed, text: "Loopback, link-local, multicast and unspecified addresses are not dialled" + detail}
	case OutcomeUnresolved:
		return outcomeAnswer{reason: v1alpha1.ReasonNameResolutionFailed, text: "The host name does not resolve here" + detail, hint: unresolvedHint}
	case OutcomeUnconnected:
		return outcomeAnswer{reason: v1alpha1.ReasonConnectionFailed, text: "No connection" + detail + notReady(exp)}
	case OutcomeClosed:
		return outcomeAnswer{reason: v1alpha1.ReasonConnectionClosed, text: "The connection was closed within the handshake" + notReady(exp)}
	case OutcomeTimeout:
		return outcomeAnswer{reason: v1alpha1.ReasonProbeTimeout, text: "No answer in time" + notReady(exp) + smaller(exp, obs, policy, now)}
	case OutcomeNotTLS:
		return outcomeAnswer{status: False, reason: v1alpha1.ReasonNotTLS, text: "The answer is not TLS" + detail}
	case OutcomeInternalError:
		if len(obs.Chain) == 0 {
			return noCertificate(policy, exp, now)
		}
		return outcomeAnswer{status: False, reason: v1alpha1.ReasonHandshakeFailed, text: "The TLS handshake failed" + detail}
	case OutcomeHandshakeFailed:
		return outcomeAnswer{status: False, reason: v1alpha1.ReasonHandshakeFailed, text: "The TLS handshake failed" + detail}
	case OutcomeBadCertificate:
		return outcomeAnswer{status: False, reason: v1alpha1.ReasonCertificateInvalid, text: "Refused by crypto/tls" + detail}
	case OutcomeNone, OutcomeCompleted:
	}
	// A finished handshake without a certificate is impossible in TLS 1.2 and
	// 1.3 as negotiated here; it is no evidence.
	return outcomeAnswer{reason: v1alpha1.ReasonNotProbedYet, text: "No certificate was seen"}
}

func noCertificate(policy Policy, exp Expectation, now time.Time) outcomeAnswer {
	o := outcomeAnswer{
		status: False, reason: v1alpha1.ReasonNoServingCertificate,
		text: "The kubelet has no serving certificate yet (TLS alert internal_error)",
		hint: "look for its pending request with: kubectl get csr --field-selector spec.signerName=kubernetes.io/kubelet-serving",
	}
	if h := requestHint(exp.Request, nil); h != "" {
		o.hint = h
	}
	// A Node may seem to come from the future: its age is by another clock. Where
	// there is no grace, that is none.
	if end := exp.Created.Add(policy.NewNodeGrace); policy.NewNodeGrace > 0 && now.Before(end) {
		o.status, o.nextLook = Unknown, end
	}
	return o
}

// smaller tells what a smaller ClientHello got.
func smaller(exp Expectation, obs Observation, policy Policy, now time.Time) string {
	if obs.Smaller == nil {
		return ""
	}
	v := Judge(exp, *obs.Smaller, policy, now)
	return fmt.Sprintf(", but there is one to a ClientHello without post-quantum key exchange (by which it would be %s %s): "+
		"something on the way drops larger ones, and kube-apiserver sends those since it is built with Go 1.24", v.Status, v.Reason)
}

func notReady(exp Expectation) string {
	if exp.NotReady {
		return "; the Node is not Ready either"
	}
	return ""
}

func unknown(exp Expectation, reason v1alpha1.Reason, text, hint string) Verdict {
	return Verdict{Reason: reason, Message: message(exp, reason, text, nil, hint), Hint: hint, Checks: notRun()}
}

func notRun() []Check {
	checks := make([]Check, 0, len(v1alpha1.CheckNames()))
	for _, name := range v1alpha1.CheckNames() {
		checks = append(checks, Check{Name: name})
	}
	return checks
}
