package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
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
			if t, err := b.l.begin(ctx, false, time.Minute); err == nil {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.turns = append(b.turns, t)
			}
		}()
		synctest.Wait()
	}
}

// Beside each probe that takes much longer than usual another one begins, up to a
// bound, and all that is taken back when they end.
func TestAnotherBeginsBesideOneThatIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &begun{l: NewLimiter(2)}
		b.try(ctx, 40)
		for want := 2; want <= 2*MostOpen; want += 2 {
			if got := len(b.all()); got != want || b.l.Allowed() != want {
				t.Fatalf("%d have begun, %d are allowed, want %d", got, b.l.Allowed(), want)
			}
			for _, turn := range b.all()[want-2:] {
				turn.pause() // their peers keep them waiting
			}
			time.Sleep(patience*guess - time.Nanosecond)
			synctest.Wait()
			if got := len(b.all()); got != want {
				t.Fatalf("%d have begun before the others are overdue, want %d", got, want)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
		}
		if got := len(b.all()); got != 2*MostOpen || b.l.Allowed() != 2*MostOpen {
			t.Fatalf("%d have begun, %d are allowed", got, b.l.Allowed())
		}
		cancel()
		synctest.Wait() // those that wait have given up
		for _, turn := range b.all() {
			turn.end(false)
		}
		if b.l.Allowed() != 2 || b.l.open != 0 || b.l.overdue != 0 || b.l.free != b.l.places || b.l.usual != guess {
			t.Errorf("%d allowed, %d open, %d overdue, %d of %d free, usually %s", b.l.Allowed(), b.l.open, b.l.overdue, b.l.free, b.l.places, b.l.usual)
		}
	})
}

// What is overdue follows what probes take that are answered, and no few slow ones.
func TestPatience(t *testing.T) {
	for name, c := range map[string]struct {
		took     func(i int) time.Duration
		limit    time.Duration
		from, to time.Duration // after which another begins
	}{
		"near":                  {func(int) time.Duration { return time.Microsecond }, time.Minute, leastPatience, leastPatience},
		"far":                   {func(int) time.Duration { return time.Second }, time.Minute, patience * 900 * time.Millisecond, patience * 1100 * time.Millisecond},
		"far, with little time": {func(int) time.Duration { return time.Second }, time.Second, time.Second / 2, time.Second / 2},
		"a tenth is slow": {func(i int) time.Duration {
			return []time.Duration{9 * time.Second, 20 * time.Millisecond}[min(1, i%10)]
		}, time.Minute, patience * 18 * time.Millisecond, patience * 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimiter(1)
				for i := range 1000 {
					turn, _ := l.begin(t.Context(), false, time.Minute)
					turn.pause()
					time.Sleep(c.took(i))
					turn.end(true)
				}
				slow, _ := l.begin(t.Context(), false, c.limit)
				slow.pause()
				start := time.Now()
				next, _ := l.begin(t.Context(), false, time.Minute)
				if waited := time.Since(start); waited < c.from || waited > c.to {
					t.Errorf("another began after %s", waited)
				}
				slow.end(false)
				next.end(false)
			})
		})
	}
}

// With tarpits under way, each probe that ends lets another begin.
func TestTarpitsKeepNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &begun{l: NewLimiter(1)}
		b.try(t.Context(), 8)
		for i := range 4 { // tarpits
			b.all()[i].pause()
			time.Sleep(patience * guess)
			synctest.Wait()
		}
		for i := 4; i < 8; i++ {
			if len(b.all()) != i+1 {
				t.Fatalf("%d have begun, want %d", len(b.all()), i+1)
			}
			b.all()[i].end(true)
			synctest.Wait() // without any time between
		}
		for _, tarpit := range b.all()[:4] {
			tarpit.end(false)
		}
	})
}

// Who ended is not overdue, however long ago.
func TestWhoEndedMakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		turn, _ := l.begin(t.Context(), false, time.Minute)
		turn.end(true)
		turn.makeRoom() // the timer, had it been about to fire
		time.Sleep(time.Hour)
		synctest.Wait()
		if l.Allowed() != 1 {
			t.Errorf("%d are allowed", l.Allowed())
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
		b.all()[1].end(true)
		synctest.Wait()
		if !resumed.Load() {
			t.Error("the place is free")
		}
		b.all()[0].end(true)
		if b.l.free != 1 || b.l.open != 0 {
			t.Errorf("%d places are free, %d are open", b.l.free, b.l.open)
		}
	})
}

// Who is urgent begins before those that have waited for longer.
func TestUrgentOnesBeginFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		holder, _ := l.begin(t.Context(), false, time.Minute)
		var mu sync.Mutex
		var order []string
		for _, name := range []string{"first", "second", "urgent", "urgent too"} {
			go func() {
				turn, _ := l.begin(t.Context(), strings.HasPrefix(name, "urgent"), time.Minute)
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				turn.end(true)
			}()
			synctest.Wait()
		}
		holder.end(true)
		synctest.Wait()
		if !slices.Equal(order, []string{"urgent", "urgent too", "first", "second"}) {
			t.Errorf("%v", order)
		}
	})
}

