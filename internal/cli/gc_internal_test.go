package cli

import (
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestPercentFor(t *testing.T) {
	for _, c := range []struct {
		mib  uint64
		want int
	}{{0, 20}, {2, 20}, {25, 50}, {49, 98}, {50, 100}, {90, 100}, {1 << 20, 100}} {
		if got := percentFor(c.mib*10<<20, 10*time.Second); got != c.want {
			t.Errorf("%d MiB a second: %d, want %d", c.mib, got, c.want)
		}
	}
}

func TestTuneGC(t *testing.T) {
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	before := percent()
	for environment, want := range map[string]int{"": leastGC, "75": before} {
		t.Setenv("GOGC", environment)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { tuneGC(ctx); close(done) }()
			time.Sleep(2 * tuneEvery) // in which nothing is allocated
			synctest.Wait()
			if got := percent(); got != want {
				t.Errorf("GOGC=%q: %d, want %d", environment, got, want)
			}
			cancel()
			<-done
			if got := percent(); got != before {
				t.Errorf("GOGC=%q: %d in the end, %d before", environment, got, before)
			}
		})
	}
}
