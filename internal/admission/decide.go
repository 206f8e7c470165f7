package admission

import (
	"fmt"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Decision is what becomes of a request.
type Decision struct {
	// Denied, with the first ground as reason and message.
	Denied  bool
	Reason  v1alpha1.ReviewReason
	Message string
	// Warnings are shown to the requester of a request that is let through.
	Warnings []string
}

// Word for what became of the request.
func (d Decision) Word() v1alpha1.ReviewDecision {
	switch {
	case d.Denied:
		return v1alpha1.ReviewDenied
	case len(d.Warnings) > 0:
		return v1alpha1.ReviewWarned
	}
	return v1alpha1.ReviewAllowed
}

// maxWarning: kube-apiserver cuts longer ones.
const maxWarning = 256

// Decide applies the audit's mode to findings. Requesters that are no nodes are
// only warned unless the spec says otherwise: real software uses the signer.
func Decide(r Request, findings []Finding, spec v1alpha1.AdmissionSpec) Decision {
	if spec.Mode == v1alpha1.AdmissionOff {
		return Decision{}
	}
	var d Decision
	denies := spec.Mode == v1alpha1.AdmissionEnforce && (r.Node() != "" || spec.DenyNonNodes)
	for _, f := range findings {
		if denies && !f.WarnOnly {
			return Decision{Denied: true, Reason: f.Reason, Message: verdict.Bounded(fmt.Sprintf("%s: %s", f.Reason, f.Message))}
		}
		d.Warnings = append(d.Warnings, verdict.Cut(fmt.Sprintf("kubelet-cert-auditor: %s: %s", f.Reason, f.Message), maxWarning))
	}
	return d
}
