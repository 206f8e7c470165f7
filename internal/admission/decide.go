package admission

import (
	"fmt"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
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
			return Decision{Denied: true, Reason: f.Reason, Message: fmt.Sprintf("%s: %s", f.Reason, f.Message)}
		}
		d.Warnings = append(d.Warnings, fmt.Sprintf("kubelet-cert-auditor: %s: %s", f.Reason, f.Message))
	}
	return d
}
