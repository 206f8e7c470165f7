package controllers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var called []string
		s := newSchedule(clock.RealClock{}, 100, func(name string) {
			called = append(called, name+" "+time.Since(start).String())
		})
		nodes := map[string]*slot{}
		for _, name := range strings.Split("abcdefgh", "") {
			nodes[name] = &slot{name: name}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		s.set(nodes["b"], 2*time.Second) // before anybody looks
		go func() { done <- s.Start(ctx) }()
		synctest.Wait()
		close(s.open)
		s.set(nodes["h"], 3*time.Hour)
		s.set(nodes["d"], 4*time.Second)
		s.set(nodes["c"], 3*time.Second)
		s.set(nodes["a"], time.Second) // sooner than what is waited for
		s.set(nodes["e"], time.Minute)
		s.set(nodes["e"], 5*time.Second) // moved forward
		s.set(nodes["f"], time.Second)
		s.set(nodes["f"], 6*time.Second) // put off
		s.set(nodes["g"], 2*time.Second)
		s.drop(nodes["g"])
		s.drop(nodes["g"])
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if want := []string{"a 1s", "b 2s", "c 3s", "d 4s", "e 5s", "f 6s"}; !slices.Equal(called, want) {
			t.Errorf("called %q, want %q", called, want)
		}
		called = nil
		s.set(nodes["a"], 0) // overdue
		synctest.Wait()
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		if want := []string{"a 10s", "h 3h0m0s"}; !slices.Equal(called, want) {
			t.Errorf("called %q, want %q", called, want)
		}
		if len(s.slots) != 0 {
			t.Errorf("%d slots are left", len(s.slots))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// What is not taken yet is waiting elsewhere, in more memory than here.
func TestScheduleCallsForNoMoreThanAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var called []string
		s := newSchedule(clock.RealClock{}, 2, func(name string) { called = append(called, name) })
		nodes := map[string]*slot{}
		for i, name := range strings.Split("abcdefg", "") {
			nodes[name] = &slot{name: name}
			s.set(nodes[name], time.Duration(i)) // in this order
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Start(ctx) }()
		time.Sleep(time.Second)
		if synctest.Wait(); len(called) != 0 {
			t.Errorf("called for %q before it is open", called)
		}
		close(s.open)
		want := func(after, names string) {
			t.Helper()
			if synctest.Wait(); strings.Join(called, "") != names {
				t.Errorf("after %s: called for %q, want %q", after, called, names)
			}
		}
		want("the start", "ab")
		s.take(nodes["g"]) // nobody called for it
		want("one that was not called for", "ab")
		s.take(nodes["a"])
		want("one was taken", "abc")
		s.take(nodes["a"])
		want("the same once more", "abc")
		s.drop(nodes["c"]) // it is gone
		want("one is gone", "abcd")
		s.set(nodes["b"], 0) // before it was taken
		for _, name := range strings.Split("defg", "") {
			s.take(nodes[name])
			synctest.Wait()
		}
		want("others were taken", "abcdefgb")
		if s.called != 1 {
			t.Errorf("one was called for twice, and %d are out", s.called)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
