package controllers

import (
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,namespace=default,resources=events,verbs=create;patch

// NodeReconciler probes kubelets and records their verdicts.
type NodeReconciler struct {
	Client client.Client
	Prober Prober
	// First probes Nodes that have not been looked at; nil means Prober does.
	First    Prober
	Recorder Recorder
	Ledger   Ledger
	Counters Counters
	Regimes  *Regimes
	// Requests that nodes have made, for advice.
	Requests *kubelet.Requests
	Clock    clock.Clock
	// Concurrency is the number of probes under way, those included whose peers
	// do not answer.
	Concurrency int
	// RetryAfter is the pause before a probe that showed nothing is repeated.
	RetryAfter time.Duration
	// Changed is called after a verdict changed.
	Changed func()

	queue    queueHandle
	schedule *schedule
	mu       sync.Mutex
	states   map[string]*nodeState // by the Node's name
}

// SetupWithManager registers the controller.
func (r *NodeReconciler) SetupWithManager(mgr ctrl.Manager) error {
	// What is due by the clock comes after what has just happened.
	r.schedule = newSchedule(r.Clock, r.Concurrency, func(name string) { r.queue.addWith(name, priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}) })
	if err := mgr.Add(r.schedule); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("node").
		Watches(&corev1.Node{}, r.handler()).
		WithEventFilter(predicate.Funcs{UpdateFunc: relevant}).
		WatchesRawSource(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			defer close(r.schedule.open)
			return r.queue.source().Start(ctx, q)
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Concurrency}).
		Complete(r)
}

// handler counts a Node from the moment it exists, before it is its turn, and
// has the audit say so. Those that exist at the start have their turn one after
// the other, which leaves room for those that come then.
func (r *NodeReconciler) handler() handler.EventHandler {
	track := func(object client.Object) {
		if node := kubelet.Unpacked(object); node != nil && r.Ledger.Track(node.Name, kubelet.IdentityOf(node), node.CreationTimestamp.Time) {
			r.Changed()
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			track(e.Object)
			if e.IsInInitialList {
				r.due(e.Object.GetName())
				return
			}
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			track(e.ObjectNew)
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)})
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.Ledger.Forget(e.Object.GetName())
			r.Changed()
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
		},
	}
}

// relevant lets through what may change a verdict or undoes what was recorded,
// and holds back the kubelets' heartbeats.
func relevant(e event.UpdateEvent) bool {
	before, after := kubelet.Unpacked(e.ObjectOld), kubelet.Unpacked(e.ObjectNew)
	if before == nil || after == nil {
		return false
	}
	return before.UID != after.UID || fingerprint(before) != fingerprint(after) ||
		!slices.Equal(before.Status.Addresses, after.Status.Addresses) || !maps.Equal(before.Labels, after.Labels)
}

type nodeFingerprint struct {
	port                    int32
	ready                   corev1.ConditionStatus
	status, reason, message string
}

func fingerprint(node *corev1.Node) nodeFingerprint {
	f := nodeFingerprint{port: node.Status.DaemonEndpoints.KubeletEndpoint.Port}
	if c := kubelet.Condition(node, corev1.NodeReady); c != nil {
		f.ready = c.Status
	}
	if c := kubelet.Condition(node, v1alpha1.ConditionServingCertificateValid); c != nil {
		f.status, f.reason, f.message = string(c.Status), c.Reason, c.Message
	}
	return f
}

func (r *NodeReconciler) state(name string) *nodeState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lockedState(name)
}

// due gives a Node its turn now. What is forgotten meanwhile has none, and would
// never be taken.
func (r *NodeReconciler) due(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule.set(&r.lockedState(name).slot, 0)
}

func (r *NodeReconciler) lockedState(name string) *nodeState {
	s, ok := r.states[name]
	if !ok {
		if r.states == nil {
			r.states = map[string]*nodeState{}
		}
		s = &nodeState{slot: slot{name: name}}
		r.states[name] = s
	}
	return s
}

// take a Node that may have been called for.
func (r *NodeReconciler) take(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.states[name]; ok {
		r.schedule.take(&s.slot)
	}
}

// forget all about a Node.
func (r *NodeReconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.states[name]; ok {
		delete(r.states, name)
		r.schedule.drop(&s.slot)
	}
}

