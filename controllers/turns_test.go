package controllers

import (
	"context"
	"crypto/x509"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// onNow is a clock that has something done whenever it is asked.
type onNow struct {
	clock.RealClock
	do func()
}

func (c onNow) Now() time.Time { c.do(); return c.RealClock.Now() }

// A new regime gives every Node its turn. One that is judged under the old regime
// then must not put that off, so it sets its own while no other can begin.
func TestANextTurnIsSetWithinItsRegime(t *testing.T) {
	r, asked := oneNode(t), 0
	r.schedule = newSchedule(onNow{do: func() {
		asked++
		if r.Regimes.mu.TryLock() {
			r.Regimes.mu.Unlock()
			t.Error("another regime can begin while the next turn is set")
		}
	}}, 1, func(string) {})
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); err != nil || asked != 1 {
		t.Errorf("%d turns were set, %v", asked, err)
	}
}

// oneNode that is verified, under a regime.
func oneNode(t *testing.T) *NodeReconciler {
	t.Helper()
	world := certs.NewWorld(time.Now())
	node := fleet.Node("n1", fleet.Address(0), 10250)
	packed, err := kubelet.Pack(node)
	if err != nil {
		t.Fatal(err)
	}
	leaf := world.CA.Issue(certs.Template(certs.Identity{NodeName: "n1", IP: fleet.Address(0)}))
	r := &NodeReconciler{
		Client: &packedNodes{nodes: map[string]*kubelet.Packed{"n1": packed}}, Recorder: unchanged{}, Ledger: metrics.New(clock.RealClock{}, 10),
		Counters: uncounted{}, Regimes: &Regimes{}, Clock: clock.RealClock{}, Changed: func() {},
		Prober: atOnce{verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: []*x509.Certificate{leaf.Leaf()}}},
	}
	r.Ledger.Track("n1", kubelet.IdentityOf(node), time.Now())
	r.Regimes.set(&regime{epoch: 1, interval: interval, threshold: 3, selector: labels.Everything(), policy: verdict.Policy{Bundle: bundleOf(world.CA)},
		endpoints: kubelet.Options{PreferredAddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}}})
	return r
}

// A verdict that cannot be written is tried again, later and later; the Node has its
// next turn all the same.
func TestANextTurnIsSetWhateverBecomesOfTheVerdict(t *testing.T) {
	r := oneNode(t)
	r.Recorder = unwilling{}
	r.schedule = newSchedule(clock.RealClock{}, 1, func(string) {})
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n1"}}); !errors.Is(err, errUnwilling) {
		t.Errorf("%v", err)
	}
	if len(r.schedule.slots) != 1 {
		t.Errorf("%d turns are set", len(r.schedule.slots))
	}
}

var errUnwilling = errors.New("the API server is away")

type unwilling struct{ Recorder }

func (unwilling) Record(context.Context, *corev1.Node, verdict.Verdict) (bool, error) {
	return false, errUnwilling
}

// Whatever is dropped while it is being called for is not waited for: else nobody
// would be called for any more once there are as many of them as may wait.
func TestNothingDroppedIsWaitedFor(t *testing.T) {
	const nodes = 100_000
	s := newSchedule(clock.RealClock{}, nodes, nil)
	slots := make([]slot, nodes)
	for i := range slots {
		s.set(&slots[i], time.Duration(i))
	}
	var calling sync.WaitGroup
	calling.Go(func() {
		for name, wait := s.next(); name != "" || wait < time.Minute; name, wait = s.next() {
		}
	})
	for i := range slots { // in the order in which they are called for
		s.drop(&slots[i])
	}
	calling.Wait()
	if s.called != 0 || len(s.slots) != 0 {
		t.Errorf("%d are waited for, and %d are left", s.called, len(s.slots))
	}
}

// A Node that is forgotten while all are given their turn must have none: what is
// called for and can never be taken would be in the way of all others for good. So
// none can be forgotten between being known and having its turn.
func TestNoneIsForgottenWhileItIsGivenItsTurn(t *testing.T) {
	r := &NodeReconciler{Ledger: metrics.New(clock.RealClock{}, 10), Changed: func() {}}
	r.Ledger.Track("n1", verdict.Identity{}, time.Now())
	asked := 0
	r.schedule = newSchedule(onNow{do: func() {
		asked++
		if r.mu.TryLock() {
			r.mu.Unlock()
			t.Error("a Node can be forgotten while it is given its turn")
		}
	}}, 1, func(string) {})
	r.EnqueueAll()
	r.handler().Create(t.Context(), event.CreateEvent{Object: fleet.Node("n2", fleet.Address(0), 10250), IsInInitialList: true}, nil)
	if asked != 2 {
		t.Errorf("%d turns were given", asked)
	}
}
