package admission

import (
	"context"
	"encoding/json"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

const (
	// Path of the webhook.
	Path = "/review-kubelet-serving"
	// limit of one review; the API server waits for three seconds.
	limit = 2 * time.Second
)

// Counters count reviews.
type Counters interface {
	// RequestReviewed: reason is the first ground, "" where nothing is wrong.
	RequestReviewed(decision v1alpha1.ReviewDecision, reason v1alpha1.ReviewReason)
	// ReviewTook is how long the webhook took for its answer.
	ReviewTook(time.Duration)
}

// Recorder makes Events about requests.
type Recorder interface {
	// RequestDenied may count Events that are alike as one.
	RequestDenied(regarding *corev1.ObjectReference, reason v1alpha1.ReviewReason, note string)
	// RequestFound makes an Event on an object unless there was one about that
	// requester and reason within the hour in which the request was made, and
	// says whether it did.
	RequestFound(ctx context.Context, regarding *corev1.ObjectReference, requester string, reason v1alpha1.ReviewReason, note string, made time.Time) (bool, error)
}

// Handler answers the API server. It never fails a request that it cannot
// review: a node could not join for that.
type Handler struct {
	Reviewer *Reviewer
	// Spec is the present one; its mode is Off where nothing is to be reviewed.
	Spec     func(context.Context) (v1alpha1.AdmissionSpec, error)
	Counters Counters
	Recorder Recorder
	Clock    clock.PassiveClock
}

// Handle implements admission.Handler.
func (h *Handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	start := h.Clock.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := json.Unmarshal(req.Object.Raw, csr); err != nil {
		log.FromContext(ctx).Error(err, "the API server sent what is no CertificateSigningRequest")
		return admission.Allowed("")
	}
	if req.Operation != admissionv1.Create || req.SubResource != "" || csr.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return admission.Allowed("")
	}
	spec, err := h.Spec(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "the KubeletCertAudit cannot be read: nothing is reviewed")
		return admission.Allowed("")
	}
	if spec.Mode == v1alpha1.AdmissionOff {
		return admission.Allowed("")
	}
	request := Request{PEM: csr.Spec.Request, Usages: csr.Spec.Usages, User: req.UserInfo.Username, Groups: req.UserInfo.Groups}
	findings, err := h.Reviewer.Review(ctx, request, time.Time{})
	if err != nil {
		log.FromContext(ctx).Error(err, "what the cache says of Nodes cannot be confirmed: it is no ground to deny")
		unconfirmed(findings)
	}
	decision := Decide(request, findings, spec)
	h.Counters.RequestReviewed(decision.Word(), first(findings))
	h.Counters.ReviewTook(h.Clock.Since(start))
	h.say(ctx, request, csr, findings, decision, req.DryRun != nil && *req.DryRun)
	if decision.Denied {
		return admission.Denied(decision.Message)
	}
	return admission.Allowed("").WithWarnings(decision.Warnings...)
}

// say logs what was found, and makes Events about what was denied; what is let
// through has its Event once it exists.
func (h *Handler) say(ctx context.Context, r Request, csr *certificatesv1.CertificateSigningRequest, findings []Finding, d Decision, dryRun bool) {
	if len(findings) == 0 {
		return
	}
	log.FromContext(ctx).Info("review", "request", csr.Name, "requester", r.User, "decision", d.Word(), "reason", findings[0].Reason, "message", findings[0].Message)
	if !d.Denied || dryRun {
		return
	}
	for _, e := range h.Reviewer.events(ctx, r, csr, findings) {
		if e.regarding.Kind != requestKind {
			h.Recorder.RequestDenied(e.regarding, e.reason, "denied: "+e.note)
		}
	}
}

// unconfirmed makes what rests on Nodes no ground to deny.
func unconfirmed(findings []Finding) {
	for i := range findings {
		findings[i].WarnOnly = findings[i].WarnOnly || ofNodes(findings[i].Reason)
	}
}

func first(findings []Finding) v1alpha1.ReviewReason {
	if len(findings) == 0 {
		return ""
	}
	return findings[0].Reason
}

const requestKind = "CertificateSigningRequest"

// event is one about a request, on an object that exists.
type event struct {
	regarding *corev1.ObjectReference
	reason    v1alpha1.ReviewReason
	note      string
}

// events are one for the requester's Node, or the request where there is none,
// and one for each of the first Nodes whose address was asked for.
func (r *Reviewer) events(ctx context.Context, request Request, csr *certificatesv1.CertificateSigningRequest, findings []Finding) []event {
	regarding := r.node(ctx, request.Node())
	if regarding == nil {
		regarding = &corev1.ObjectReference{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: requestKind, Name: csr.Name, UID: csr.UID}
	}
	who := "request " + verdict.Quote(csr.Name) + " of " + verdict.Quote(request.User)
	events := []event{{regarding, findings[0].Reason, verdict.Bounded(who + text(findings))}}
	for _, f := range findings {
		for _, name := range f.Nodes[:min(len(f.Nodes), mostShown)] {
			if owner := r.node(ctx, name); owner != nil {
				events = append(events, event{owner, f.Reason, verdict.Bounded(who + text([]Finding{f}))})
			}
		}
	}
	return events
}

func text(findings []Finding) string {
	var s string
	for i, f := range findings {
		s += [...]string{": ", "; "}[min(i, 1)] + string(f.Reason) + ": " + f.Message
	}
	return s
}

// node is nil where there is none of that name, as far as the cache knows.
func (r *Reviewer) node(ctx context.Context, name string) *corev1.ObjectReference {
	node := &corev1.Node{}
	if err := r.Cached.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}
}
