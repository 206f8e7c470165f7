package controllers

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
)

// schedule calls for Nodes when they are due by the clock, and not for more of
// them at a time than are taken soon. A queue could keep them until then too, in
// ten times the memory.
type schedule struct {
	clock clock.Clock
	// due is called for one Node after the other, while fewer than most of those
	// called for were not taken yet.
	due  func(name string)
	most int
	// open is closed once due may be called.
	open chan struct{}

	mu     sync.Mutex
	slots  slots
	called int
	// sooner has something in it when the next call may be due sooner.
	sooner chan struct{}
}

// slot of one Node; the zero slot is not taken.
type slot struct {
	name string
	at   compact.Instant
	// place in the heap, from 1; 0 where it is not in there.
	place int32
	// called for, and not taken yet.
	called bool
}

func newSchedule(c clock.Clock, most int, due func(name string)) *schedule {
	return &schedule{clock: c, due: due, most: most, open: make(chan struct{}), sooner: make(chan struct{}, 1)}
}

// set the time of a slot to so long from now, in place of any earlier one. A step
// of the clock in between changes nothing.
func (s *schedule) set(l *slot, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.at = compact.InstantOf(s.clock.Now().Add(wait))
	if l.place == 0 {
		heap.Push(&s.slots, l)
	} else {
		heap.Fix(&s.slots, int(l.place-1))
	}
	if l.place == 1 {
		s.wake()
	}
}

func (s *schedule) wake() {
	select {
	case s.sooner <- struct{}{}:
	default:
	}
}

// take a Node, whether it was called for or not.
func (s *schedule) take(l *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedTake(l)
}

func (s *schedule) lockedTake(l *slot) {
	if !l.called {
		return
	}
	l.called = false
	if s.called--; s.called == s.most-1 {
		s.wake()
	}
}

// drop a slot, so that it is neither called for nor waited for.
func (s *schedule) drop(l *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lockedTake(l)
	if l.place > 0 {
		heap.Remove(&s.slots, int(l.place-1))
	}
}

// Start implements manager.Runnable.
func (s *schedule) Start(ctx context.Context) error {
	select {
	case <-s.open:
	case <-ctx.Done():
		return nil
	}
	timer := s.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.call())
		select {
		case <-timer.C():
		case <-s.sooner:
		case <-ctx.Done():
			return nil
		}
	}
}

// call for all that is due, as far as that is wanted, and give the time until the
// next one is.
func (s *schedule) call() time.Duration {
	for {
		name, wait := s.next()
		if wait > 0 {
			return wait
		}
		s.due(name)
	}
}

// next is the Node to call for now, or the time until there may be one.
func (s *schedule) next() (name string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.slots) == 0 || s.called >= s.most {
		return "", time.Hour // until woken
	}
	first := s.slots[0]
	if wait := first.at.Time().Sub(s.clock.Now()); wait > 0 {
		return "", wait
	}
	heap.Pop(&s.slots)
	if !first.called {
		first.called = true
		s.called++
	}
	return first.name, 0
}

// slots implements heap.Interface: the first one is due first.
type slots []*slot

func (s slots) Len() int           { return len(s) }
func (s slots) Less(i, j int) bool { return s[i].at < s[j].at }

func (s slots) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = int32(i+1), int32(j+1)
}

// Push implements heap.Interface.
func (s *slots) Push(x any) {
	l := x.(*slot) //nolint:forcetypeassert // nothing else is put in
	*s = append(*s, l)
	l.place = int32(len(*s))
}

// Pop implements heap.Interface.
func (s *slots) Pop() any {
	last := len(*s) - 1
	l := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	l.place = 0
	return l
}
