package record

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

var (
	now = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	// whole is now as the API can hold it.
	whole = now.Truncate(time.Second)

	verified = verdict.Verdict{Status: verdict.True, Reason: v1alpha1.ReasonVerified, Message: "fine"}
	mismatch = verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonCommonNameMismatch, Message: `the common name is "n1"`}
	expired  = verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonCertificateExpired, Message: "expired"}
	silent   = verdict.Verdict{Reason: v1alpha1.ReasonProbeTimeout, Message: "No answer in time."}
)

// written is the condition as a verdict was written some time ago.
func written(v verdict.Verdict, ago time.Duration) *corev1.NodeCondition {
	at := metav1.NewTime(whole.Add(-ago))
	return &corev1.NodeCondition{
		Type: v1alpha1.ConditionServingCertificateValid, Status: corev1.ConditionStatus(v.Status.String()),
		Reason: string(v.Reason), Message: v.Message, LastHeartbeatTime: at, LastTransitionTime: at,
	}
}

func TestConditionSaysWhatTheVerdictSays(t *testing.T) {
	for _, v := range []verdict.Verdict{verified, mismatch, silent} {
		got := condition(nil, v, now)
		if got != *written(v, 0) {
			t.Errorf("got %+v, want %+v", got, *written(v, 0))
		}
	}
}

func TestTransitionTimeMovesOnlyWithTheStatus(t *testing.T) {
	long := 5 * time.Hour
	noTime := written(verified, long)
	noTime.LastTransitionTime = metav1.Time{}
	otherWords := mismatch
	otherWords.Message = "the same in other words"
	for name, c := range map[string]struct {
		existing *corev1.NodeCondition
		v        verdict.Verdict
		want     time.Time
	}{
		"there was none":            {nil, verified, whole},
		"unchanged":                 {written(verified, long), verified, whole.Add(-long)},
		"another message":           {written(mismatch, long), otherWords, whole.Add(-long)},
		"another reason":            {written(mismatch, long), expired, whole.Add(-long)},
		"True to False":             {written(verified, long), mismatch, whole},
		"False to True":             {written(mismatch, long), verified, whole},
		"True to Unknown":           {written(verified, long), silent, whole},
		"the existing one has none": {noTime, verified, whole},
	} {
		got := condition(c.existing, c.v, now)
		if !got.LastTransitionTime.Time.Equal(c.want) {
			t.Errorf("%s: lastTransitionTime %s, want %s", name, got.LastTransitionTime, c.want)
		}
		if !got.LastHeartbeatTime.Time.Equal(whole) {
			t.Errorf("%s: lastHeartbeatTime %s, want %s", name, got.LastHeartbeatTime, whole)
		}
	}
}

func TestDue(t *testing.T) {
	otherWords := *written(mismatch, 0)
	otherWords.Message = "the same in other words"
	// Each differs from its verdict in one thing alone.
	otherStatus, otherReason := *written(mismatch, 0), *written(mismatch, 0)
	otherStatus.Status, otherReason.Reason = corev1.ConditionUnknown, "Forged"
	latest := time.Hour + 12*time.Minute // an hour and the most jitter
	for name, c := range map[string]struct {
		existing *corev1.NodeCondition
		v        verdict.Verdict
		want     bool
	}{
		"there is none":                {nil, verified, true},
		"unchanged, just written":      {written(verified, 0), verified, false},
		"unchanged for a while":        {written(verified, 59*time.Minute), verified, false},
		"unchanged, heartbeat due":     {written(verified, latest), verified, true},
		"Unknown has a heartbeat too":  {written(silent, latest), silent, true},
		"another status":               {&otherStatus, mismatch, true},
		"another reason":               {&otherReason, mismatch, true},
		"another message":              {&otherWords, mismatch, true},
		"a clock that is a bit behind": {written(verified, -time.Minute), verified, false},
		"a heartbeat from tomorrow":    {written(verified, -24*time.Hour), verified, true},
	} {
		if got := due(c.existing, condition(c.existing, c.v, now), "u1", now); got != c.want {
			t.Errorf("%s: due %v, want %v", name, got, c.want)
		}
	}
}

// A thousand nodes that were written in one sweep must not be written again in
// one minute.
func TestHeartbeatsSpread(t *testing.T) {
	dueBy := func(age time.Duration) (n int) {
		for i := range 1000 {
			existing := written(verified, age)
			if due(existing, condition(existing, verified, now), types.UID(fmt.Sprintf("node-%d", i)), now) {
				n++
			}
		}
		return n
	}
	if n := dueBy(time.Hour - time.Second); n != 0 {
		t.Errorf("%d heartbeats before an hour", n)
	}
	if n := dueBy(time.Hour + 6*time.Minute); n < 400 || n > 600 {
		t.Errorf("%d of 1000 heartbeats in the first half of twelve minutes, want about 500", n)
	}
	if n := dueBy(time.Hour + 12*time.Minute); n != 1000 {
		t.Errorf("%d of 1000 heartbeats within twelve minutes", n)
	}
}

func TestHeartbeatOfANodeIsNotRandom(t *testing.T) {
	existing := written(verified, time.Hour+6*time.Minute)
	first := due(existing, condition(existing, verified, now), "u1", now)
	for range 10 {
		if due(existing, condition(existing, verified, now), "u1", now) != first {
			t.Fatal("one node at one time is due and is not due")
		}
	}
}
