// Command bench measures the product next to the least that a probe can cost: a
// bare TLS handshake with full verification. Every figure is a ratio or a count
// from one run; what is measured, and what it is measured against, take turns.
//
//	go run ./test/bench [-nodes 5000] [-rounds 5] [-only sweeps,manager,...]
//
// Simulated kubelets, and the API server, run in processes of their own, on one
// core, and the process under test on the other, where there are two.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// subjects are the processes that the orchestrator starts from this binary.
var subjects = map[string]func(context.Context, []string) (any, error){
	"limit": limit,
	"sweep": sweep,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // a command of its own
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			return serve(ctx, args[1:])
		case "product":
			return product(ctx, args[1:])
		}
		if subject := subjects[args[0]]; subject != nil {
			result, err := subject(ctx, args[1:])
			if err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(result)
		}
	}
	return orchestrate(ctx, args)
}
