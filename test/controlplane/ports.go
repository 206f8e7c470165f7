package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	// Ports come from below the ranges that systems take the local ports of
	// outgoing connections from: while a killed API server is down, nothing
	// but another listener can take its port.
	lowestPort  = 20000
	highestPort = 32000

	portAttempts = 5
)

// FreePort is a port on 127.0.0.1 that nobody listens on, and that no outgoing
// connection takes by itself.
func FreePort(ctx context.Context) (int, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(ports[0])
}

// freePorts finds n different ports on 127.0.0.1 that nobody listens on.
// Somebody may by the time they are used: see retryTakenPort.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	var held []net.Listener // held until the end, so that the ports differ
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	var config net.ListenConfig
	for range 1000 {
		if len(ports) == n {
			return ports, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("find free ports: %w", context.Cause(ctx))
		}
		port := strconv.Itoa(lowestPort + rand.IntN(highestPort-lowestPort))
		l, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback, port))
		if err != nil {
			continue
		}
		held = append(held, l)
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports on %s in %d-%d", n, loopback, lowestPort, highestPort)
}

// retryTakenPort calls start again, a few times, while it errs with
// errPortTaken.
func retryTakenPort(start func() error) error {
	var err error
	for range portAttempts {
		if err = start(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}
