package controllers

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const (
	interval = 10 * time.Minute
	soon     = 15 * time.Second
)

// desk is one node's state with all that it depends on, at a time of its own.
type desk struct {
	t      *testing.T
	now    time.Time
	world  *certs.World
	node   *corev1.Node
	regime *regime
	state  nodeState
	// request is the node's latest one.
	request verdict.Request
	// stands is the verdict that does; the zero one where none does.
	stands verdict.Verdict
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := &desk{t: t, now: now, world: certs.NewWorld(now), node: fleet.Node("n1", netip.MustParseAddr("127.1.0.1"), 10250)}
	d.node.UID = "u1"
	d.node.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	d.regime = &regime{epoch: 1, interval: interval, threshold: 3,
		endpoints: kubelet.Options{PreferredAddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}},
		policy:    verdict.Policy{Bundle: bundleOf(d.world.CA), NewNodeGrace: 2 * time.Minute}}
	d.adopt()
	return d
}

func bundleOf(ca *certs.CA) verdict.Bundle {
	b := verdict.Bundle{Roots: x509.NewCertPool(), Certificates: []*x509.Certificate{ca.Certificate}}
	b.Roots.AddCert(ca.Certificate)
	return b
}

func (d *desk) exp() verdict.Expectation {
	exp := kubelet.ExpectationOf(d.node, d.regime.endpoints)
	exp.Request = d.request
	return exp
}

func (d *desk) pass(t time.Duration) { d.now = d.now.Add(t) }

func (d *desk) adopt() {
	d.state.adopt(d.node, d.exp(), d.regime, d.now)
	d.stands = verdict.Verdict{}
	if d.now.Before(d.state.nextProbe.Time()) {
		d.look()
	}
}

func (d *desk) look() { d.stands = d.state.look(d.exp(), d.regime, d.now) }

// epoch begins with another bundle.
func (d *desk) epoch(b verdict.Bundle) {
	next := *d.regime
	next.epoch++
	next.policy.Bundle = b
	d.regime = &next
	d.adopt()
}

// see takes in what a probe would, of a kubelet that behaves like the defect.
func (d *desk) see(outcome verdict.Outcome, change func(*x509.Certificate)) {
	obs := verdict.Observation{Outcome: outcome}
	if outcome == verdict.OutcomeCompleted {
		template := certs.Template(certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("127.1.0.1")})
		if change != nil {
			change(template)
		}
		obs.KeyProven, obs.Chain = true, []*x509.Certificate{d.world.CA.Issue(template).Leaf()}
	}
	_, d.stands = d.state.observe(d.node, obs, d.exp(), d.regime, d.now, d.now.Add(soon))
}

func (d *desk) good()   { d.see(verdict.OutcomeCompleted, nil) }
func (d *desk) silent() { d.see(verdict.OutcomeTimeout, nil) }

func (d *desk) slot() time.Time { return nextSlot(d.node.UID, interval, d.now) }

