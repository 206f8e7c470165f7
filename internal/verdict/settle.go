package verdict

import "github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"

// Settled is a verdict that a few probes without evidence do not shake. The
// zero Settled holds nothing.
type Settled struct {
	Verdict Verdict
	// Misses counts probes in a row without evidence.
	Misses int
}

// Next takes one more verdict of the same node, endpoint, bundle and spec. True
// and False apply at once; Unknown replaces them only after threshold misses in
// a row, unless its reason tells a fact about the Node or the bundle rather
// than a probe that showed nothing.
func (s Settled) Next(v Verdict, threshold int) Settled {
	if v.Evidence() {
		return Settled{Verdict: v}
	}
	s.Misses++
	if s.Verdict.Evidence() && s.Misses < threshold && !immediate(v.Reason) {
		return s
	}
	s.Verdict = v
	return s
}

func immediate(r v1alpha1.Reason) bool {
	return r == v1alpha1.ReasonNoAddress || r == v1alpha1.ReasonAddressNotAllowed || r == v1alpha1.ReasonNoTrustBundle
}
