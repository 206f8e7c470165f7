package controllers

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
)

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=default,resources=services,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups=discovery.k8s.io,namespace=default,resources=endpointslices,resourceNames=kubernetes,verbs=get

// CSRReconciler follows the requests for serving certificates: what they have
// come to is advice for their Nodes, and each of them is reviewed once.
type CSRReconciler struct {
	Client   client.Client
	Requests *kubelet.Requests
	Reviewer RequestReviewer
	Nodes    *NodeReconciler
}

// SetupWithManager registers the controller.
func (r *CSRReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("csr").
		Watches(&certificatesv1.CertificateSigningRequest{}, r.handler()).
		Complete(r)
}

// handler keeps the requests, and queues the new ones for their review.
func (r *CSRReconciler) handler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	set := func(object client.Object) {
		if csr, ok := object.(*certificatesv1.CertificateSigningRequest); ok {
			r.changed(r.Requests.Set(csr))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			set(e.Object)
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			set(e.ObjectNew)
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() { // of the same name
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)})
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			r.changed(r.Requests.Delete(e.Object.GetName()))
		},
	}
}

func (r *CSRReconciler) changed(node string) {
	if node != "" {
		r.Nodes.Enqueue(node)
	}
}

// Reconcile reviews a request that is new to this process.
func (r *CSRReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := r.Client.Get(ctx, req.NamespacedName, csr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{}, r.Reviewer.ReviewRequest(ctx, csr)
}
