package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
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
	limit    verdict.Readiness
	nodes    map[string]*entry
}

// entry of a Node, of which there may be very many.
type entry struct {
	identity verdict.Identity
	created  stamp
	epoch    int64
	late     stamp // see verdict.LateFrom
	expiry   stamp
	looked   compact.Instant
	reason   v1alpha1.Reason
	failed   uint8 // a bit for each of v1alpha1.CheckNames, by their order
	status   verdict.Status
	group    verdict.Group
	excluded bool
}

// stamp is a time by the wall clock in microseconds of the Unix epoch; 0 is none.
// It reaches the year 9999, as certificates do.
type stamp int64

func stampOf(t time.Time) stamp {
	if t.IsZero() {
		return 0
	}
	if s := stamp(t.UnixMicro()); s != 0 {
		return s
	}
	return 1 // the epoch's own first moment is a time too
}

func (s stamp) time() time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(s))
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
	l.nodes[name] = &entry{identity: id, created: stampOf(created)}
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

// Limit says what kube-apiserver's own flags allow at best.
func (l *Ledger) Limit(limit verdict.Readiness) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
}

// End says that nothing is judged any more.
func (l *Ledger) End() { l.Begin(0, 0) }

// Put records the verdict of a Node in an epoch, and when the node was last
// looked at, and reports whether status, reason or epoch are others than before.
// A verdict of a Node that is gone or another one is dropped.
func (l *Ledger) Put(name string, id verdict.Identity, epoch int64, v verdict.Verdict, looked time.Time) (changed bool) {
	e := entry{epoch: epoch, group: v.Group(), status: v.Status, reason: v.Reason, looked: compact.InstantOf(looked)}
	for i, check := range v1alpha1.CheckNames() {
		if v.Check(check).Result == verdict.Fail {
			e.failed |= 1 << i
		}
	}
	if v.Leaf != nil {
		e.late, e.expiry = stampOf(verdict.LateFrom(v.Leaf)), stampOf(v.Leaf.NotAfter)
	}
	return l.put(name, id, e)
}

// Exclude records that the present epoch leaves a Node out.
func (l *Ledger) Exclude(name string, id verdict.Identity, epoch int64) {
	l.put(name, id, entry{epoch: epoch, excluded: true})
}

func (l *Ledger) put(name string, id verdict.Identity, e entry) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.nodes[name]
	if known == nil || known.identity != id || e.epoch < known.epoch {
		return false
	}
	changed = e.epoch != known.epoch || e.status != known.status || e.reason != known.reason
	e.identity, e.created = known.identity, known.created
	*known = e
	return changed
}

// notProbedYet is what an entry of another epoch, or of none, counts as.
var notProbedYet = entry{reason: v1alpha1.ReasonNotProbedYet}

// each calls f with every entry as it counts now; l.mu must be held.
func (l *Ledger) each(f func(name string, created stamp, e *entry)) {
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
	expiry   stamp
	oldest   compact.Instant // of the nodes that were looked at
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
	s.Limit = l.limit
	failing, at := worst{most: most}, stampOf(now)
	var newest stamp
	l.each(func(name string, created stamp, e *entry) {
		newest = max(newest, created)
		if e.excluded {
			s.Excluded++
			return
		}
		s.add(e, at)
		if e.status != verdict.True {
			failing.add(failingNode{name, e.reason, e.group})
		}
	})
	s.NewestNode = newest.time()
	if s.NotProbedYet == 0 {
		s.OldestLook = s.oldest.Time()
	}
	s.Overdue = s.oldest != 0 && verdict.Overdue(s.oldest.Time(), l.interval, now)
	for _, f := range failing.first() {
		s.Failing = append(s.Failing, v1alpha1.FailingNode{Name: f.name, Reason: f.reason})
	}
	return s, l.epoch != 0
}

func (s *snapshot) add(e *entry, now stamp) {
	s.Add(e.group)
	s.nodes[statusReason{e.status, e.reason}]++
	for i := range s.failures {
		s.failures[i] += int(e.failed >> i & 1)
	}
	if e.reason == v1alpha1.ReasonNotProbedYet {
		s.NotProbedYet++
	}
	if e.expiry != 0 && now >= e.late && now <= e.expiry {
		s.late++
	}
	s.oldest = earlier(s.oldest, e.looked)
	s.expiry = earlier(s.expiry, e.expiry)
}

// earlier of two times, where 0 is none.
func earlier[T ~int64](a, b T) T {
	if a == 0 || b != 0 && b < a {
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
