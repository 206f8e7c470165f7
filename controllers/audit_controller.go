package controllers

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// +kubebuilder:rbac:groups=kubeletcert.dev,resources=kubeletcertaudits,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubeletcert.dev,resources=kubeletcertaudits,resourceNames=cluster,verbs=update
// +kubebuilder:rbac:groups=kubeletcert.dev,resources=kubeletcertaudits/status,resourceNames=cluster,verbs=update
// +kubebuilder:rbac:groups=kubeletcert.dev,resources=kubeletcertaudits/finalizers,resourceNames=cluster,verbs=update
// +kubebuilder:rbac:groups="",namespace=kubelet-cert-auditor-system,resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=kubelet-cert-auditor-system,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kubelet-cert-auditor-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kubelet-cert-auditor-system,resources=leases,resourceNames=kubelet-cert-auditor,verbs=get;update
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

const (
	// tick is how often the trust bundle is read and the counts are looked at.
	// Reading anew, rather than watching, follows every way in which a mounted
	// file can be replaced.
	tick = 2 * time.Second
	// settle gathers the verdicts of a moment into one look at the counts.
	settle = 100 * time.Millisecond
	// maxFailingNodes in the status.
	maxFailingNodes = 100
	// lookAtAPIServers is how often kube-apiserver's Pods are read: its flags
	// change with its Pods, by hand.
	lookAtAPIServers = 5 * time.Minute
)

// AuditReconciler turns the spec and the trust bundle into a regime, and the
// verdicts reached under it into the audit's status.
type AuditReconciler struct {
	Client client.Client
	// Live reads past the cache: cleaning up must see every condition.
	Live     client.Reader
	Recorder Recorder
	Ledger   Ledger
	Counters Counters
	Bundles  Bundles
	Servers  APIServers
	Regimes  *Regimes
	Nodes    *NodeReconciler
	Clock    clock.Clock

	queue queueHandle
	run   run
	idle  bool // said that there is no audit
}

// run is what this process knows of the present audit.
type run struct {
	started     bool // a regime was set since the process leads
	takeOver    bool // the first regime is still the present one
	bundleError string
	sweepStart  time.Time
	lastSweep   time.Time // zero until the first one of this process
	statusAt    time.Time
	servers     verdict.APIServers
	serversAt   time.Time // of the last look at them, even if it failed
}

// SetupWithManager registers the controller.
func (r *AuditReconciler) SetupWithManager(mgr ctrl.Manager) error {
	toAudit := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: v1alpha1.AuditName}}}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("audit").
		For(&v1alpha1.KubeletCertAudit{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, deletionPredicate))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(toAudit)).
		WatchesRawSource(r.queue.source(v1alpha1.AuditName)). // also where there is none: the log says so
		Complete(r)
}

var deletionPredicate = predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetDeletionTimestamp() != nil })

// NodesChanged asks for a look at the counts soon.
func (r *AuditReconciler) NodesChanged() { r.queue.add(v1alpha1.AuditName, settle) }

