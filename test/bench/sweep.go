package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// sweep is the command audit, step by step.
func sweep(ctx context.Context, args []string) (any, error) {
	flags := flag.NewFlagSet("sweep", flag.ContinueOnError)
	file := flags.String("f", "", "")
	ca := flags.String("ca", "", "")
	concurrency := flags.Int("concurrency", 128, "")
	sweeps := flags.Int("sweeps", 1, "")
	profile := flags.String("profile", "", "")
	take := flags.Int("take", 0, "only the first nodes")
	until := flags.Int("until", 0, "end when so many have shown a certificate")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	bundle, err := trust.Load(ctx, trust.File(*ca))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	in, err := os.Open(*file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	chosen := audit.Chosen{Selector: labels.Everything()}
	if err := kubelet.Decode(in, chosen.Add); err != nil {
		return nil, err
	}
	nodes := chosen.Nodes
	result := Result{Read: time.Since(start).Seconds()}
	if *take > 0 {
		nodes = nodes[:*take]
	}
	shuffle(nodes)
	limiter := probe.NewLimiter(*concurrency)
	opts := audit.Options{
		Prober:    &probe.Prober{AllowLocalAddresses: true, Limiter: limiter},
		Endpoints: kubelet.Options{PreferredAddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}},
		Policy:    verdict.Policy{Bundle: bundle}, Timeout: 10 * time.Second, Concurrency: *concurrency, Allowed: limiter.Allowed,
		What: verdict.WhatBoth, Clock: clock.RealClock{}, Paths: &audit.Paths{},
	}
	defer cli.TuneForASweep()()
	stop, err := startProfile(*profile)
	if err != nil {
		return nil, err
	}
	defer stop()
	if *until > 0 {
		result.Sweeps = []Cost{untilShown(ctx, nodes, opts, *until)}
		return result, nil
	}
	var last *audit.Report
	for range *sweeps {
		result.Sweeps = append(result.Sweeps, measure(len(nodes), func() { last = audit.Run(ctx, nodes, opts) }))
		if last.Summary.Verified != len(nodes) {
			return nil, fmt.Errorf("%d of %d nodes are verified", last.Summary.Verified, len(nodes))
		}
	}
	start = time.Now()
	if err := report.Render(io.Discard, last, report.JSON); err != nil {
		return nil, err
	}
	result.Write, result.PeakRSS = time.Since(start).Seconds(), peakRSS()
	return result, nil
}

// shuffle spreads the last ones evenly, always in the same way.
func shuffle(nodes []*corev1.Node) {
	const step = 7919 // a prime
	if len(nodes)%step == 0 {
		return
	}
	spread := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		spread[i] = nodes[i*step%len(nodes)]
	}
	copy(nodes, spread)
}

// untilShown is a sweep until so many nodes have shown their certificate.
func untilShown(ctx context.Context, nodes []*corev1.Node, opts audit.Options, want int) Cost {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prober := &counting{Prober: opts.Prober, want: int64(want), done: cancel}
	opts.Prober = prober
	return measure(want, func() { audit.Run(ctx, nodes, opts) })
}

// counting ends a sweep.
type counting struct {
	audit.Prober
	want int64
	seen atomic.Int64
	done func()
}

// Probe implements audit.Prober.
func (c *counting) Probe(ctx context.Context, e verdict.Endpoint, timeout time.Duration) (verdict.Observation, error) {
	obs, err := c.Prober.Probe(ctx, e, timeout)
	if obs.Outcome == verdict.OutcomeCompleted && c.seen.Add(1) == c.want {
		c.done()
	}
	return obs, err
}
