package ha

import (
	"context"
	"errors"
	"net"
	"sync"
)

// link is the network between one manager and the API server. Cut, it is silent:
// nothing arrives, nothing is refused, connections stay, as when a cable is
// pulled; what was under way arrives once it is mended.
type link struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]struct{}
	ended bool
	gate  chan struct{} // closed while the link is whole
}

func newLink(ctx context.Context, target string) (*link, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target, open: map[net.Conn]struct{}{}, gate: make(chan struct{})}
	close(l.gate)
	l.running.Go(l.accept)
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gate:
	default:
		close(l.gate)
	}
}

// reset ends every connection, and drops what was under way.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close()
	}
}

// whole waits until nothing is cut.
func (l *link) whole() {
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	<-gate
}

// keep remembers a connection for close, and says whether there is still a link.
func (l *link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.open[c] = struct{}{}
	}
	return !l.ended
}

func (l *link) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	_ = c.Close()
}

func (l *link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.carry(c) })
	}
}

func (l *link) carry(near net.Conn) {
	defer l.drop(near)
	if !l.keep(near) {
		return
	}
	l.whole()
	far, err := net.Dial("tcp", l.target) //nolint:noctx // both ends are on this machine
	if err != nil {
		return
	}
	defer l.drop(far)
	if !l.keep(far) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pass(far, near) })
	both.Go(func() { l.pass(near, far) })
	both.Wait()
}

// pass copies until either end is gone, and then ends both.
func (l *link) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.whole()
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				err = errors.Join(err, werr)
			}
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

func (l *link) close() error {
	err := l.listener.Close()
	l.mend()
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.reset()
	l.running.Wait()
	return err
}
