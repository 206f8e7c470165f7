// Command demo shows the product at work on a real etcd and kube-apiserver and
// simulated kubelets: the manager, run as a process with the ServiceAccount's
// token and nothing but the shipped RBAC, then the CLI.
//
//	go run ./test/demo          stays up until Ctrl-C
//	go run ./test/demo --once   exits: 0 only if everything is as it must be
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	once := flag.Bool("once", false, "check every verdict, tear down and exit")
	nodes := flag.Int("nodes", 60, "the number of simulated nodes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	err := run(ctx, *once, *nodes)
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled) || !*once):
		fmt.Println("\ninterrupted: everything was torn down")
		if *once {
			os.Exit(1)
		}
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo failed:", err)
		os.Exit(1)
	default:
		fmt.Printf("\neverything is as it must be, and torn down (%s)\n", time.Since(start).Round(time.Second))
	}
}

func run(ctx context.Context, once bool, nodes int) (err error) {
	d, err := newDemo(nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.tearDown()) }()

	for _, step := range []func(context.Context) error{
		d.buildProduct, d.buildControlPlane, d.startControlPlane, d.createNodes, d.install, d.startManager, d.awaitSweep, d.show,
		d.reachWebhook, d.showRequests, d.check,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if !once {
		scrape, err := d.scrapeConfig(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("\nIt stays up until Ctrl-C. Look around with:\n  export KUBECONFIG=%s\n  %s get kubeletcertaudit\n  prometheus --config.file=%s\n",
			d.kubeconfig, d.kubectl, scrape)
		select {
		case <-ctx.Done():
		case err := <-d.managerDone:
			d.managerDone <- err // for tearDown
			return fmt.Errorf("the manager ended: %w", err)
		}
	}
	return nil
}
