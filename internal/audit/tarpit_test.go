package audit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// 500 peers that never answer hold up 500 that do by a fifth at most. The two
// are measured one after the other; what else the machine does cannot make a
// sweep that waits for tarpits look like one that does not, so the best of
// several rounds counts.
func TestTarpitsHoldNobodyUp(t *testing.T) {
	const each, rounds, most = 500, 20, 1.2
	f, err := fleet.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	var healthy, mixed []*corev1.Node
	for i := range each {
		good, silent := fleet.Address(2*i), fleet.Address(2*i+1)
		name := fmt.Sprintf("good-%d", i)
		f.Set(good, fleet.Behaviour{Served: world.CA.Issue(certs.Template(certs.Identity{NodeName: name, IP: good}))})
		f.Set(silent, fleet.Behaviour{Wire: certs.WireSilent})
		node := fleet.Node(name, good, f.Port())
		healthy = append(healthy, node)
		mixed = append(mixed, fleet.Node(fmt.Sprintf("silent-%d", i), silent, f.Port()), node)
	}
	best := 1000.0
	for range rounds {
		alone := untilVerified(t, healthy, each)
		if ratio := float64(untilVerified(t, mixed, each)) / float64(alone); ratio < best {
			best = ratio
		}
		if best <= most {
			return
		}
	}
	t.Errorf("with as many tarpits it takes %.2f times as long", best)
}

// untilVerified sweeps, and gives the time until so many nodes have shown their
// certificate; it does not wait for the others.
func untilVerified(t *testing.T, nodes []*corev1.Node, want int64) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	prober := &probe.Prober{AllowLocalAddresses: true, Limiter: probe.NewLimiter(64)}
	var seen atomic.Int64
	var took time.Duration
	start := time.Now()
	opts := options(proberFunc(func(ctx context.Context, e verdict.Endpoint) (verdict.Observation, error) {
		obs, err := prober.Probe(ctx, e, 30*time.Second)
		if obs.Outcome == verdict.OutcomeCompleted && seen.Add(1) == want {
			took = time.Since(start)
			cancel()
		}
		return obs, err
	}))
	opts.Concurrency, opts.Allowed = 64, prober.Limiter.Allowed
	audit.Run(ctx, nodes, opts)
	if seen.Load() != want {
		t.Fatalf("%d of %d nodes were seen", seen.Load(), want)
	}
	return took
}
