package controllers

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
)

// schedule calls for Nodes when they are due by the clock. A queue could keep
// them until then too, in ten times the memory.
type schedule struct {
	clock clock.Clock
	// due is called for one Node after the other.
	due func(name string)

	mu    sync.Mutex
	slots slots
	// sooner has something in it when the first slot may be another one.
	sooner chan struct{}
}

// slot of one Node; the zero slot is not taken.
type slot struct {
	name string
	at   compact.Instant
	// place in the heap, from 1; 0 where it is not in there.
	place int32
}

func newSchedule(c clock.Clock, due func(name string)) *schedule {
	return &schedule{clock: c, due: due, sooner: make(chan struct{}, 1)}
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
		select {
		case s.sooner <- struct{}{}:
		default:
		}
	}
}

// drop a slot.
func (s *schedule) drop(l *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.place > 0 {
		heap.Remove(&s.slots, int(l.place-1))
	}
}

// Start implements manager.Runnable.
func (s *schedule) Start(ctx context.Context) error {
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

// call for all that is due, and give the time until the next one is.
func (s *schedule) call() time.Duration {
	for {
		s.mu.Lock()
		wait, name := time.Hour, ""
		if len(s.slots) > 0 {
			wait, name = s.slots[0].at.Time().Sub(s.clock.Now()), s.slots[0].name
		}
		if wait <= 0 {
			heap.Pop(&s.slots)
		}
		s.mu.Unlock()
		if wait > 0 {
			return wait
		}
		s.due(name)
	}
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
