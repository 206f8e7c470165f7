// Package record writes verdicts to Nodes: one condition, and one Event per
// transition; and Events about requests for certificates. It is the only room that writes to Nodes, and it never writes
// more than that condition: a merge patch computed from a stale read would
// undo another writer's conditions.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Controller is what the Events say reports them.
const Controller = "kubelet-cert-auditor"

const (
	// heartbeat is the time after which an unchanged condition is written again
	// for its lastHeartbeatTime; each node adds up to a fifth of it, by its UID,
	// so that the writes spread.
	heartbeat = time.Hour
	// fieldOwner of the patches.
	fieldOwner = client.FieldOwner(Controller)
	// eventAction is what the Events say was done.
	eventAction = "ProbeKubelet"
)

// Recorder writes verdicts to Nodes.
type Recorder struct {
	Client client.Client
	// Events counts those that are alike as one, for which it keeps each in memory
	// for some minutes: it is for what strangers may repeat.
	Events events.EventRecorder
	Clock  clock.PassiveClock
}

// Record makes the Node's condition say what the verdict says; where it does
// already, nothing is written. It reports whether status or reason changed,
// which is also when an Event is made: once, an Event that the API server does not
// take is an error and lost. A Node that is gone, or that was re-created under its
// name, is no error.
func (r *Recorder) Record(ctx context.Context, node *corev1.Node, v verdict.Verdict) (bool, error) {
	now := r.Clock.Now()
	existing := find(node)
	desired := condition(existing, v, now)
	if !due(existing, desired, node.UID, now) {
		return false, nil
	}
	if err := r.patch(ctx, node, desired); err != nil {
		if gone(err) {
			return false, nil
		}
		return false, fmt.Errorf("patch the condition of node %s: %w", node.Name, err)
	}
	if existing != nil && existing.Status == desired.Status && existing.Reason == desired.Reason {
		return false, nil
	}
	_, err := r.create(ctx, transition(node, v, desired))
	return true, err
}

// Clear removes the condition. A Node without it, or one that is gone, is no
// error.
func (r *Recorder) Clear(ctx context.Context, node *corev1.Node) error {
	if find(node) == nil {
		return nil
	}
	err := r.patch(ctx, node, map[string]any{"type": v1alpha1.ConditionServingCertificateValid, "$patch": "delete"})
	if err != nil && !gone(err) {
		return fmt.Errorf("remove the condition of node %s: %w", node.Name, err)
	}
	return nil
}

// patch is a strategic merge patch of one element of status.conditions, which
// merges by type. The UID makes it fail on a Node that was re-created.
func (r *Recorder) patch(ctx context.Context, node *corev1.Node, conditionPatch any) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"status":   map[string]any{"conditions": []any{conditionPatch}},
	})
	if err != nil {
		return err
	}
	target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	return r.Client.Status().Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, body), fieldOwner)
}

// gone: deleted (404), or another Node of the same name (422 or 409, on
// metadata.uid).
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) && aboutUID(err)
}

func aboutUID(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

func find(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == v1alpha1.ConditionServingCertificateValid {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// condition is the verdict as a Node condition, with the transition time kept
// while the status stays.
func condition(existing *corev1.NodeCondition, v verdict.Verdict, now time.Time) corev1.NodeCondition {
	at := metav1.NewTime(now.Truncate(time.Second))
	c := corev1.NodeCondition{
		Type:               v1alpha1.ConditionServingCertificateValid,
		Status:             corev1.ConditionStatus(v.Status.String()),
		Reason:             string(v.Reason),
		Message:            v.Message,
		LastHeartbeatTime:  at,
		LastTransitionTime: at,
	}
	if existing != nil && existing.Status == c.Status && !existing.LastTransitionTime.IsZero() {
		c.LastTransitionTime = existing.LastTransitionTime
	}
	return c
}

// due says whether the condition must be written.
func due(existing *corev1.NodeCondition, desired corev1.NodeCondition, uid types.UID, now time.Time) bool {
	if existing == nil || existing.Status != desired.Status || existing.Reason != desired.Reason || existing.Message != desired.Message {
		return true
	}
	age := now.Sub(existing.LastHeartbeatTime.Time)
	return age >= heartbeat+jitter(uid) || age <= -heartbeat // a heartbeat from the future is nobody's
}

func jitter(uid types.UID) time.Duration {
	h := fnv.New64a() // 32 bits of nanoseconds are four seconds
	_, _ = h.Write([]byte(uid))
	return time.Duration(h.Sum64() % uint64(heartbeat/5))
}

// transition is the Event about a new status or reason. Its name follows from
// what the condition replaces, so that two processes that see the same make one.
func transition(node *corev1.Node, v verdict.Verdict, c corev1.NodeCondition) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: eventName(string(node.UID), node.ResourceVersion, c.Reason)},
		Action:     eventAction, Reason: c.Reason, Type: eventType(v), Note: c.Message,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
	}
}

func eventType(v verdict.Verdict) string {
	if v.Status == verdict.True {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}