// Reconcile brings the regime and the status up to date.
func (r *AuditReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	audit := &v1alpha1.KubeletCertAudit{}
	if err := r.Client.Get(ctx, req.NamespacedName, audit); err != nil {
		if apierrors.IsNotFound(err) {
			r.stop()
			if !r.idle {
				r.idle = true
				log.FromContext(ctx).Info("there is no KubeletCertAudit named cluster: nothing is probed")
			}
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.idle = false
	if !audit.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, audit)
	}
	if controllerutil.AddFinalizer(audit, v1alpha1.AuditFinalizer) {
		if err := r.Client.Update(ctx, audit); err != nil {
			if apierrors.IsConflict(err) {
				return ctrl.Result{RequeueAfter: settle}, nil
			}
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	present, bundleErr, err := r.adopt(ctx, audit)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.report(ctx, audit, present, bundleErr)
}

// adopt makes the spec and the bundle of this moment the regime.
func (r *AuditReconciler) adopt(ctx context.Context, audit *v1alpha1.KubeletCertAudit) (*regime, error, error) {
	bundle, bundleErr := r.Bundles.Load(ctx, audit.Spec.TrustBundle)
	next, err := newRegime(audit, bundle)
	if err != nil {
		return nil, nil, err
	}
	present := r.Regimes.get()
	changed := !next.same(present)
	bundleChanged := present == nil || present.policy.Bundle.SHA256 != bundle.SHA256
	if text := errorText(bundleErr); bundleChanged || text != r.run.bundleError {
		r.run.bundleError = text
		r.Counters.BundleChanged(bundle, bundleErr)
		logBundle(ctx, bundle, bundleErr)
	}
	if !changed {
		return present, bundleErr, nil
	}
	r.run.sweepStart = r.Clock.Now() // before the first probe of the regime
	r.run.takeOver = !r.run.started
	r.run.started = true
	r.run.serversAt = time.Time{}
	r.Regimes.set(next)
	r.Ledger.Begin(next.epoch, next.interval)
	r.Nodes.EnqueueAll()
	return next, bundleErr, nil
}

// report writes the status if it changed, but counts alone at most once a tick.
func (r *AuditReconciler) report(ctx context.Context, audit *v1alpha1.KubeletCertAudit, present *regime, bundleErr error) (ctrl.Result, error) {
	now := r.Clock.Now()
	servers := verdict.JudgeAPIServers(r.servers(ctx, now), addressTypes(audit))
	r.Ledger.Limit(servers.AtBest(verdict.WhatBoth))
	summary := r.Ledger.Summarize(now, maxFailingNodes)
	before := audit.DeepCopy()
	if summary.NotProbedYet == 0 && summary.Total() > 0 && !summary.OldestLook.Before(r.run.sweepStart) {
		r.run.sweepStart, r.run.lastSweep = now, now.Truncate(time.Second)
		r.run.takeOver = false
	}
	if !r.run.lastSweep.IsZero() {
		audit.Status.LastSweepTime = &metav1.Time{Time: r.run.lastSweep}
	}
	writeStatus(audit, answer{
		summary: summary, regime: present, bundleErr: bundleErr, servers: servers, takeOver: r.run.takeOver, now: now,
	})
	if left := tick - now.Sub(r.run.statusAt); left > 0 && sameAnswer(before, audit) {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	if reflect.DeepEqual(before.Status, audit.Status) {
		return ctrl.Result{RequeueAfter: tick}, nil
	}
	r.run.statusAt = now
	if err := r.Client.Status().Update(ctx, audit); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: settle}, nil // the cache is behind
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{RequeueAfter: tick}, nil
}

// servers is what was last seen of kube-apiserver's Pods. A look that fails
// changes nothing: it is one more after a while.
func (r *AuditReconciler) servers(ctx context.Context, now time.Time) verdict.APIServers {
	if r.run.serversAt.IsZero() || now.Sub(r.run.serversAt) >= lookAtAPIServers {
		r.run.serversAt = now
		seen, err := r.Servers.Look(ctx)
		if err != nil {
			log.FromContext(ctx).Info("kube-apiserver's Pods could not be read", "error", err.Error())
			return r.run.servers
		}
		r.run.servers = seen
	}
	return r.run.servers
}

// addressTypes that the audit judges by, in words.
func addressTypes(audit *v1alpha1.KubeletCertAudit) []string {
	types := make([]string, 0, len(audit.Spec.PreferredAddressTypes))
	for _, t := range audit.Spec.PreferredAddressTypes {
		types = append(types, string(t))
	}
	return types
}

// stop ends judging; when it returns, no verdict is being written.
func (r *AuditReconciler) stop() {
	r.Regimes.set(nil)
	r.Ledger.End()
	r.run = run{started: r.run.started}
}

// finalize removes our condition from every Node, selected or not, and lets the
// object go.
func (r *AuditReconciler) finalize(ctx context.Context, audit *v1alpha1.KubeletCertAudit) error {
	r.stop()
	if !controllerutil.ContainsFinalizer(audit, v1alpha1.AuditFinalizer) {
		return nil
	}
	if err := ClearNodes(ctx, r.Live, r.Recorder, nil); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(audit, v1alpha1.AuditFinalizer)
	return client.IgnoreNotFound(r.Client.Update(ctx, audit))
}

// ClearNodes removes our condition from every Node that has it. It goes on
// after an error and returns the first one; done, if not nil, is told of each
// Node cleared.
func ClearNodes(ctx context.Context, live client.Reader, recorder Recorder, done func(name string)) error {
	var first error
	next := ""
	for {
		var nodes corev1.NodeList
		if err := live.List(ctx, &nodes, client.Limit(500), client.Continue(next)); err != nil {
			return err
		}
		for i := range nodes.Items {
			node := &nodes.Items[i]
			if !hasCondition(node) {
				continue
			}
			if err := recorder.Clear(ctx, node); err != nil {
				if first == nil {
					first = err
				}
				continue
			}
			if done != nil {
				done(node.Name)
			}
		}
		if next = nodes.Continue; next == "" {
			return first
		}
	}
}
