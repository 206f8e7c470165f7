package probe

import (
	"container/list"
	"context"
	"runtime"
	"sync"
)

// Limiter bounds how many handshakes use the CPU at a time. One whose peer keeps
// it waiting gives its place to another, so that peers that never answer hold
// nobody up; when it can go on, it comes before those that have not begun, so
// that no more begin than can be finished in time. It is safe for concurrent
// use. A nil Limiter bounds nothing.
type Limiter struct {
	places int

	mu      sync.Mutex // guards what follows
	free    int
	resumes list.List // of chan struct{}, closed when it is the turn
	begins  list.List
}

// MostOpen is how many probes may be under way in place of one, where their
// peers keep all of them waiting.
const MostOpen = 16

// NewLimiter has n places, at least one, and no more than keep every CPU busy:
// what begins beyond that only waits, with its memory, for those under way.
func NewLimiter(n int) *Limiter {
	n = max(1, min(n, 2*runtime.GOMAXPROCS(0)))
	return &Limiter{places: n, free: n}
}

// Idle says that every probe under way waits for its peer.
func (l *Limiter) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.free == l.places
}

// begin waits for the first turn of a probe.
func (l *Limiter) begin(ctx context.Context) (*turn, error) {
	t := &turn{limiter: l}
	if l == nil {
		return t, nil
	}
	return t, t.take(ctx, &l.begins)
}

// turn is one probe's place. Only its own goroutine uses it.
type turn struct {
	limiter *Limiter
	held    bool
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
	l.free++
	l.grant()
}

// resume waits for a place again.
func (t *turn) resume(ctx context.Context) error {
	if t.limiter == nil || t.held {
		return nil
	}
	return t.take(ctx, &t.limiter.resumes)
}

func (t *turn) take(ctx context.Context, queue *list.List) error {
	l := t.limiter
	l.mu.Lock()
	if l.free > 0 { // then nobody waits
		l.free--
		t.held = true
		l.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
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
		l.free++
		l.grant()
	default:
		queue.Remove(waiting)
	}
	return ctx.Err()
}

// grant gives free places to those that wait; l.mu must be held.
func (l *Limiter) grant() {
	for _, queue := range []*list.List{&l.resumes, &l.begins} {
		for l.free > 0 && queue.Len() > 0 {
			l.free--
			close(queue.Remove(queue.Front()).(chan struct{})) //nolint:forcetypeassert // nothing else is put in
		}
	}
}
