package main

import (
	"context"
	"fmt"
	"net/http"
	_ "net/http/pprof" // for whoever looks at what the time and the memory are spent on
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
)

// product is the product itself, with its profiles and its metrics, in the plain,
// at the address of the environment variable BENCH_PPROF.
func product(ctx context.Context, args []string) error {
	http.Handle("/metrics", promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{}))
	server := &http.Server{Addr: os.Getenv(pprofVariable), ReadHeaderTimeout: time.Second}
	go func() { fmt.Fprintln(os.Stderr, "bench: pprof:", server.ListenAndServe()) }()
	_, err := cli.Run(ctx, args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	return err
}

const pprofVariable = "BENCH_PPROF"
