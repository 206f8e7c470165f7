package metrics_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

var (
	now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	verified = verdict.Verdict{Status: verdict.True, Reason: v1alpha1.ReasonVerified}
	breaks   = verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonCommonNameMismatch,
		Checks: []verdict.Check{{Name: v1alpha1.CheckChain, Result: verdict.Pass}, {Name: v1alpha1.CheckCommonName, Result: verdict.Fail}}}
	rejected = verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonUnknownAuthority,
		Checks: []verdict.Check{{Name: v1alpha1.CheckChain, Result: verdict.Fail}, {Name: v1alpha1.CheckCommonName, Result: verdict.Fail}}}
	silent = verdict.Verdict{Reason: v1alpha1.ReasonProbeTimeout}
)

// newMetrics has begun epoch 1 and knows the nodes, each by the identity of its name.
func newMetrics(maxFailing int, nodes ...string) *metrics.Metrics {
	m := metrics.New(clocktesting.NewFakePassiveClock(now), maxFailing)
	m.Begin(1, time.Minute)
	for _, name := range nodes {
		m.Track(name, identityOf(name), now.Add(-time.Hour))
	}
	return m
}

func identityOf(name string) verdict.Identity { return sha256.Sum256([]byte(name)) }

func TestLedger(t *testing.T) {
	const notProbed = v1alpha1.ReasonNotProbedYet
	fails := func(name string, r v1alpha1.Reason) v1alpha1.FailingNode {
		return v1alpha1.FailingNode{Name: name, Reason: r}
	}
	for name, c := range map[string]struct {
		do           func(*metrics.Metrics)
		want         verdict.Tally
		notProbedYet int
		failing      []v1alpha1.FailingNode
	}{
		"a node counts from the moment it exists": {
			do:   func(*metrics.Metrics) {},
			want: verdict.Tally{Unknown: 2}, notProbedYet: 2, failing: []v1alpha1.FailingNode{fails("a", notProbed), fails("b", notProbed)},
		},
		"a verdict counts": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, breaks, now)
			},
			want: verdict.Tally{Verified: 1, BreaksWhenEnabled: 1}, failing: []v1alpha1.FailingNode{fails("b", breaks.Reason)},
		},
		"the last verdict counts": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("a"), 1, rejected, now)
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, verified, now)
			},
			want: verdict.Tally{Verified: 2},
		},
		"no evidence is not the same as not probed": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, silent, now)
			},
			want: verdict.Tally{Verified: 1, Unknown: 1}, failing: []v1alpha1.FailingNode{fails("b", silent.Reason)},
		},
		"another identity is another node": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, verified, now)
				m.Track("a", identityOf("new"), now)
			},
			want: verdict.Tally{Verified: 1, Unknown: 1}, notProbedYet: 1, failing: []v1alpha1.FailingNode{fails("a", notProbed)},
		},
		"the verdict of a predecessor is dropped": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("old"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, verified, now)
			},
			want: verdict.Tally{Verified: 1, Unknown: 1}, notProbedYet: 1, failing: []v1alpha1.FailingNode{fails("a", notProbed)},
		},
		"to be seen again changes nothing": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, verified, now)
				m.Track("a", identityOf("a"), now)
			},
			want: verdict.Tally{Verified: 2},
		},
		"a node that is gone does not count, nor does its late verdict": {
			do: func(m *metrics.Metrics) {
				m.Put("b", identityOf("b"), 1, verified, now)
				m.Forget("a")
				m.Put("a", identityOf("a"), 1, rejected, now)
			},
			want: verdict.Tally{Verified: 1},
		},
		"an unknown node's verdict is dropped": {
			do: func(m *metrics.Metrics) {
				m.Put("c", identityOf("c"), 1, verified, now)
				m.Exclude("d", identityOf("d"), 1)
			},
			want: verdict.Tally{Unknown: 2}, notProbedYet: 2, failing: []v1alpha1.FailingNode{fails("a", notProbed), fails("b", notProbed)},
		},
		"a new epoch forgets every verdict": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, rejected, now)
				m.Begin(2, time.Minute)
			},
			want: verdict.Tally{Unknown: 2}, notProbedYet: 2, failing: []v1alpha1.FailingNode{fails("a", notProbed), fails("b", notProbed)},
		},
		"a late verdict of an older epoch does not replace the present one": {
			do: func(m *metrics.Metrics) {
				m.Begin(2, time.Minute)
				m.Put("a", identityOf("a"), 2, rejected, now)
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, verified, now)
			},
			want: verdict.Tally{RejectedToday: 1, Unknown: 1}, notProbedYet: 1,
			failing: []v1alpha1.FailingNode{fails("a", rejected.Reason), fails("b", notProbed)},
		},
		"excluded nodes are in no other count": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Exclude("b", identityOf("b"), 1)
			},
			want: verdict.Tally{Verified: 1, Excluded: 1},
		},
		"an exclusion of an older epoch does not hold": {
			do: func(m *metrics.Metrics) {
				m.Exclude("b", identityOf("b"), 1)
				m.Begin(2, time.Minute)
				m.Put("a", identityOf("a"), 2, verified, now)
			},
			want: verdict.Tally{Verified: 1, Unknown: 1}, notProbedYet: 1, failing: []v1alpha1.FailingNode{fails("b", notProbed)},
		},
		"an excluded node may be included again": {
			do: func(m *metrics.Metrics) {
				m.Exclude("a", identityOf("a"), 1)
				m.Put("a", identityOf("a"), 1, verified, now)
				m.Put("b", identityOf("b"), 1, verified, now)
			},
			want: verdict.Tally{Verified: 2},
		},
		"worst first: rejected, breaking, without evidence": {
			do: func(m *metrics.Metrics) {
				m.Put("a", identityOf("a"), 1, silent, now)
				m.Put("b", identityOf("b"), 1, breaks, now)
				m.Track("c", identityOf("c"), now)
				m.Put("c", identityOf("c"), 1, rejected, now)
			},
			want:    verdict.Tally{BreaksWhenEnabled: 1, RejectedToday: 1, Unknown: 1},
			failing: []v1alpha1.FailingNode{fails("c", rejected.Reason), fails("b", breaks.Reason), fails("a", silent.Reason)},
		},
		"once ended, nothing is known": {
			do:   func(m *metrics.Metrics) { m.Put("a", identityOf("a"), 1, verified, now); m.End() },
			want: verdict.Tally{Unknown: 2}, notProbedYet: 2, failing: []v1alpha1.FailingNode{fails("a", notProbed), fails("b", notProbed)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMetrics(100, "a", "b")
			c.do(m)
			got := m.Summarize(now, 100)
			if got.Tally != c.want || got.NotProbedYet != c.notProbedYet {
				t.Errorf("%+v with %d not probed yet, want %+v with %d", got.Tally, got.NotProbedYet, c.want, c.notProbedYet)
			}
			if !slices.Equal(got.Failing, c.failing) {
				t.Errorf("failing %v, want %v", got.Failing, c.failing)
			}
		})
	}
}

