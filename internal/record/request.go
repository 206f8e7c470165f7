package record

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// reviewAction is what the Events about requests say was done.
const reviewAction = "ReviewRequest"

// RequestDenied makes an Event about a request that was not admitted. The
// recorder counts those that are alike as one.
func (r *Recorder) RequestDenied(regarding *corev1.ObjectReference, reason v1alpha1.ReviewReason, note string) {
	r.Events.Eventf(regarding, nil, corev1.EventTypeWarning, string(reason), reviewAction, "%s", note)
}

// RequestFound makes an Event about a request that exists: one for each
// requester, Node, reason and hour in which requests were made, however many
// there are and whichever process looks at them. It says whether the Event is
// new.
func (r *Recorder) RequestFound(ctx context.Context, regarding *corev1.ObjectReference, requester string, reason v1alpha1.ReviewReason, note string, made time.Time) (bool, error) {
	parts := []string{requester, string(reason), made.UTC().Truncate(time.Hour).Format(time.RFC3339)}
	if regarding.Kind == "Node" { // each request is an object of its own
		parts = append(parts, string(regarding.UID))
	}
	return r.create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: eventName(parts...)},
		Action:     reviewAction, Reason: string(reason), Type: corev1.EventTypeWarning, Note: note, Regarding: *regarding,
	})
}

// create an Event, and say whether there was none of its name. Objects without a
// namespace have their Events in default.
func (r *Recorder) create(ctx context.Context, e *eventsv1.Event) (bool, error) {
	e.Namespace, e.EventTime = metav1.NamespaceDefault, metav1.NewMicroTime(r.Clock.Now())
	e.ReportingController, e.ReportingInstance = Controller, Controller
	err := r.Client.Create(ctx, e)
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("make an Event on %s %s: %w", e.Regarding.Kind, e.Regarding.Name, err)
	}
	return true, nil
}

func eventName(parts ...string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join(parts, "\x00")))
	return fmt.Sprintf("%s.%016x", Controller, h.Sum64())
}
