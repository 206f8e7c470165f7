package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// ready is a condition that belongs to somebody else.
func ready(status corev1.ConditionStatus) corev1.NodeCondition {
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: "TheirsAlone"}
}

// nodeWith is the Node n1; a nil condition is none.
func nodeWith(existing *corev1.NodeCondition) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{"a": "b"}}}
	node.Status.Conditions = []corev1.NodeCondition{ready(corev1.ConditionTrue)}
	if existing != nil {
		node.Status.Conditions = append(node.Status.Conditions, *existing)
	}
	return node
}

// desk is a Recorder at an API server, and all that it did there.
type desk struct {
	*Recorder
	writes []string // "method subresource patch-type body"
	events []string // "type reason note"
	answer error    // to every patch and Event; nil: the API server takes it
	// noEvents is the answer to every Event; nil: the API server takes it.
	noEvents error
}

// newDesk starts with the Nodes as the API server has them.
func newDesk(t *testing.T, there ...client.Object) *desk {
	t.Helper()
	d := &desk{}
	write := func(what string) error {
		d.writes = append(d.writes, what)
		return errors.New("not a patch of a status")
	}
	api := fake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).WithObjects(there...).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			body, err := p.Data(o)
			if err != nil {
				return err
			}
			d.writes = append(d.writes, fmt.Sprintf("patch %s/%s %s %s", o.GetName(), sub, p.Type(), body))
			if d.answer != nil {
				return d.answer
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := cmp.Or(d.answer, d.noEvents); err != nil {
				return err
			}
			if e, ok := o.(*eventsv1.Event); ok {
				d.events = append(d.events, e.Type+" "+e.Reason+" "+e.Note)
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return write("patch")
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return write("update")
		},
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return write("update status")
		},
	}).Build()
	d.Recorder = &Recorder{Client: api, Events: d, Clock: clocktesting.NewFakePassiveClock(now)}
	return d
}

// Eventf implements events.EventRecorder.
func (d *desk) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	d.events = append(d.events, kind+" "+reason+" "+fmt.Sprintf(note, args...))
}

func (d *desk) node(t *testing.T) *corev1.Node {
	t.Helper()
	var node corev1.Node
	if err := d.Client.Get(t.Context(), types.NamespacedName{Name: "n1"}, &node); err != nil {
		t.Fatal(err)
	}
	return &node
}

func (d *desk) assertDid(t *testing.T, writes, events int) {
	t.Helper()
	if len(d.writes) != writes || len(d.events) != events {
		t.Errorf("%d writes, want %d: %q; %d Events, want %d: %q", len(d.writes), writes, d.writes, len(d.events), events, d.events)
	}
}

func TestRecord(t *testing.T) {
	reworded := written(mismatch, time.Minute)
	reworded.Message = "the same in other words"
	forged := written(verified, -24*time.Hour)
	forged.Message = "trust me"
	for name, c := range map[string]struct {
		existing *corev1.NodeCondition
		v        verdict.Verdict
		writes   int
		event    string // empty: none
	}{
		"the first verdict, good":   {nil, verified, 1, "Normal Verified fine"},
		"the first verdict, bad":    {nil, expired, 1, "Warning CertificateExpired expired"},
		"nothing changed":           {written(verified, time.Minute), verified, 0, ""},
		"a heartbeat":               {written(verified, 2*time.Hour), verified, 1, ""},
		"other words":               {reworded, mismatch, 1, ""},
		"another reason":            {written(mismatch, time.Minute), expired, 1, "Warning CertificateExpired expired"},
		"recovered":                 {written(expired, time.Minute), verified, 1, "Normal Verified fine"},
		"evidence is gone":          {written(verified, time.Minute), silent, 1, "Warning ProbeTimeout No answer in time."},
		"forged by the kubelet":     {forged, mismatch, 1, `Warning CommonNameMismatch the common name is "n1"`},
		"forged, but with our word": {forged, verified, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(c.existing)
			d := newDesk(t, node.DeepCopy())
			changed, err := d.Record(t.Context(), node, c.v)
			if err != nil || changed != (c.event != "") {
				t.Errorf("changed %v, error %v", changed, err)
			}
			count := 0
			if c.event != "" {
				count = 1
			}
			d.assertDid(t, c.writes, count)
			if count == 1 && d.events[0] != c.event {
				t.Errorf("Event %q, want %q", d.events[0], c.event)
			}
			after := find(d.node(t))
			if after == nil || after.Message != c.v.Message || after.Reason != string(c.v.Reason) || string(after.Status) != c.v.Status.String() {
				t.Errorf("the Node says %+v, want %+v", after, c.v)
			}
		})
	}
}

// A JSON merge patch replaces the whole list of conditions by a stale copy of
// it; a resourceVersion would make every patch a race with the kubelet.
func TestPatchHoldsTheUIDAndOurConditionAlone(t *testing.T) {
	d := newDesk(t, nodeWith(written(verified, time.Hour)))
	if _, err := d.Record(t.Context(), nodeWith(written(verified, time.Hour)), mismatch); err != nil {
		t.Fatal(err)
	}
	want := `patch n1/status application/strategic-merge-patch+json ` +
		`{"metadata":{"uid":"u1"},"status":{"conditions":[{"type":"KubeletServingCertificateValid","status":"False",` +
		`"lastHeartbeatTime":"2026-03-01T12:00:00Z","lastTransitionTime":"2026-03-01T12:00:00Z",` +
		`"reason":"CommonNameMismatch","message":"the common name is \"n1\""}]}}`
	d.assertDid(t, 1, 1)
	if d.writes[0] != want {
		t.Errorf("got  %s\nwant %s", d.writes[0], want)
	}
}

