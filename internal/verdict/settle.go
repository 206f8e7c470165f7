package verdict

import "github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"

// Settled is a verdict that a few probes without evidence do not shake, in what
// there is to remember of it. The zero Settled holds nothing.
type Settled struct {
	Status Status
	Reason v1alpha1.Reason
	// Misses counts probes in a row without evidence.
	Misses int
}

// Evidence says that the verdict rests on something the peer showed.
func (s Settled) Evidence() bool { return s.Status != Unknown }

// Next takes one more verdict of the same node, endpoint, bundle and spec. True
// and False apply at once; Unknown replaces them only after threshold misses in
// a row, unless its reason tells a fact about the Node or the bundle rather
// than a probe that showed nothing.
func (s Settled) Next(v Verdict, threshold int) Settled {
	next := Settled{Status: v.Status, Reason: v.Reason}
	if v.Evidence() {
		return next
	}
	next.Misses = s.Misses + 1
	if s.Evidence() && next.Misses < threshold && !immediate(v.Reason) {
		next.Status, next.Reason = s.Status, s.Reason
	}
	return next
}

func immediate(r v1alpha1.Reason) bool {
	return r == v1alpha1.ReasonNoAddress || r == v1alpha1.ReasonAddressNotAllowed || r == v1alpha1.ReasonNoTrustBundle
}