func TestNodeState(t *testing.T) {
	const (
		ok = "True Verified"
	)
	atOnce := func(d *desk) time.Time { return d.now }
	inSlot := (*desk).slot
	retry := func(d *desk) time.Time { return d.now.Add(soon) }
	for _, c := range []struct {
		name string
		do   func(*desk)
		want string // status and reason; "" where nothing is known
		next func(*desk) time.Time
	}{
		{"a node that was not seen yet is probed at once", func(*desk) {}, "", atOnce},
		{"a good one is probed again in its slot", (*desk).good, ok, inSlot},
		{"a bad one too", func(d *desk) { d.see(verdict.OutcomeNotTLS, nil) }, "False NotTLS", inSlot},
		{"one without evidence sooner", (*desk).silent, "Unknown ProbeTimeout", retry},
		{"the second miss keeps a verdict", func(d *desk) { d.good(); d.silent(); d.silent() }, ok, retry},
		{"the third replaces it, and there is no hurry any more",
			func(d *desk) { d.good(); d.silent(); d.silent(); d.silent() }, "Unknown ProbeTimeout", inSlot},
		{"a sight in between counts from the beginning",
			func(d *desk) {
				d.good()
				d.silent()
				d.silent()
				d.good()
				d.silent()
				d.silent()
			}, ok, retry},
		{"while it is young it may have no certificate yet", func(d *desk) {
			d.node.CreationTimestamp = metav1.NewTime(d.now.Add(-time.Minute))
			for range 5 {
				d.see(verdict.OutcomeInternalError, nil)
			}
		}, "Unknown NoServingCertificate", retry},
		{"later it may not", func(d *desk) { d.see(verdict.OutcomeInternalError, nil) }, "False NoServingCertificate", inSlot},
		{"nor when the grace ends between two probes", func(d *desk) {
			d.node.CreationTimestamp = metav1.NewTime(d.now.Add(-time.Minute))
			d.see(verdict.OutcomeInternalError, nil)
			d.pass(time.Minute)
			d.look()
		}, "False NoServingCertificate", func(d *desk) time.Time { return d.now.Add(soon - time.Minute) }},

		{"a slot that comes before the retry will do", func(d *desk) {
			d.now = d.slot().Add(-time.Second)
			d.silent()
		}, "Unknown ProbeTimeout", func(d *desk) time.Time { return d.now.Add(time.Second) }},
		{"what is not dialled is not dialled again sooner", func(d *desk) {
			d.node.Status.Addresses = nil
			d.adopt()
			d.see(verdict.OutcomeNone, nil)
		}, "Unknown NoAddress", inSlot},

		{"another UID is another node", func(d *desk) { d.good(); d.node.UID = "u2"; d.adopt() }, "", atOnce},
		{"another port is another endpoint", func(d *desk) {
			d.good()
			d.node.Status.DaemonEndpoints.KubeletEndpoint.Port++
			d.adopt()
		}, "", atOnce},
		{"another address that is not dialled is not", func(d *desk) {
			d.good()
			d.node.Status.Addresses = append(d.node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"})
			d.adopt()
		}, ok, inSlot},

		{"a new spec has what was seen judged again", func(d *desk) { d.good(); d.epoch(bundleOf(d.world.CA)) }, ok, inSlot},
		{"a new bundle too", func(d *desk) { d.good(); d.epoch(bundleOf(certs.NewCA("other", d.now))) }, "False UnknownAuthority", inSlot},
		{"misses under the old one do not count", func(d *desk) {
			d.good()
			d.silent()
			d.epoch(bundleOf(d.world.CA))
			d.silent()
		}, "Unknown ProbeTimeout", retry},
		{"what was no evidence under the old one can be under the new one", func(d *desk) {
			d.good()
			d.node.CreationTimestamp = metav1.NewTime(d.now.Add(-time.Minute))
			d.see(verdict.OutcomeInternalError, nil)
			d.regime.policy.NewNodeGrace = 0
			d.epoch(bundleOf(d.world.CA))
			d.look()
		}, "False NoServingCertificate", inSlot},
		{"without a bundle nothing that was seen is kept", func(d *desk) {
			d.good()
			d.epoch(verdict.Bundle{})
		}, "", atOnce},

		{"a kubelet that becomes Ready is looked at", func(d *desk) {
			d.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			d.adopt()
			d.silent()
			d.node.Status.Conditions = nil
			d.adopt()
		}, "Unknown ProbeTimeout", atOnce},
		{"one with a verdict can wait", func(d *desk) {
			d.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			d.adopt()
			d.good()
			d.node.Status.Conditions = nil
			d.adopt()
		}, ok, inSlot},

		{"a new certificate is looked at soon where the one before was no good", func(d *desk) {
			d.see(verdict.OutcomeNotTLS, nil)
			for _, d.request.State = range []verdict.RequestState{verdict.RequestPending, verdict.RequestApproved, verdict.RequestIssued, verdict.RequestIssued} {
				d.adopt()
			}
		}, "False NotTLS", func(d *desk) time.Time { return d.now.Add(pickUp) }},
		{"once", func(d *desk) {
			d.see(verdict.OutcomeNotTLS, nil)
			d.request.State = verdict.RequestIssued
			d.adopt()
			d.pass(pickUp)
			d.see(verdict.OutcomeNotTLS, nil)
			d.adopt()
		}, "False NotTLS", inSlot},
		{"not where the one before is good", func(d *desk) { d.good(); d.request.State = verdict.RequestIssued; d.adopt() }, ok, inSlot},
		{"nor where there is none", func(d *desk) {
			d.see(verdict.OutcomeNotTLS, nil)
			d.request.State = verdict.RequestDenied
			d.adopt()
		}, "False NotTLS", inSlot},
		{"nor later than otherwise", func(d *desk) { d.request.State = verdict.RequestIssued; d.adopt() }, "", atOnce},

		{"what expires before the next probe is looked at then", func(d *desk) {
			d.see(verdict.OutcomeCompleted, func(c *x509.Certificate) { c.NotAfter = d.now.Add(time.Second) })
		}, ok, func(d *desk) time.Time { return d.now.Add(time.Second + time.Nanosecond) }},
		{"and has expired", func(d *desk) {
			d.see(verdict.OutcomeCompleted, func(c *x509.Certificate) { c.NotAfter = d.now.Add(time.Second) })
			d.pass(time.Second + time.Nanosecond)
			d.look()
		}, "False CertificateExpired", inSlot},
		{"a miss since does not matter to that", func(d *desk) {
			d.see(verdict.OutcomeCompleted, func(c *x509.Certificate) { c.NotAfter = d.now.Add(time.Second) })
			d.silent()
			d.pass(time.Second + time.Nanosecond)
			d.look()
		}, "False CertificateExpired", func(d *desk) time.Time { return d.now.Add(soon - time.Second - time.Nanosecond) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			c.do(d)
			got := ""
			if v := d.state.settled; v.Reason != "" {
				got = v.Status.String() + " " + string(v.Reason)
			}
			if v := d.stands; v.Reason != "" && (v.Status != d.state.settled.Status || v.Reason != d.state.settled.Reason) {
				t.Errorf("%s %s stands, %s is remembered", v.Status, v.Reason, got)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got, want := d.state.next(d.stands, d.now), c.next(d).Sub(d.now); got != want {
				t.Errorf("next look in %s, want %s", got, want)
			}
		})
	}
}

// What a kubelet serves stays the same for months: it is not kept anew by each probe.
func TestTheSameCertificatesStayWhereTheyAre(t *testing.T) {
	d := newDesk(t)
	d.good()
	first := d.state.latest
	same := first.full()
	again := keep(same, first)
	if again == first || unsafe.StringData(again.chain) != unsafe.StringData(first.chain) {
		t.Error("they were kept anew")
	}
	d.good() // another one, for the same names
	if d.state.latest.chain == first.chain {
		t.Error("others were taken for the same")
	}
	if got := d.state.latest.full(); got.Chain[0].Equal(same.Chain[0]) || got.Outcome != same.Outcome || !got.KeyProven {
		t.Errorf("%+v came back", got)
	}
}

// A slot is ahead by at most an interval, comes round once an interval, and the
// slots of many nodes are spread evenly.
func TestNextSlot(t *testing.T) {
	const nodes, tenths = 10000, 10
	now := time.Date(2026, 3, 1, 12, 3, 4, 5, time.UTC)
	var in [tenths]int
	for i := range nodes {
		uid := types.UID(fmt.Sprintf("uid-%d", i))
		slot := nextSlot(uid, interval, now)
		ahead := slot.Sub(now)
		if ahead <= 0 || ahead > interval {
			t.Fatalf("%s is %s ahead", uid, ahead)
		}
		if again := nextSlot(uid, interval, slot); !again.Equal(slot.Add(interval)) {
			t.Fatalf("%s comes again after %s", uid, again.Sub(slot))
		}
		in[(ahead-1)*tenths/interval]++
	}
	for tenth, n := range in {
		if n < nodes/tenths*8/10 || n > nodes/tenths*12/10 {
			t.Errorf("%d of %d nodes in tenth %d of the interval", n, nodes, tenth)
		}
	}
}

// With a wall clock alone, one set back would put off every probe for as long.
func TestASlotIsMonotonic(t *testing.T) {
	if slot := nextSlot("u", interval, time.Now()); !strings.Contains(slot.String(), " m=+") {
		t.Errorf("%s has no monotonic reading", slot)
	}
}

// The next look at what expires is by the wall clock, the next probe is not, and
// both stay right when the wall clock is set in between.
func TestTheNextLookAfterAStepOfTheClock(t *testing.T) {
	now := time.Now()
	s := &nodeState{memory: memory{nextProbe: compact.InstantOf(now.Add(interval))}}
	for name, c := range map[string]struct {
		step, expires, want time.Duration
	}{
		"none, expires sooner":        {0, time.Minute, time.Minute},
		"none, expires later":         {0, time.Hour, interval},
		"set back, expires later":     {-2 * time.Hour, 2 * time.Hour, interval},
		"set back, expires sooner":    {-2 * time.Hour, time.Minute, time.Minute},
		"set forward, expires later":  {2 * time.Hour, time.Hour, interval},
		"set forward, expires sooner": {2 * time.Hour, time.Minute, time.Minute},
	} {
		stepped := step(now, c.step)
		if stepped.Sub(now) != 0 || stepped.Round(0).Sub(now.Round(0)) != c.step {
			t.Fatal("the clock was not set, or by its monotonic reading too")
		}
		v := verdict.Verdict{NextLook: stepped.Round(0).Add(c.expires)} // as from a certificate
		if got := s.next(v, stepped).Round(time.Second); got != c.want {
			t.Errorf("%s: next look in %s, want %s", name, got, c.want)
		}
	}
}

// step gives a time as it is read right after the wall clock was set: the package
// time keeps its seconds above thirty bits of nanoseconds, and the monotonic
// reading elsewhere.
func step(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}

// A Node counts as not probed from the event on which its endpoint moves, not
// only from the probe that finds out.
func TestAMovedNodeIsNotProbedYet(t *testing.T) {
	d := newDesk(t)
	m := metrics.New(clocktesting.NewFakePassiveClock(d.now), 10)
	m.Begin(1, interval)
	changes := 0
	r := &NodeReconciler{Ledger: m, Changed: func() { changes++ }}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	h := r.handler()
	h.Create(context.Background(), event.CreateEvent{Object: d.node}, queue)
	d.good()
	m.Put("n1", kubelet.IdentityOf(d.node), 1, d.stands, d.now)
	if got := m.Summarize(d.now, 100).Readiness(); got != verdict.Ready {
		t.Fatalf("%s before the move", got)
	}
	moved := d.node.DeepCopy()
	moved.Status.Addresses[1].Address = "127.1.0.2"
	changes = 0
	h.Update(context.Background(), event.UpdateEvent{ObjectOld: d.node, ObjectNew: moved}, queue)
	if got := m.Summarize(d.now, 100); got.Readiness() != verdict.ReadinessUnknown || got.NotProbedYet != 1 || changes != 1 {
		t.Errorf("%s with %d not probed yet and %d changes", got.Readiness(), got.NotProbedYet, changes)
	}
	// The probe of the old place ends only now.
	m.Put("n1", kubelet.IdentityOf(d.node), 1, d.stands, d.now)
	if got := m.Summarize(d.now, 100).Readiness(); got != verdict.ReadinessUnknown {
		t.Errorf("%s by a verdict about another endpoint", got)
	}
	if queue.Len() != 1 {
		t.Errorf("%d nodes are queued", queue.Len())
	}
}

type proberFunc func() verdict.Observation

func (f proberFunc) Probe(context.Context, verdict.Endpoint, time.Duration) (verdict.Observation, error) {
	return f(), nil
}

type uncounted struct{ Counters }

func (uncounted) Probed(verdict.Observation, verdict.Verdict) {}

// A Node that was not looked at yet is probed before those that are due again.
func TestNewNodesAreProbedFirst(t *testing.T) {
	d := newDesk(t)
	var by []string
	prober := func(name string) proberFunc {
		return func() verdict.Observation {
			by = append(by, name)
			return verdict.Observation{Outcome: verdict.OutcomeTimeout}
		}
	}
	r := &NodeReconciler{Prober: prober("due"), First: prober("new"), Counters: uncounted{}, Clock: clocktesting.NewFakeClock(d.now)}
	for range 2 {
		d.state.nextProbe = compact.InstantOf(d.now)
		if _, err := r.judge(t.Context(), &d.state, d.node, d.exp(), d.regime); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(by, " ") != "new due" {
		t.Error(by)
	}
}
