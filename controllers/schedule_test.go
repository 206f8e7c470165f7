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
		s := newSchedule(clock.RealClock{}, func(name string) {
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
