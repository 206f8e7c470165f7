package probe

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"
)

// Limiter bounds how many probes are under way, and how many of them use the CPU
// at a time. One whose peer keeps it waiting gives its place at the CPU to
// another, and once it has waited for much longer than those that got an answer,
// another may begin beside it, up to MostOpen times as many, so that peers that
// never answer hold nobody up. No more than that: what begins beside probes that
// are about to be answered only waits with them, for the same CPU, network or
// peers. It is safe for concurrent use. Probes without a Limiter are not bound.
type Limiter struct {
	places, probes int

	mu      sync.Mutex // guards what follows
	free    int        // places
	open    int        // probes under way
	overdue int        // those of them beside which another may begin
	usual   time.Duration
	begins  queues
	resumes queues
	// others have the next place that is free, if any of them wait for one.
	others bool
}

// queues of those that are urgent and of the others, each of chan struct{}, which
// are closed when it is their turn.
type queues struct{ urgent, other list.List }

func (q *queues) of(urgent bool) *list.List {
	if urgent {
		return &q.urgent
	}
	return &q.other
}

// next of those that wait, or nil.
func (q *queues) next(urgentFirst bool) chan struct{} {
	from := q.of(urgentFirst)
	if from.Len() == 0 {
		from = q.of(!urgentFirst)
	}
	if from.Len() == 0 {
		return nil
	}
	return from.Remove(from.Front()).(chan struct{}) //nolint:forcetypeassert // nothing else is put in
}

const (
	// MostOpen is how many probes may be under way in place of one.
	MostOpen = 16
	// patience is after how many times the usual duration of a probe another one
	// may begin beside it; leastPatience bounds it where peers are near, and half
	// of the probe's time limit where they are far.
	patience      = 2
	leastPatience = 10 * time.Millisecond
	// guess at the usual duration, before there was an answer.
	guess = 50 * time.Millisecond
)

// NewLimiter allows n probes, at least one, of which no more use the CPU than
// keep it busy.
func NewLimiter(n int) *Limiter {
	n = max(1, n)
	places := min(n, 2*runtime.GOMAXPROCS(0))
	return &Limiter{places: places, probes: n, free: places, usual: guess}
}

// Allowed is how many probes may be under way at this moment.
func (l *Limiter) Allowed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowed()
}

func (l *Limiter) allowed() int { return min(l.probes+l.overdue, MostOpen*l.probes) }

// begin waits until a probe with a time limit may begin, and for a place. Whoever
// began must end.
func (l *Limiter) begin(ctx context.Context, urgent bool, limit time.Duration) (*turn, error) {
	t := &turn{limiter: l, urgent: urgent, limit: limit}
	if l == nil {
		return t, nil
	}
	queue := l.begins.of(urgent)
	l.mu.Lock()
	if l.open < l.allowed() { // then nobody waits
		l.open++
		t.start()
		l.mu.Unlock()
	} else {
		mine := make(chan struct{})
		waiting := queue.PushBack(mine)
		l.mu.Unlock()
		select {
		case <-mine:
			l.mu.Lock()
			t.start()
			l.mu.Unlock()
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			select {
			case <-mine: // granted meanwhile
				l.leave()
			default:
				queue.Remove(waiting)
			}
			return nil, ctx.Err()
		}
	}
	if err := t.resume(ctx); err != nil {
		t.end(false)
		return nil, err
	}
	return t, nil
}

// leave makes room for one that waits to begin; l.mu must be held.
func (l *Limiter) leave() {
	l.open--
	l.admit()
}

// admit whoever may begin; l.mu must be held.
func (l *Limiter) admit() {
	for l.open < l.allowed() {
		next := l.begins.next(true)
		if next == nil {
			return
		}
		l.open++
		close(next)
	}
}

// took follows the median of what probes take that are answered: their mean would
// be that of a few slow ones.
func (l *Limiter) took(d time.Duration) {
	step := max(l.usual/16, 1)
	if d < l.usual {
		step = -step
	}
	l.usual += step
}

// turn is one probe's place at the CPU. Only its own goroutine uses it.
type turn struct {
	limiter *Limiter
	urgent  bool
	limit   time.Duration
	held    bool

	begun          time.Time
	late           *time.Timer
	overdue, ended bool // guarded by the limiter's mu
}

// start is the begin of the probe; the limiter's mu must be held.
func (t *turn) start() {
	t.begun = time.Now()
	t.late = time.AfterFunc(min(max(leastPatience, patience*t.limiter.usual), t.limit/2), t.makeRoom)
}

// makeRoom lets another begin beside a probe that is overdue.
func (t *turn) makeRoom() {
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.ended {
		t.overdue = true
		l.overdue++
		l.admit()
	}
}

// end is the end of the probe, and says whether it was answered.
func (t *turn) end(answered bool) {
	t.pause()
	l := t.limiter
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.ended = true
	t.late.Stop()
	if t.overdue {
		l.overdue--
	}
	if answered {
		l.took(time.Since(t.begun))
	}
	l.leave()
}

// pause gives the place back; without one it does nothing.
func (t *turn) pause() {
	if !t.held {
		return
	}
	t.held = false
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release()
}

// release gives a place to whoever waits for it, in turn to one that is urgent and
// to another: what is under way runs against its time limit. l.mu must be held.
func (l *Limiter) release() {
	next := l.resumes.next(!l.others)
	if next == nil {
		l.free++
		return
	}
	l.others = !l.others
	close(next)
}

// resume waits for a place again.
func (t *turn) resume(ctx context.Context) error {
	l := t.limiter
	if l == nil || t.held {
		return nil
	}
	l.mu.Lock()
	if l.free > 0 { // then nobody waits
		l.free--
		t.held = true
		l.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	queue := l.resumes.of(t.urgent)
	waiting := queue.PushBack(mine)
	l.mu.Unlock()
	select {
	case <-mine:
		t.held = true
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-mine: // granted meanwhile
		l.release()
	default:
		queue.Remove(waiting)
	}
	return ctx.Err()
}