// Reconcile probes a node if that is due, and records what the judge says.
func (r *NodeReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.take(req.Name)
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, req.NamespacedName, node); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	regime := r.Regimes.get()
	if regime == nil {
		return ctrl.Result{}, nil
	}
	if !regime.selects(node) {
		return r.exclude(ctx, node, regime)
	}
	state := r.state(node.Name)
	exp := kubelet.ExpectationOf(node, regime.endpoints)
	exp.Request = r.Requests.Of(node.Name)
	state.adopt(node, exp, regime, r.Clock.Now())
	v, err := r.judge(ctx, state, node, exp, regime)
	if err != nil {
		return ctrl.Result{}, nil //nolint:nilerr // the process is ending: an aborted probe says nothing
	}
	present, err := r.Regimes.during(regime, func() error {
		err := r.record(ctx, node, state, v)
		// Here, or it could put off the turn that another regime gives; and with an
		// error too, since a retry may come much later.
		r.schedule.set(&state.slot, state.next(v, r.Clock.Now()))
		return err
	})
	if !present {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	return ctrl.Result{}, err
}

// judge probes if it is time, else looks at what was seen again, and gives the
// verdict that stands.
func (r *NodeReconciler) judge(ctx context.Context, state *nodeState, node *corev1.Node, exp verdict.Expectation, regime *regime) (verdict.Verdict, error) {
	now := r.Clock.Now()
	if now.Before(state.nextProbe.Time()) {
		return state.look(exp, regime, now), nil
	}
	var obs verdict.Observation
	if exp.Endpoint.Host != "" && !regime.policy.Bundle.Empty() {
		var err error
		prober := r.Prober
		if r.First != nil && state.looked == 0 {
			prober = r.First
		}
		if obs, err = prober.Probe(ctx, exp.Endpoint, regime.timeout); err != nil {
			return verdict.Verdict{}, err
		}
	}
	now = r.Clock.Now()
	fresh, stands := state.observe(node, obs, exp, regime, now, now.Add(r.RetryAfter))
	if obs.Outcome != verdict.OutcomeNone {
		r.Counters.Probed(obs, fresh)
	}
	return stands, nil
}

func (r *NodeReconciler) record(ctx context.Context, node *corev1.Node, state *nodeState, v verdict.Verdict) error {
	if r.Ledger.Put(node.Name, kubelet.IdentityOf(node), state.epoch, v, state.looked.Time()) {
		r.Changed()
	}
	version := maphash.String(seed, node.ResourceVersion)
	if state.written == version {
		return nil // its update is on the way, and brings us back here
	}
	changed, err := r.Recorder.Record(ctx, node, v)
	if changed {
		state.written = version
		log.FromContext(ctx).Info("verdict", "node", node.Name, "status", v.Status.String(), "reason", v.Reason, "message", v.Message)
	}
	return err
}

// exclude drops what is known of a node that the spec leaves out; a condition
// that nobody keeps up to date would be worse than none.
func (r *NodeReconciler) exclude(ctx context.Context, node *corev1.Node, regime *regime) (ctrl.Result, error) {
	r.forget(node.Name)
	present, err := r.Regimes.during(regime, func() error {
		r.Ledger.Exclude(node.Name, kubelet.IdentityOf(node), regime.epoch)
		r.Changed()
		return r.Recorder.Clear(ctx, node)
	})
	if !present {
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil
	}
	return ctrl.Result{}, err
}

// EnqueueAll makes every Node be judged under the present regime.
func (r *NodeReconciler) EnqueueAll() {
	for _, name := range r.Ledger.Names() {
		r.due(name)
	}
}

// Enqueue makes one Node be judged again by what was seen.
func (r *NodeReconciler) Enqueue(name string) { r.queue.add(name, 0) }

// queueHandle lets others put requests into a controller's queue.
type queueHandle struct {
	mu    sync.Mutex
	queue priorityqueue.PriorityQueue[reconcile.Request]
}

// source starts with the names given.
func (h *queueHandle) source(names ...string) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
		if !ok {
			return fmt.Errorf("a queue without priorities: %T", q)
		}
		h.mu.Lock()
		h.queue = queue
		h.mu.Unlock()
		for _, name := range names {
			h.add(name, 0)
		}
		return nil
	})
}

// add is a no-op before the controller runs: it starts with everything.
func (h *queueHandle) add(name string, after time.Duration) {
	h.addWith(name, priorityqueue.AddOpts{After: after})
}

func (h *queueHandle) addWith(name string, opts priorityqueue.AddOpts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queue != nil {
		h.queue.AddWithOpts(opts, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}
