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
// another. While the peers keep all of them waiting, more may begin, up to
// MostOpen times as many, so that peers that never answer hold nobody up; no
// more than that, since what begins while others can go on only waits, with its
// memory, for them, and fewer again once they wait for the CPU. It is safe for concurrent use. A nil Limiter bounds nothing.
type Limiter struct {
	places, probes int

	mu      sync.Mutex // guards what follows
	free    int        // places
	open    int        // probes under way
	allowed int        // at most so many of them
	resumes list.List  // of chan struct{}, closed when it is the turn
	urgents list.List  // begin before the others
	begins  list.List
	looking bool // for room to allow more
	idle    int  // looks in a row that found nobody at the CPU
}

const (
	// MostOpen is how many probes may be under way in place of one.
	MostOpen = 16
	// stall is how long nobody has to be at the CPU, give or take, before more
	// probes may begin.
	stall = 5 * time.Millisecond
)

// NewLimiter allows n probes, at least one, of which no more use the CPU than
// keep it busy.
func NewLimiter(n int) *Limiter {
	n = max(1, n)
	places := min(n, 2*runtime.GOMAXPROCS(0))
	return &Limiter{places: places, probes: n, free: places, allowed: n}
}

// Allowed is how many probes may be under way at this moment.
func (l *Limiter) Allowed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowed
}

// begin waits until a probe may begin, and for a place. Whoever began must end.
func (l *Limiter) begin(ctx context.Context, urgent bool) (*turn, error) {
	t := &turn{limiter: l}
	if l == nil {
		return t, nil
	}
	queue := &l.begins
	if urgent {
		queue = &l.urgents
	}
	l.mu.Lock()
	if l.open < l.allowed { // then nobody waits
		l.open++
		l.mu.Unlock()
	} else {
		mine := make(chan struct{})
		waiting := queue.PushBack(mine)
		l.look()
		l.mu.Unlock()
		select {
		case <-mine:
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
		t.end()
		return nil, err
	}
	return t, nil
}

// leave makes room for one that waits to begin, and takes back what is allowed
// beyond need; l.mu must be held.
func (l *Limiter) leave() {
	l.open--
	l.allowed = max(l.probes, min(l.allowed, l.open+l.probes))
	l.admit()
}

func (l *Limiter) admit() {
	for _, queue := range []*list.List{&l.urgents, &l.begins} {
		for l.open < l.allowed && queue.Len() > 0 {
			l.open++
			close(queue.Remove(queue.Front()).(chan struct{})) //nolint:forcetypeassert // nothing else is put in
		}
	}
}

// look for room, as long as anybody waits to begin; l.mu must be held.
func (l *Limiter) look() {
	if l.looking {
		return
	}
	l.looking, l.idle = true, 0
	time.AfterFunc(stall, l.tick)
}

func (l *Limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looking = false
	if l.urgents.Len()+l.begins.Len() == 0 {
		return
	}
	idle := 0
	if l.free == l.places {
		idle = l.idle + 1
	}
	if idle == 2 {
		l.allowed = min(l.allowed+l.probes, MostOpen*l.probes)
		l.admit()
		idle = 0
	}
	if l.resumes.Len() > 0 { // what else began would only wait with them
		l.allowed = max(l.probes, l.allowed-max(1, l.probes/8))
	}
	l.look()
	l.idle = idle
}

// turn is one probe's place at the CPU. Only its own goroutine uses it.
type turn struct {
	limiter *Limiter
	held    bool
}

// end is the end of the probe.
func (t *turn) end() {
	t.pause()
	if l := t.limiter; l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leave()
	}
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

// release gives a place to whoever waits for it; l.mu must be held.
func (l *Limiter) release() {
	if l.resumes.Len() == 0 {
		l.free++
		return
	}
	close(l.resumes.Remove(l.resumes.Front()).(chan struct{})) //nolint:forcetypeassert // nothing else is put in
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
	waiting := l.resumes.PushBack(mine)
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
		l.resumes.Remove(waiting)
	}
	return ctx.Err()
}
