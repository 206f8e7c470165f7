package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// begun counts the probes that could begin, and keeps their turns.
type begun struct {
	l *Limiter

	mu    sync.Mutex
	turns []*turn
}

func (b *begun) all() []*turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.turns)
}

// try lets n more begin as soon as they may, each at the CPU.
func (b *begun) try(ctx context.Context, n int) {
	for range n {
		go func() {
			if t, err := b.l.begin(ctx, false); err == nil {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.turns = append(b.turns, t)
			}
		}()
		synctest.Wait()
	}
}

// While anybody is at the CPU no more begin than may; while all of them wait for
// their peers more do, up to a bound.
func TestMoreBeginWhileAllWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &begun{l: NewLimiter(2)}
		b.try(ctx, 40)
		expect := func(want int, when string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if len(b.all()) != want {
				t.Fatalf("%d have begun, want %d: %s", len(b.all()), want, when)
			}
		}
		expect(2, "both are at the CPU")
		b.all()[0].pause()
		expect(2, "one is at the CPU")
		b.all()[1].pause()
		expect(4, "two more are at the CPU")
		for i := 0; i < len(b.all()); i++ {
			b.all()[i].pause()
			if i%2 == 1 {
				time.Sleep(4 * stall)
				synctest.Wait()
			}
		}
		expect(2*MostOpen, "no more than that")
		if got := b.l.Allowed(); got != 2*MostOpen {
			t.Errorf("%d are allowed", got)
		}
		for i := range 8 { // another 8 have waited for this
			b.all()[i].end()
		}
		synctest.Wait()
		for i := 2 * MostOpen; i < len(b.all()); i++ { // each comes to the CPU in its turn
			b.all()[i].pause()
			synctest.Wait()
		}
		expect(40, "the room of those that ended")
		for _, turn := range b.all()[8:] {
			turn.end()
		}
		if b.l.Allowed() != 2 || b.l.open != 0 || b.l.free != b.l.places {
			t.Errorf("%d allowed, %d open, %d free of %d", b.l.Allowed(), b.l.open, b.l.free, b.l.places)
		}
		cancel()
	})
}

// What was allowed while all waited for their peers is taken back once they wait
// for the CPU.
func TestFewerBeginOnceTheCPUIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &begun{l: NewLimiter(2)}
		b.try(ctx, 40)
		for i := 0; i < 12; i++ {
			for len(b.all()) <= i {
				time.Sleep(stall)
				synctest.Wait()
			}
			b.all()[i].pause()
		}
		grown := b.l.Allowed()
		for _, turn := range b.all()[:12] { // all of them have got an answer
			go func() { _ = turn.resume(ctx) }()
		}
		time.Sleep(20 * stall)
		synctest.Wait()
		if shrunk := b.l.Allowed(); grown < 12 || shrunk != 2 {
			t.Errorf("%d allowed while all waited, %d now", grown, shrunk)
		}
		cancel()
	})
}

// With tarpits under way, each probe that ends lets another begin.
func TestTarpitsKeepNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &begun{l: NewLimiter(1)}
		b.try(t.Context(), 8)
		for i := range 4 { // tarpits
			b.all()[i].pause()
			time.Sleep(4 * stall)
			synctest.Wait()
		}
		for i := 4; i < 8; i++ {
			if len(b.all()) != i+1 {
				t.Fatalf("%d have begun, want %d", len(b.all()), i+1)
			}
			b.all()[i].end()
			synctest.Wait() // without waiting for a look
		}
	})
}

// Who gives its place away waits for one again.
func TestPlacesAtTheCPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &begun{l: NewLimiter(1)}
		b.try(t.Context(), 2)
		b.all()[0].pause()
		b.all()[0].pause() // gives back what it has, and no more
		time.Sleep(time.Second)
		synctest.Wait()
		if len(b.all()) != 2 {
			t.Fatalf("%d have begun", len(b.all()))
		}
		var resumed atomic.Bool
		go func() { resumed.Store(b.all()[0].resume(t.Context()) == nil) }()
		synctest.Wait()
		if resumed.Load() {
			t.Fatal("the only place was taken")
		}
		b.all()[1].end()
		synctest.Wait()
		if !resumed.Load() {
			t.Error("the place is free")
		}
		b.all()[0].end()
		if b.l.free != 1 || b.l.open != 0 {
			t.Errorf("%d places are free, %d are open", b.l.free, b.l.open)
		}
	})
}

// Who is urgent begins before those that have waited for longer.
func TestUrgentOnesBeginFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		holder, _ := l.begin(t.Context(), false)
		var mu sync.Mutex
		var order []string
		for _, name := range []string{"first", "second", "urgent", "urgent too"} {
			go func() {
				turn, _ := l.begin(t.Context(), strings.HasPrefix(name, "urgent"))
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				turn.end()
			}()
			synctest.Wait()
		}
		holder.end()
		synctest.Wait()
		if !slices.Equal(order, []string{"urgent", "urgent too", "first", "second"}) {
			t.Errorf("%v", order)
		}
	})
}

func TestLimiterForgetsWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		holder, _ := l.begin(t.Context(), false)
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		go func() { _, err = l.begin(ctx, false) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || l.begins.Len() != 0 {
			t.Errorf("%v, %d are waiting", err, l.begins.Len())
		}
		holder.pause()
		other, _ := l.begin(t.Context(), false)
		ctx, cancel = context.WithCancel(t.Context())
		go func() { err = holder.resume(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || l.resumes.Len() != 0 {
			t.Errorf("%v, %d are waiting", err, l.resumes.Len())
		}
		holder.end()
		other.end()
		if l.free != 1 || l.open != 0 {
			t.Errorf("%d places are free, %d are open", l.free, l.open)
		}
	})
}

// A peer that could go on for ever is cut off.
func TestABoundedConnEnds(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	go func() {
		_, _ = theirs.Write(make([]byte, 10_000))
		_ = theirs.Close()
	}()
	c := &boundedConn{Conn: ours, left: 1000, turn: &turn{}, ctx: t.Context()}
	n, err := io.Copy(io.Discard, c)
	if !errors.Is(err, errTooMuch) || n != 1000 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestWithoutALimiterNobodyWaits(t *testing.T) {
	var l *Limiter
	turn, err := l.begin(t.Context(), false)
	turn.pause()
	if err != nil || turn.resume(t.Context()) != nil {
		t.Error(err)
	}
}
