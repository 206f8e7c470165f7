package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// limit is what nobody can avoid: connect, shake hands and verify, with Go's
// defaults.
func limit(ctx context.Context, args []string) (any, error) {
	flags := flag.NewFlagSet("limit", flag.ContinueOnError)
	nodes := flags.Int("nodes", 0, "")
	port := flags.String("port", "", "")
	ca := flags.String("ca", "", "")
	concurrency := flags.Int("concurrency", 128, "")
	sweeps := flags.Int("sweeps", 1, "")
	profile := flags.String("profile", "", "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)

	var failure atomic.Pointer[error]
	stop, err := startProfile(*profile)
	if err != nil {
		return nil, err
	}
	defer stop()
	var costs []Cost
	for range *sweeps {
		costs = append(costs, measure(*nodes, func() {
			var next atomic.Int64
			var workers sync.WaitGroup
			for range *concurrency {
				workers.Go(func() {
					for i := int(next.Add(1)) - 1; i < *nodes; i = int(next.Add(1)) - 1 {
						if err := handshake(ctx, fleet.Address(i).String(), *port, roots); err != nil {
							failure.Store(&err)
						}
					}
				})
			}
			workers.Wait()
		}))
		if err := failure.Load(); err != nil {
			return nil, *err
		}
	}
	return Result{Sweeps: costs, PeakRSS: peakRSS()}, nil
}

func handshake(ctx context.Context, host, port string, roots *x509.CertPool) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: host})
	if err := client.HandshakeContext(ctx); err != nil {
		return err
	}
	return client.Close()
}

// Result of one process.
type Result struct {
	Sweeps []Cost `json:"sweeps"`
	// Read and Write are seconds for the list of Nodes and for the report.
	Read    float64 `json:"read"`
	Write   float64 `json:"write"`
	PeakRSS int64   `json:"peakRSS"`
}
