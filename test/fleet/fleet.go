// Package fleet serves thousands of simulated kubelets from one process: one
// listener, one port, a loopback address per node, each with its own
// certificate and behaviour on the wire, which may change while it runs.
//
// It counts what its clients do, so that a test can prove what never arrived.
// It knows what it serves and not what is right about it. It needs a system
// that routes all of 127.0.0.0/8 to the loopback device, as Linux does.
package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// connectionLife bounds every connection, whatever its peer does.
const connectionLife = time.Minute

// Behaviour is how a node serves.
type Behaviour struct {
	Wire certs.Wire
	// Served may be empty where the wire shows no certificate.
	Served certs.Served
	// Configure, if set, changes the server's configuration once more.
	Configure func(*tls.Config)
}

// Fleet is safe for concurrent use.
type Fleet struct {
	listeners []net.Listener
	refused   *refusedPort
	done      chan struct{}
	running   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	closed bool
	nodes  map[netip.Addr]*node
	open   map[net.Conn]struct{}
}

// node outlives its removal, so that its counts do.
type node struct {
	counters
	wire  certs.Wire
	serve func(*conn) // nil: the connection is reset
}

// Start listens on a free port of every IPv4 address and serves no node yet.
// It raises the process's limit of open files as far as allowed.
func Start() (*Fleet, error) {
	// Keep-alive probes would cost three system calls per connection.
	listen := net.ListenConfig{KeepAlive: -1}
	listener, err := listen.Listen(context.Background(), "tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the fleet: %w", err)
	}
	return Serve(listener)
}

// Serve is Start on TCP listeners of the caller's, at least one, which are
// closed with the fleet. Every node answers on each of them.
func Serve(listeners ...net.Listener) (*Fleet, error) {
	raiseOpenFiles()
	f := &Fleet{
		listeners: listeners,
		done:      make(chan struct{}),
		nodes:     map[netip.Addr]*node{},
		open:      map[net.Conn]struct{}{},
	}
	var err error
	if f.refused, err = bindRefused(); err != nil {
		return nil, errors.Join(fmt.Errorf("bind a port that refuses: %w", err), f.stopListening())
	}
	for _, l := range listeners {
		f.running.Go(func() { f.accept(l) })
	}
	return f, nil
}

// Port is where the nodes listen, all but those of certs.WireRefused: that of
// the first listener.
func (f *Fleet) Port() int32 {
	return int32(f.listeners[0].Addr().(*net.TCPAddr).Port)
}

// RefusedPort is a port on which nobody listens, kept from others until Close.
func (f *Fleet) RefusedPort() int32 { return f.refused.port }

// PortOf is what the status of the Node at ip must carry under its present
// behaviour.
func (f *Fleet) PortOf(ip netip.Addr) int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, ok := f.nodes[ip]; ok && n.serve != nil && n.wire == certs.WireRefused {
		return f.RefusedPort()
	}
	return f.Port()
}

// Set adds the node at ip or changes it. Connections that were accepted before
// go on as they began. It panics on a behaviour that lacks the certificate or
// the key that its wire needs.
func (f *Fleet) Set(ip netip.Addr, b Behaviour) {
	f.mu.Lock()
	n := f.nodeLocked(ip)
	f.mu.Unlock()
	serve := f.serverOf(n, b)

	f.mu.Lock()
	defer f.mu.Unlock()
	n.wire, n.serve = b.Wire, serve
}

// Remove takes the node at ip away: from now on its connections are reset, as
// those to any unknown address. Its counts stay.
func (f *Fleet) Remove(ip netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodeLocked(ip).serve = nil
}

// Counts tells what arrived at ip since Start, also while no node was there.
func (f *Fleet) Counts(ip netip.Addr) Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, ok := f.nodes[ip]; ok {
		return n.read()
	}
	return Counts{}
}

// Total is the sum over all addresses, removed and unknown ones included.
func (f *Fleet) Total() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	var total Counts
	for _, n := range f.nodes {
		total = total.plus(n.read())
	}
	return total
}

// Close ends every connection and waits for every goroutine. Further calls do
// nothing.
func (f *Fleet) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	close(f.done)
	err := f.stopListening()
	for raw := range f.open {
		_ = raw.Close()
	}
	f.mu.Unlock()

	f.running.Wait()
	f.refused.close()
	return err
}

func (f *Fleet) stopListening() error {
	var problems []error
	for _, l := range f.listeners {
		if err := l.Close(); err != nil {
			problems = append(problems, fmt.Errorf("close a listener of the fleet: %w", err))
		}
	}
	return errors.Join(problems...)
}

func (f *Fleet) nodeLocked(ip netip.Addr) *node {
	n, ok := f.nodes[ip]
	if !ok {
		n = &node{}
		f.nodes[ip] = n
	}
	return n
}

func (f *Fleet) accept(l net.Listener) {
	for {
		raw, err := l.Accept()
		if err == nil {
			f.take(raw.(*net.TCPConn))
			continue
		}
		if !f.wait(10 * time.Millisecond) { // closed, or out of file descriptors
			return
		}
	}
}

// take starts to serve a connection, unless the fleet is closed.
func (f *Fleet) take(raw *net.TCPConn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = raw.Close()
		return
	}
	n := f.nodeLocked(raw.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
	n.connections.Add(1)
	n.open.Add(1)
	serve := n.serve
	f.open[raw] = struct{}{}
	f.running.Go(func() { f.handle(&conn{TCPConn: raw, node: n}, serve) })
}

func (f *Fleet) handle(c *conn, serve func(*conn)) {
	_ = c.SetDeadline(time.Now().Add(connectionLife))
	if serve != nil {
		serve(c)
	} else {
		_ = c.SetLinger(0)
	}
	f.mu.Lock()
	delete(f.open, c.TCPConn)
	f.mu.Unlock()
	c.node.open.Add(-1)
	_ = c.Close()
}

// wait tells whether the time passed before the fleet was closed.
func (f *Fleet) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.done:
		return false
	}
}
