// Package audit sweeps over a list of Nodes once and reports.
package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Prober performs one handshake. It errs only when ctx ends.
type Prober interface {
	Probe(ctx context.Context, endpoint verdict.Endpoint, timeout time.Duration) (verdict.Observation, error)
}

// Options of a sweep.
type Options struct {
	Prober    Prober
	Endpoints kubelet.Options
	Policy    verdict.Policy
	// Requests that nodes have made, for advice; nil where they are not known.
	Requests *kubelet.Requests
	// APIServers as far as they could be seen; nil where nobody looked.
	APIServers *verdict.APIServers
	// Paths that earlier sweeps have verified; nil where there is one sweep.
	Paths *Paths
	// Timeout of one probe.
	Timeout time.Duration
	// Concurrency is the number of probes under way; at least 1. Where it may
	// change, Allowed gives the present one.
	Concurrency int
	Allowed     func() int
	// What decides the answer, and so the exit code.
	What verdict.What
	// Selector that chose the nodes, in words; empty for all. Excluded is the
	// number of nodes that it left out.
	Selector string
	Excluded int
	// ClusterCA says that the bundle is the cluster's, by default.
	ClusterCA bool
	Clock     clock.PassiveClock
	// Progress, if set, is called after each node, from many goroutines.
	Progress func()
}

// notice is how soon it is noticed that more probes are allowed.
const notice = 5 * time.Millisecond

// Chosen gathers the Nodes that a selector chooses, with what Run reads of them.
type Chosen struct {
	Selector labels.Selector
	Nodes    []*corev1.Node
	// Excluded is the number of Nodes that were left out.
	Excluded int

	names map[string]bool
}

// Add errs where there was a Node of the same name. Of the labels, which are most
// of what a stripped Node takes, it leaves the one that the report reads.
func (c *Chosen) Add(node *corev1.Node) error {
	if c.names[node.Name] {
		return fmt.Errorf("node %q is there twice", node.Name)
	}
	if c.names == nil {
		c.names = map[string]bool{}
	}
	c.names[node.Name] = true
	if !c.Selector.Matches(labels.Set(node.Labels)) {
		c.Excluded++
		return nil
	}
	kind, is := node.Labels[kindLabel]
	node.Labels = nil
	if is {
		node.Labels = map[string]string{kindLabel: kind}
	}
	c.Nodes = append(c.Nodes, node)
	return nil
}

// kindLabel tells virtual kubelets from others.
const kindLabel = "type"

// Looked is one node as it was looked at.
type Looked struct {
	Node        *corev1.Node
	Expectation verdict.Expectation
	Observation verdict.Observation
	Verdict     verdict.Verdict
}

// Run probes every node once. When ctx ends it stops, and the nodes that were
// not reached are not probed yet: what is known so far is still right.
func Run(ctx context.Context, nodes []*corev1.Node, opts Options) *Report {
	all := make([]*seen, len(nodes))
	var next atomic.Int64
	var workers sync.WaitGroup
	worker := func() {
		for i := int(next.Add(1)) - 1; i < len(nodes); i = int(next.Add(1)) - 1 {
			all[i] = newSeen(look(ctx, nodes[i], opts), opts.What)
			if opts.Progress != nil {
				opts.Progress()
			}
		}
	}
	running := 0
	fill := func(want int) {
		for ; running < min(want, len(nodes)); running++ {
			workers.Go(worker)
		}
	}
	fill(max(1, opts.Concurrency))
	if opts.Allowed != nil {
		workers.Go(func() {
			tick := time.NewTicker(notice)
			defer tick.Stop()
			for range tick.C {
				if int(next.Load()) >= len(nodes) {
					return
				}
				fill(opts.Allowed())
			}
		})
	}
	workers.Wait()
	r := newReport(all, opts)
	r.Interrupted = ctx.Err() != nil
	return r
}

func look(ctx context.Context, node *corev1.Node, opts Options) Looked {
	l := Looked{Node: node, Expectation: kubelet.ExpectationOf(node, opts.Endpoints)}
	l.Expectation.Request = opts.Requests.Of(node.Name)
	if l.Expectation.Endpoint.Host != "" && ctx.Err() == nil {
		// Without an observation, which is what an error means, the node counts
		// as not probed.
		l.Observation, _ = opts.Prober.Probe(ctx, l.Expectation.Endpoint, opts.Timeout)
	}
	opts.Policy.Known = opts.Paths.of(node.Name)
	l.Verdict = verdict.Judge(l.Expectation, l.Observation, opts.Policy, opts.Clock.Now())
	opts.Paths.keep(node.Name, l.Verdict.Path)
	return l
}

// Paths remembers what sweeps have verified, by node. The zero Paths knows none;
// it is safe for concurrent use.
type Paths struct{ byNode sync.Map }

func (p *Paths) of(node string) *verdict.Path {
	if p == nil {
		return nil
	}
	known, _ := p.byNode.Load(node)
	path, _ := known.(*verdict.Path)
	return path
}

func (p *Paths) keep(node string, path *verdict.Path) {
	if p != nil && path != nil {
		p.byNode.Store(node, path)
	}
}

// worstFirst orders nodes by what would happen to them, then by name.
func worstFirst(all []*seen) {
	slices.SortFunc(all, func(a, b *seen) int {
		return cmp.Or(cmp.Compare(rank(a.Group), rank(b.Group)), cmp.Compare(a.Name, b.Name))
	})
}

// rank of a group: what is not known is worse than what is fine.
func rank(g verdict.Group) int {
	return slices.Index([]verdict.Group{
		verdict.GroupRejectedToday, verdict.GroupBreaksWhenEnabled, verdict.GroupUnknown, verdict.GroupVerified,
	}, g)
}