func TestOtherConditionsStayEvenFromAStaleRead(t *testing.T) {
	stale := nodeWith(nil)
	d := newDesk(t, &corev1.Node{ // Ready has turned Unknown meanwhile
		ObjectMeta: stale.ObjectMeta,
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready(corev1.ConditionUnknown)}},
	})
	if _, err := d.Record(t.Context(), stale, verified); err != nil {
		t.Fatal(err)
	}
	after := d.node(t)
	if len(after.Status.Conditions) != 2 || find(after) == nil || !contains(after, ready(corev1.ConditionUnknown)) {
		t.Errorf("conditions %+v", after.Status.Conditions)
	}
	if after.Labels["a"] != "b" {
		t.Errorf("labels %v", after.Labels)
	}
}

func contains(node *corev1.Node, want corev1.NodeCondition) bool {
	for _, c := range node.Status.Conditions {
		if c == want {
			return true
		}
	}
	return false
}

// refusal of the API server.
func invalid(path *field.Path) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "n1",
		field.ErrorList{field.Invalid(path, "u1", "field is immutable")})
}

func TestAnswersOfTheAPIServer(t *testing.T) {
	nodes := corev1.Resource("nodes")
	uid := invalid(field.NewPath("metadata", "uid"))
	for name, c := range map[string]struct {
		answer  error
		dropped bool
	}{
		"deleted":                           {apierrors.NewNotFound(nodes, "n1"), true},
		"re-created (422 on metadata.uid)":  {uid, true},
		"re-created (409)":                  {apierrors.NewConflict(nodes, "n1", errors.New("the UID in the precondition differs")), true},
		"re-created, wrapped":               {fmt.Errorf("on the way: %w", uid), true},
		"422 on something else":             {invalid(field.NewPath("status", "conditions")), false},
		"422 on nothing that is said":       {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Code: 422}}, false},
		"forbidden":                         {apierrors.NewForbidden(nodes, "n1", errors.New("RBAC")), false},
		"overloaded":                        {apierrors.NewTooManyRequests("later", 1), false},
		"no answer, the process is to stop": {context.Canceled, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.answer = c.answer
			changed, err := d.Record(t.Context(), nodeWith(nil), mismatch)
			if changed || (err == nil) != c.dropped {
				t.Errorf("Record: changed %v, error %v", changed, err)
			}
			if !c.dropped && !errors.Is(err, c.answer) {
				t.Errorf("Record: the cause is lost: %v", err)
			}
			err = d.Clear(t.Context(), nodeWith(written(verified, 0)))
			if (err == nil) != c.dropped {
				t.Errorf("Clear: %v", err)
			}
			d.assertDid(t, 2, 0)
		})
	}
}

func TestClear(t *testing.T) {
	d := newDesk(t, nodeWith(written(mismatch, time.Hour)))
	d.Events = nil // to clear makes none
	if err := d.Clear(t.Context(), d.node(t)); err != nil {
		t.Fatal(err)
	}
	want := `patch n1/status application/strategic-merge-patch+json ` +
		`{"metadata":{"uid":"u1"},"status":{"conditions":[{"$patch":"delete","type":"KubeletServingCertificateValid"}]}}`
	d.assertDid(t, 1, 0)
	if d.writes[0] != want {
		t.Errorf("got  %s\nwant %s", d.writes[0], want)
	}
	after := d.node(t)
	if find(after) != nil || len(after.Status.Conditions) != 1 || !contains(after, ready(corev1.ConditionTrue)) {
		t.Errorf("conditions %+v", after.Status.Conditions)
	}

	if err := d.Clear(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	d.assertDid(t, 1, 0) // nothing was left to remove
}

func TestEventIsAboutTheNode(t *testing.T) {
	d := newDesk(t, nodeWith(nil))
	hostile := mismatch
	hostile.Message = "100%s %d of \"\\x1b\""
	for range 2 { // the second read is stale
		if _, err := d.Record(t.Context(), nodeWith(nil), hostile); err != nil {
			t.Fatal(err)
		}
	}
	var list eventsv1.EventList
	if err := d.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d Events, want one for the transition", len(list.Items))
	}
	e := list.Items[0]
	if want := (corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1"}); e.Regarding != want {
		t.Errorf("regarding %+v, want %+v", e.Regarding, want)
	}
	if e.Namespace != "default" || e.Type != corev1.EventTypeWarning || e.Reason != string(v1alpha1.ReasonCommonNameMismatch) || e.Action == "" {
		t.Errorf("%s in namespace %q, action %q, because of %s", e.Type, e.Namespace, e.Action, e.Reason)
	}
	if e.Note != hostile.Message || e.ReportingController != Controller || !e.EventTime.Time.Equal(now.Truncate(time.Microsecond)) {
		t.Errorf("%+v", e)
	}
}

func TestEachTransitionHasItsEvent(t *testing.T) {
	d := newDesk(t, nodeWith(nil))
	for i, v := range []verdict.Verdict{verified, mismatch, verified, expired} {
		if _, err := d.Record(t.Context(), d.node(t), v); err != nil {
			t.Fatal(err)
		}
		d.assertDid(t, i+1, i+1)
	}
}

func TestAnEventThatIsNotTakenIsAnError(t *testing.T) {
	d := newDesk(t, nodeWith(nil))
	d.noEvents = errors.New("quota")
	changed, err := d.Record(t.Context(), d.node(t), mismatch)
	if !changed || !errors.Is(err, d.noEvents) {
		t.Errorf("changed %t, error %v", changed, err)
	}
	d.assertDid(t, 1, 0)
}
