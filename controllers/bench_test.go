package controllers

import (
	"context"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// BenchmarkReconcile is one of many Nodes, each of which is due, with peers that
// answer at once and conditions that stay as they are.
func BenchmarkReconcile(b *testing.B) {
	for _, n := range []int{1_000, 50_000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			now := time.Now()
			world := certs.NewWorld(now)
			cache := &packedNodes{nodes: map[string]*kubelet.Packed{}}
			r := &NodeReconciler{
				Client: cache, Recorder: unchanged{}, Ledger: metrics.New(clock.RealClock{}, 10), Counters: uncounted{}, Regimes: &Regimes{},
				Clock: clock.RealClock{}, Changed: func() {},
			}
			r.schedule = newSchedule(r.Clock, n, func(string) {})
			requests := make([]ctrl.Request, n)
			for i := range n {
				node := fleet.Node(fmt.Sprintf("n%d", i), fleet.Address(i), 10250)
				packed, err := kubelet.Pack(node)
				if err != nil {
					b.Fatal(err)
				}
				cache.nodes[node.Name], requests[i].Name = packed, node.Name
				r.Ledger.Track(node.Name, kubelet.IdentityOf(node), now)
			}
			leaf := world.CA.Issue(certs.Template(certs.Identity{NodeName: "n0", IP: fleet.Address(0)}))
			r.Prober = atOnce{verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: []*x509.Certificate{leaf.Leaf()}}}
			r.Regimes.set(&regime{epoch: 1, interval: time.Nanosecond, threshold: 3, endpoints: kubelet.Options{PreferredAddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}},
				selector: labels.Everything(), policy: verdict.Policy{Bundle: bundleOf(world.CA)}})
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := r.Reconcile(b.Context(), requests[i%n]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// packedNodes answers as the manager's cache of Nodes.
type packedNodes struct {
	client.Client
	nodes map[string]*kubelet.Packed
}

// Get implements client.Reader.
func (c *packedNodes) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	packed, ok := c.nodes[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
	}
	*into.(*corev1.Node) = *packed.Node() //nolint:forcetypeassert // nothing else is asked for
	return nil
}

type atOnce struct{ obs verdict.Observation }

// Probe implements Prober.
func (p atOnce) Probe(context.Context, verdict.Endpoint, time.Duration) (verdict.Observation, error) {
	return p.obs, nil
}

type unchanged struct{}

// Record implements Recorder.
func (unchanged) Record(context.Context, *corev1.Node, verdict.Verdict) (bool, error) {
	return false, nil
}

// Clear implements Recorder.
func (unchanged) Clear(context.Context, *corev1.Node) error { return nil }
