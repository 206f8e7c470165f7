package admission

import (
	"context"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// Late reviews requests that exist, whether they came by the webhook or while it
// was away.
type Late struct {
	Reviewer *Reviewer
	Spec     func(context.Context) (v1alpha1.AdmissionSpec, error)
	Counters Counters
	Recorder Recorder
	Clock    clock.PassiveClock

	begin sync.Once
	since time.Time
}

// ReviewRequest makes an Event and counts, where something is wrong. Once is
// enough for a request: what was made before this process began to review is
// counted only if it has no Event of another process.
func (l *Late) ReviewRequest(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	l.begin.Do(func() { l.since = l.Clock.Now() })
	spec, err := l.Spec(ctx)
	if err != nil {
		return fmt.Errorf("read the KubeletCertAudit: %w", err)
	}
	if spec.Mode == v1alpha1.AdmissionOff {
		return nil
	}
	if err := l.Reviewer.Wait(ctx); err != nil {
		return err
	}
	request := Request{PEM: csr.Spec.Request, Usages: csr.Spec.Usages, User: csr.Spec.Username, Groups: csr.Spec.Groups}
	made := csr.CreationTimestamp.Time
	findings, err := l.Reviewer.Review(ctx, request, made)
	if err != nil || len(findings) == 0 {
		return err
	}
	isNew := made.After(l.since)
	for _, e := range l.Reviewer.events(ctx, request, csr, findings) {
		created, err := l.Recorder.RequestFound(ctx, e.regarding, request.User, e.reason, e.note, made)
		if err != nil {
			return err
		}
		isNew = isNew || created
	}
	if isNew {
		l.Counters.RequestReviewed(v1alpha1.ReviewFound, findings[0].Reason)
		log.FromContext(ctx).Info("review", "request", csr.Name, "requester", csr.Spec.Username, "decision", v1alpha1.ReviewFound, "reason", findings[0].Reason, "message", findings[0].Message)
	}
	return nil
}
