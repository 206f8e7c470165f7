package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Each case departs in one thing from a cluster of two verified nodes, so that
// no rule can hide behind another.
func TestReadyCondition(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	sweep := now.Add(-time.Minute)
	type state struct {
		audit *v1alpha1.KubeletCertAudit
		answer
	}
	verified := func() state {
		s := state{
			audit: &v1alpha1.KubeletCertAudit{},
			answer: answer{
				now: now,
				regime: &regime{generation: 3, interval: 10 * time.Minute, policy: verdict.Policy{
					Bundle: verdict.Bundle{Source: "file ca.crt", SHA256: "aa"}}},
				summary: verdict.Summary{Tally: verdict.Tally{Verified: 2}, NewestNode: sweep.Add(-time.Hour)},
			},
		}
		s.audit.Status = v1alpha1.KubeletCertAuditStatus{
			Nodes:         v1alpha1.NodeCounts{Total: 2, Verified: 2},
			TrustBundle:   v1alpha1.TrustBundleStatus{Source: "file ca.crt", SHA256: "aa"},
			LastSweepTime: &metav1.Time{Time: sweep},
			Conditions: []metav1.Condition{{
				Type: v1alpha1.AuditReadyToEnforce, Status: metav1.ConditionTrue, ObservedGeneration: 3}},
		}
		return s
	}
	// takenOver has probed one of the two nodes so far.
	takenOver := func(s *state) {
		s.takeOver = true
		s.summary.Tally = verdict.Tally{Verified: 1, Unknown: 1}
		s.summary.NotProbedYet = 1
	}
	cases := []struct {
		name   string
		change func(*state)
		want   string // "" where the condition stays as it stands
	}{
		{"all verified", func(*state) {}, "True AllNodesVerified"},
		{"no node", func(s *state) { s.summary.Tally = verdict.Tally{} }, "Unknown NoNodes"},
		{"all excluded", func(s *state) { s.summary.Tally = verdict.Tally{Excluded: 2} }, "Unknown NodesExcluded"},
		{"one excluded", func(s *state) { s.summary.Tally = verdict.Tally{Verified: 1, Excluded: 1} }, "Unknown NodesExcluded"},
		{"one unknown", func(s *state) { s.summary.Tally = verdict.Tally{Verified: 1, Unknown: 1} }, "Unknown NodesUnknown"},
		{"one breaks", func(s *state) { s.summary.Tally = verdict.Tally{Verified: 1, BreaksWhenEnabled: 1} }, "False NodesWouldBreak"},
		{"one rejected", func(s *state) { s.summary.Tally = verdict.Tally{RejectedToday: 1, BreaksWhenEnabled: 1} }, "False NodesRejectedToday"},
		{"kube-apiserver dials otherwise", func(s *state) { s.summary.Limit = verdict.ReadinessUnknown }, "Unknown APIServerDiffers"},
		{"kube-apiserver dials otherwise, one breaks", func(s *state) { s.summary.Limit, s.summary.BreaksWhenEnabled = verdict.ReadinessUnknown, 1 }, "False NodesWouldBreak"},
		{"kube-apiserver has no CA", func(s *state) { s.summary.Limit = verdict.NotReady }, "False FlagMissing"},
		{"kube-apiserver has no CA, no node", func(s *state) { s.summary.Limit, s.summary.Tally = verdict.NotReady, verdict.Tally{} }, "False FlagMissing"},
		{"kube-apiserver has no CA, one breaks", func(s *state) { s.summary.Limit, s.summary.BreaksWhenEnabled = verdict.NotReady, 1 }, "False NodesWouldBreak"},
		{"kube-apiserver has all it needs", func(s *state) { s.summary.Limit = verdict.Ready }, "True AllNodesVerified"},
		{"a verdict overdue", func(s *state) { s.summary.Overdue = true }, "Unknown SweepOverdue"},
		{"a verdict overdue, one breaks", func(s *state) { s.summary.Overdue, s.summary.BreaksWhenEnabled = true, 1 }, "False NodesWouldBreak"},

		{"take-over", func(s *state) { takenOver(s) }, ""},
		{"take-over, kube-apiserver dials otherwise", func(s *state) { takenOver(s); s.summary.Limit = verdict.ReadinessUnknown }, "Unknown NodesUnknown"},
		{"take-over, kube-apiserver has no CA", func(s *state) { takenOver(s); s.summary.Limit = verdict.NotReady }, "False FlagMissing"},
		{"take-over, one breaks", func(s *state) { takenOver(s); s.summary.BreaksWhenEnabled = 1 }, "False NodesWouldBreak"},
		{"take-over, sweep three intervals old", func(s *state) {
			takenOver(s)
			s.audit.Status.LastSweepTime.Time = now.Add(-30 * time.Minute)
		}, ""},
		{"take-over, sweep older than that", func(s *state) {
			takenOver(s)
			s.audit.Status.LastSweepTime.Time = now.Add(-30*time.Minute - time.Second)
		}, "Unknown NodesUnknown"},
		{"take-over, never swept", func(s *state) { takenOver(s); s.audit.Status.LastSweepTime = nil }, "Unknown NodesUnknown"},
		{"take-over, nothing written yet", func(s *state) { takenOver(s); s.audit.Status.Conditions = nil }, "Unknown NodesUnknown"},
		{"take-over, another spec", func(s *state) { takenOver(s); s.regime.generation = 4 }, "Unknown NodesUnknown"},
		{"take-over, another bundle", func(s *state) { takenOver(s); s.audit.Status.TrustBundle.SHA256 = "bb" }, "Unknown NodesUnknown"},
		{"take-over, another source", func(s *state) { takenOver(s); s.audit.Status.TrustBundle.Source = "inline" }, "Unknown NodesUnknown"},
		{"take-over, one node more", func(s *state) { takenOver(s); s.audit.Status.Nodes.Total = 1 }, "Unknown NodesUnknown"},
		{"take-over, a node of the sweep's second", func(s *state) { takenOver(s); s.summary.NewestNode = sweep }, "Unknown NodesUnknown"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := verified()
			c.change(&s)
			got := ""
			if condition := readyCondition(s.audit, s.answer); condition != nil {
				got = string(condition.Status) + " " + condition.Reason
				if condition.ObservedGeneration != s.regime.generation {
					t.Errorf("observedGeneration is %d, want %d", condition.ObservedGeneration, s.regime.generation)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
