package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
)

// Who pauses makes room, and who resumes comes before who begins.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		first, err := l.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first.pause()
		first.pause() // gives back what it has, and no more
		second, err := l.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		go func() {
			third, _ := l.begin(t.Context())
			order = append(order, "begins")
			third.pause()
		}()
		synctest.Wait()
		go func() {
			_ = first.resume(t.Context())
			order = append(order, "resumes")
			first.pause()
		}()
		synctest.Wait()
		if len(order) > 0 {
			t.Errorf("%v, while the only place is taken", order)
		}
		second.pause()
		synctest.Wait()
		if !slices.Equal(order, []string{"resumes", "begins"}) {
			t.Errorf("%v", order)
		}
		if l.free != 1 {
			t.Errorf("%d places are free in the end", l.free)
		}
	})
}

func TestLimiterForgetsWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(1)
		holder, _ := l.begin(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		go func() { _, err = l.begin(ctx) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err == nil || l.begins.Len() != 0 {
			t.Errorf("%v, %d are waiting", err, l.begins.Len())
		}
		holder.pause()
		if l.free != 1 {
			t.Errorf("%d places are free", l.free)
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
	turn, err := l.begin(t.Context())
	turn.pause()
	if err != nil || turn.resume(t.Context()) != nil {
		t.Error(err)
	}
}