// Of those under way, who is urgent has every second place, and the others the rest.
func TestUrgentOnesHaveEverySecondPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(6)
		l.places, l.free = 1, 1
		turns := map[string]*turn{}
		for _, name := range []string{"first", "second", "third", "urgent", "urgent too", "holder"} {
			turns[name], _ = l.begin(t.Context(), strings.HasPrefix(name, "urgent"), time.Minute)
			turns[name].pause()
		}
		_ = turns["holder"].resume(t.Context())
		var mu sync.Mutex
		var order []string
		for _, name := range []string{"first", "second", "third", "urgent", "urgent too"} {
			go func() {
				_ = turns[name].resume(t.Context())
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				turns[name].end(true)
			}()
			synctest.Wait()
		}
		turns["holder"].end(true)
		synctest.Wait()
		if !slices.Equal(order, []string{"urgent", "first", "urgent too", "second", "third"}) {
			t.Errorf("%v", order)
		}
		if l.free != 1 || l.open != 0 {
			t.Errorf("%d places are free, %d are open", l.free, l.open)
		}
	})
}

func TestLimiterForgetsWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		holder, _ := l.begin(t.Context(), false, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		go func() { _, err = l.begin(ctx, false, time.Minute) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || l.begins.other.Len() != 0 {
			t.Errorf("%v, %d are waiting", err, l.begins.other.Len())
		}
		holder.pause()
		other, _ := l.begin(t.Context(), false, time.Minute)
		ctx, cancel = context.WithCancel(t.Context())
		go func() { err = holder.resume(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) || l.resumes.other.Len() != 0 {
			t.Errorf("%v, %d are waiting", err, l.resumes.other.Len())
		}
		holder.end(true)
		other.end(true)
		if l.free != 1 || l.open != 0 {
			t.Errorf("%d places are free, %d are open", l.free, l.open)
		}
	})
}

// Who gives up in the moment in which it may begin leaves no room taken.
func TestLimiterForgetsWhoGivesUpWhenGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		for range 100 { // the runtime tosses a coin
			holder, _ := l.begin(t.Context(), false, time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if turn, err := l.begin(ctx, false, time.Minute); err == nil {
					turn.end(true)
				}
			}()
			synctest.Wait()
			l.mu.Lock() // neither is seen before both are there
			cancel()
			l.open--
			l.admit()
			l.open++
			l.mu.Unlock()
			synctest.Wait()
			holder.end(true)
			if l.open != 0 || l.free != l.places {
				t.Fatalf("%d open, %d of %d free", l.open, l.free, l.places)
			}
		}
	})
}

// Every answer teaches how long one takes, and where there is none nothing does.
func TestProbesTeachPatience(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.Close()
		}
	})
	at := netip.MustParseAddrPort(l.Addr().String())
	p := &Prober{AllowLocalAddresses: true, Limiter: NewLimiter(1)}
	probe := func() verdict.Outcome {
		obs, _ := p.Probe(t.Context(), verdict.Endpoint{Host: at.Addr().String(), Port: int32(at.Port())}, time.Minute)
		return obs.Outcome
	}
	if outcome := probe(); outcome != verdict.OutcomeClosed || p.Limiter.usual == guess {
		t.Errorf("%s: usually %s", outcome, p.Limiter.usual)
	}
	_ = l.Close()
	serving.Wait()
	taught := p.Limiter.usual
	if outcome := probe(); outcome != verdict.OutcomeUnconnected || p.Limiter.usual != taught {
		t.Errorf("%s: usually %s, before %s", outcome, p.Limiter.usual, taught)
	}
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
	turn, err := l.begin(t.Context(), false, time.Minute)
	turn.pause()
	if err != nil || turn.resume(t.Context()) != nil {
		t.Error(err)
	}
}

// A peer that is not there, or says nothing, does not tell how long an answer takes.
func TestHeard(t *testing.T) {
	for outcome, want := range map[verdict.Outcome]bool{
		verdict.OutcomeNone: false, verdict.OutcomeTimeout: false, verdict.OutcomeUnconnected: false,
		verdict.OutcomeUnresolved: false, verdict.OutcomeAddressNotAllowed: false,
		verdict.OutcomeCompleted: true, verdict.OutcomeClosed: true, verdict.OutcomeNotTLS: true, verdict.OutcomeInternalError: true,
		verdict.OutcomeHandshakeFailed: true, verdict.OutcomeBadCertificate: true,
	} {
		if heard(outcome) != want {
			t.Errorf("%s: %t, want %t", outcome, !want, want)
		}
	}
}

// hostile panics within a handshake.
type hostile struct{ context.Context }

func (hostile) Value(any) any { panic("hostile") }

// A reconcile survives a panic; what the probe held is given back.
func TestAPanicKeepsNoTurn(t *testing.T) {
	l := NewLimiter(1)
	p := &Prober{AllowLocalAddresses: true, Limiter: l}
	func() {
		defer func() {
			if recover() != "hostile" {
				t.Error("it did not panic")
			}
		}()
		_, _ = p.Probe(hostile{t.Context()}, verdict.Endpoint{Host: "127.0.0.1", Port: 1}, time.Minute)
	}()
	if l.open != 0 || l.free != l.places || l.usual != guess {
		t.Errorf("%d open, %d of %d free, usually %s", l.open, l.free, l.places, l.usual)
	}
}