func TestTheZeroLedgerKnowsNoNode(t *testing.T) {
	var l metrics.Ledger
	l.Forget("a")
	l.Put("a", identityOf("a"), 1, verified, now)
	if got := l.Summarize(now, 100); got.Total() != 0 || got.Readiness() == verdict.Ready {
		t.Errorf("%+v", got)
	}
}

// Put says when the counts may be others: then, and not at every look.
func TestPutSaysWhatIsNew(t *testing.T) {
	m := newMetrics(10, "a")
	for _, c := range []struct {
		what  string
		name  string
		epoch int64
		v     verdict.Verdict
		want  bool
	}{
		{"the first verdict", "a", 1, breaks, true},
		{"the same", "a", 1, breaks, false},
		{"another reason", "a", 1, rejected, true},
		{"another status", "a", 1, verified, true},
		{"the same in a new epoch", "a", 2, verified, true},
		{"one of an old epoch, which is dropped", "a", 1, breaks, false},
		{"one of a node that is gone", "b", 2, breaks, false},
	} {
		if got := m.Put(c.name, identityOf(c.name), c.epoch, c.v, now); got != c.want {
			t.Errorf("%s: %t, want %t", c.what, got, c.want)
		}
	}
}

func TestOldestLook(t *testing.T) {
	m := newMetrics(100, "a", "b", "c")
	m.Put("a", identityOf("a"), 1, verified, now.Add(-time.Minute))
	m.Put("b", identityOf("b"), 1, silent, now.Add(-time.Hour))
	if got := m.Summarize(now, 100); !got.OldestLook.IsZero() {
		t.Errorf("%s, while there is a node that was not looked at", got.OldestLook)
	}
	m.Exclude("c", identityOf("c"), 1)
	if got := m.Summarize(now, 100); !got.OldestLook.Equal(now.Add(-time.Hour)) {
		t.Errorf("%s, want an hour ago", got.OldestLook)
	}
}

