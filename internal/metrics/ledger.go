package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Ledger holds the last verdict of every Node that exists. Each verdict belongs
// to an epoch, that is, to one spec and trust bundle: a verdict of another epoch
// counts as not probed yet. It is safe for concurrent use; the zero Ledger is
// not leading and knows no node.
type Ledger struct {
	mu       sync.RWMutex
	epoch    int64 // 0: not leading, or no audit
	interval time.Duration
	differs  bool
	nodes    map[string]*entry
}

type entry struct {
	identity verdict.Identity
	created  time.Time
	epoch    int64
	excluded bool
	group    verdict.Group
	status   verdict.Status
	reason   v1alpha1.Reason
	failed   [5]bool   // by the order of v1alpha1.CheckNames
	late     time.Time // see verdict.LateFrom
	expiry   time.Time
	looked   time.Time
}

// Track makes a Node count from the moment it exists. With another identity the
// verdict known so far is dropped. It reports whether the Node was not known as
// this one before.
func (l *Ledger) Track(name string, id verdict.Identity, created time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.nodes[name]; e != nil && e.identity == id {
		return false
	}
	if l.nodes == nil {
		l.nodes = map[string]*entry{}
	}
	l.nodes[name] = &entry{identity: id, created: created}
	return true
}

// Names of all Nodes, in no order.
func (l *Ledger) Names() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.AppendSeq(make([]string, 0, len(l.nodes)), maps.Keys(l.nodes))
}

// Forget drops a Node.
func (l *Ledger) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, name)
}

// Begin starts an epoch above zero, in which every node is looked at once an
// interval: no verdict of an earlier one counts.
func (l *Ledger) Begin(epoch int64, interval time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch, l.interval = epoch, interval
}

// Differ says whether some kube-apiserver dials other addresses than those judged.
func (l *Ledger) Differ(differs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.differs = differs
}

// End says that nothing is judged any more.
func (l *Ledger) End() { l.Begin(0, 0) }

// Put records the verdict of a Node in an epoch, and when the node was last
// looked at. A verdict of a Node that is gone or another one is dropped.
func (l *Ledger) Put(name string, id verdict.Identity, epoch int64, v verdict.Verdict, looked time.Time) {
	e := entry{epoch: epoch, group: v.Group(), status: v.Status, reason: v.Reason, looked: looked}
	for i, check := range v1alpha1.CheckNames() {
		e.failed[i] = v.Check(check).Result == verdict.Fail
	}
	if v.Leaf != nil {
		e.late, e.expiry = verdict.LateFrom(v.Leaf), v.Leaf.NotAfter
	}
	l.put(name, id, e)
}

// Exclude records that the present epoch leaves a Node out.
func (l *Ledger) Exclude(name string, id verdict.Identity, epoch int64) {
	l.put(name, id, entry{epoch: epoch, excluded: true})
}

func (l *Ledger) put(name string, id verdict.Identity, e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.nodes[name]
	if known == nil || known.identity != id || e.epoch < known.epoch {
		return
	}
	e.identity, e.created = known.identity, known.created
	*known = e
}

// notProbedYet is what an entry of another epoch, or of none, counts as.
var notProbedYet = entry{reason: v1alpha1.ReasonNotProbedYet}

// each calls f with every entry as it counts now; l.mu must be held.
func (l *Ledger) each(f func(name string, created time.Time, e *entry)) {
	for name, e := range l.nodes {
		if e.epoch != l.epoch || e.epoch == 0 {
			f(name, e.created, &notProbedYet)
			continue
		}
		f(name, e.created, e)
	}
}

// Summarize counts, at the time now, and names so many failing nodes at most. Its
// time grows with the number of nodes, its memory does not.
func (l *Ledger) Summarize(now time.Time, most int) verdict.Summary {
	s, _ := l.snapshot(now, most)
	return s.Summary
}

type snapshot struct {
	verdict.Summary
	interval time.Duration
	nodes    map[statusReason]int
	failures [5]int
	late     int // served certificates near their end, and not beyond it
	expiry   time.Time
	oldest   time.Time // of the nodes that were looked at
}

type statusReason struct {
	status verdict.Status
	reason v1alpha1.Reason
}

// snapshot reads every entry once; false where nothing is judged.
func (l *Ledger) snapshot(now time.Time, most int) (snapshot, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := snapshot{interval: l.interval, nodes: map[statusReason]int{}}
	s.Differs = l.differs
	failing := worst{most: most}
	l.each(func(name string, created time.Time, e *entry) {
		if created.After(s.NewestNode) {
			s.NewestNode = created
		}
		if e.excluded {
			s.Excluded++
			return
		}
		s.add(e, now)
		if e.status != verdict.True {
			failing.add(failingNode{name, e.reason, e.group})
		}
	})
	if s.NotProbedYet == 0 {
		s.OldestLook = s.oldest
	}
	s.Overdue = !s.oldest.IsZero() && verdict.Overdue(s.oldest, l.interval, now)
	for _, f := range failing.first() {
		s.Failing = append(s.Failing, v1alpha1.FailingNode{Name: f.name, Reason: f.reason})
	}
	return s, l.epoch != 0
}

func (s *snapshot) add(e *entry, now time.Time) {
	s.Add(e.group)
	s.nodes[statusReason{e.status, e.reason}]++
	for i, failed := range e.failed {
		if failed {
			s.failures[i]++
		}
	}
	if e.reason == v1alpha1.ReasonNotProbedYet {
		s.NotProbedYet++
	}
	if !e.expiry.IsZero() && !now.Before(e.late) && !now.After(e.expiry) {
		s.late++
	}
	s.oldest = earlier(s.oldest, e.looked)
	s.expiry = earlier(s.expiry, e.expiry)
}

// earlier of two times, where zero means none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

type failingNode struct {
	name   string
	reason v1alpha1.Reason
	group  verdict.Group
}

// worst keeps so many nodes at most, and of all those added the worst ones.
type worst struct {
	most  int
	nodes []failingNode
}

func (w *worst) add(f failingNode) {
	if w.nodes = append(w.nodes, f); len(w.nodes) > 2*w.most {
		w.nodes = w.first()
	}
}

// first are the worst nodes, the worst one first, then by name.
func (w *worst) first() []failingNode {
	slices.SortFunc(w.nodes, func(a, b failingNode) int {
		return cmp.Or(cmp.Compare(b.group, a.group), cmp.Compare(a.name, b.name))
	})
	return w.nodes[:min(len(w.nodes), w.most)]
}
