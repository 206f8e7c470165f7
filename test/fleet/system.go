package fleet

import (
	"fmt"
	"syscall"
)

// refusedPort is a socket that is bound and never listens: nobody else gets
// its port, and connecting to it is refused.
type refusedPort struct {
	socket int
	port   int32
}

func bindRefused() (*refusedPort, error) {
	syscall.ForkLock.RLock() // else a process that starts meanwhile inherits the socket
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	r := &refusedPort{socket: socket}
	if r.port, err = bindAny(socket); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// bindAny binds the socket to a free port of every address.
func bindAny(socket int) (int32, error) {
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{}); err != nil {
		return 0, fmt.Errorf("bind a socket: %w", err)
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, fmt.Errorf("ask for a socket's port: %w", err)
	}
	inet, ok := address.(*syscall.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("ask for a socket's port: got a %T", address)
	}
	return int32(inet.Port), nil
}

func (r *refusedPort) close() { _ = syscall.Close(r.socket) }

// raiseOpenFiles does its best: a connection needs one file at either end, and
// a small fleet runs under any limit.
func raiseOpenFiles() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= limit.Max {
		return
	}
	limit.Cur = limit.Max
	_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