func TestOverdue(t *testing.T) {
	m := newMetrics(100, "a", "b")
	m.Put("a", identityOf("a"), 1, verified, now)
	m.Put("b", identityOf("b"), 1, verified, now)
	for after, want := range map[time.Duration]verdict.Readiness{
		3 * time.Minute:                 verdict.Ready,
		3*time.Minute + time.Nanosecond: verdict.ReadinessUnknown,
	} {
		if got := m.Summarize(now.Add(after), 100); got.Readiness() != want || got.Overdue != (want != verdict.Ready) {
			t.Errorf("%s after the look: %s, want %s", after, got.Readiness(), want)
		}
	}
	m.Put("a", identityOf("a"), 1, breaks, now)
	if got := m.Summarize(now.Add(time.Hour), 100).Readiness(); got != verdict.NotReady {
		t.Errorf("%s, but an old no is still no", got)
	}
}

// Nodes are as good as kube-apiserver's own flags allow, in what is counted and in
// what is scraped.
func TestLimit(t *testing.T) {
	m := newMetrics(100, "a")
	m.Put("a", identityOf("a"), 1, verified, now)
	for limit, series := range map[verdict.Readiness]string{verdict.NotReady: "0", verdict.ReadinessUnknown: "0", verdict.Ready: "1"} {
		m.Limit(limit)
		if got := m.Summarize(now, 100).Readiness(); got != limit {
			t.Errorf("%s, at best %s", got, limit)
		}
		assertSeries(t, m, "ready_to_enforce", series)
	}
}

func TestNewestNode(t *testing.T) {
	m := newMetrics(100, "a")
	m.Track("b", identityOf("b"), now)
	if got := m.Summarize(now, 100); !got.NewestNode.Equal(now) {
		t.Errorf("%s, want %s", got.NewestNode, now)
	}
}

func TestMetricsAreSafeForConcurrentUse(t *testing.T) {
	m := newMetrics(2)
	var users sync.WaitGroup
	for i := range 8 {
		name := fmt.Sprintf("n%d", i)
		users.Go(func() {
			for epoch := range int64(20) {
				m.Begin(epoch+1, time.Minute)
				m.Track(name, identityOf(name), now)
				m.Put(name, identityOf(name), epoch+1, breaks, now)
				m.Exclude(name, identityOf(name), epoch+1)
				m.Probed(verdict.Observation{Outcome: verdict.OutcomeCompleted}, breaks)
				m.BundleChanged(verdict.Bundle{}, nil)
				scrape(t, m)
				m.Summarize(now, 100)
				m.Forget(name)
				m.End()
			}
		})
	}
	users.Wait()
	if got := m.Summarize(now, 100); got.Total() != 0 {
		t.Errorf("%+v, but every node is gone", got)
	}
	assertSeries(t, m, "cn_validations_total", `{result="failure"} 160`, `{result="success"} 0`)
}

// However many fail, the worst are named, the worst one first, then by name.
func TestTheWorstAreNamed(t *testing.T) {
	m := newMetrics(100)
	m.Begin(1, time.Minute)
	silent := verdict.Verdict{Status: verdict.Unknown, Reason: v1alpha1.ReasonProbeTimeout}
	var all []v1alpha1.FailingNode
	for rank, v := range []verdict.Verdict{rejected, breaks, silent} {
		for i := range 100 {
			name := fmt.Sprintf("n%03d", 3*i+2-rank)
			m.Track(name, identityOf(name), now)
			m.Put(name, identityOf(name), 1, v, now)
			all = append(all, v1alpha1.FailingNode{Name: name, Reason: v.Reason})
		}
	}
	for _, most := range []int{0, 1, 7, 150, 299, 300, 1000} {
		if got, want := m.Summarize(now, most).Failing, all[:min(most, len(all))]; !slices.Equal(got, want) {
			t.Errorf("of %d, at most %d: %v, want %v", len(all), most, got, want)
		}
	}
}
