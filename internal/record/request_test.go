package record

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

func on(kind, name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: kind, Name: name, UID: types.UID("uid of " + name)}
}

// One Event for each requester, Node, reason and hour, whoever looks at them and
// however often.
func TestRequestFound(t *testing.T) {
	d := newDesk(t)
	found := func(regarding *corev1.ObjectReference, requester string, reason v1alpha1.ReviewReason, made time.Time) bool {
		t.Helper()
		isNew, err := d.RequestFound(t.Context(), regarding, requester, reason, "note", made)
		if err != nil {
			t.Fatal(err)
		}
		return isNew
	}
	hour := now.Truncate(time.Hour)
	const foreign = v1alpha1.ReviewForeignAddress
	for i, c := range []struct {
		regarding *corev1.ObjectReference
		requester string
		reason    v1alpha1.ReviewReason
		made      time.Time
		isNew     bool
	}{
		{on("Node", "a"), "node-a", foreign, hour, true},
		{on("Node", "a"), "node-a", foreign, hour, false},
		{on("Node", "a"), "node-a", foreign, hour.Add(59 * time.Minute), false},
		{on("Node", "a"), "node-a", foreign, hour.Add(time.Hour), true},
		{on("Node", "b"), "node-a", foreign, hour, true},
		{on("Node", "a"), "node-b", foreign, hour, true},
		{on("Node", "a"), "node-a", v1alpha1.ReviewWildcardSAN, hour, true},
		{on("CertificateSigningRequest", "csr-1"), "software", foreign, hour, true},
		{on("CertificateSigningRequest", "csr-2"), "software", foreign, hour, false},
	} {
		if got := found(c.regarding, c.requester, c.reason, c.made); got != c.isNew {
			t.Errorf("%d: new %t, want %t", i, got, c.isNew)
		}
	}
	var list eventsv1.EventList
	if err := d.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 6 {
		t.Errorf("%d Events", len(list.Items))
	}
	for _, e := range list.Items {
		if e.Namespace != "default" || e.Type != "Warning" || e.Note != "note" || e.Action == "" || e.ReportingController != Controller || e.ReportingInstance == "" || !e.EventTime.Time.Equal(now.Truncate(time.Microsecond)) {
			t.Errorf("%+v", e)
		}
	}
}

func TestRequestFoundFails(t *testing.T) {
	d := newDesk(t)
	d.answer = errors.New("no API server")
	if isNew, err := d.RequestFound(t.Context(), on("Node", "a"), "node-a", v1alpha1.ReviewForeignAddress, "note", now); isNew || !errors.Is(err, d.answer) {
		t.Errorf("%t, %v", isNew, err)
	}
}

func TestRequestDenied(t *testing.T) {
	d := newDesk(t)
	d.RequestDenied(on("Node", "a"), v1alpha1.ReviewForeignAddress, "100 % denied")
	d.assertDid(t, 0, 1)
	if d.events[0] != "Warning ForeignAddress 100 % denied" {
		t.Error(d.events)
	}
}
