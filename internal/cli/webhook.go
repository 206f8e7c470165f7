package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/admission"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/record"
)

// What is in config/webhook.
const (
	webhookConfiguration = "kubelet-cert-auditor"
	webhookService       = "kubelet-cert-auditor-webhook"
	webhookSecret        = "kubelet-cert-auditor-webhook"
)

// +kubebuilder:rbac:groups="",namespace=kubelet-cert-auditor-system,resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups="",namespace=kubelet-cert-auditor-system,resources=secrets,resourceNames=kubelet-cert-auditor-webhook,verbs=get;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,verbs=list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=kubelet-cert-auditor,verbs=update

// WebhookOptions configure the admission webhook.
type WebhookOptions struct {
	// BindAddress serves it over TLS; "0" turns it off.
	BindAddress string
	// CertDir holds tls.crt and tls.key; they may be replaced at any time.
	CertDir string
	// SelfSigned makes and renews the certificate in the Secret that is mounted
	// there, and writes its CA into the ValidatingWebhookConfiguration.
	SelfSigned bool
	// Life of a certificate, the time before its end at which it is renewed, and
	// how often that is looked at. Zero means a year, 90 and half a day.
	Life, RenewBefore, Check time.Duration
}

func (o *WebhookOptions) validate() []error {
	problems := validateBindAddress("--webhook-bind-address", o.BindAddress)
	if o.BindAddress != "0" {
		problems = append(problems, validateRequired("--webhook-cert-dir", o.CertDir)...)
	}
	return problems
}

// newReviewer reviews by the manager's cache of Nodes, in every replica.
func newReviewer(mgr ctrl.Manager, allowLocal bool) (*admission.Reviewer, error) {
	index := &admission.Index{}
	// Without a context of its own it only registers: nothing is waited for
	// before the manager runs.
	informer, err := mgr.GetCache().GetInformer(context.Background(), &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if node := kubelet.Unpacked(object); node != nil {
				index.Set(node)
			}
		},
		UpdateFunc: func(before, after any) {
			was, is := kubelet.Unpacked(before), kubelet.Unpacked(after)
			if was != nil && is != nil && !admission.SameToIndex(was, is) { // most updates are heartbeats
				index.Set(is)
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if node := kubelet.Unpacked(object); node != nil {
				index.Delete(node.Name)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	addresses := &admission.APIServerAddresses{Live: mgr.GetAPIReader(), Clock: clock.RealClock{}, AllowLocal: allowLocal}
	return &admission.Reviewer{Index: index, Synced: registration.HasSynced, Cached: mgr.GetClient(), Live: mgr.GetAPIReader(), Reserved: addresses.Reserved}, nil
}

// admissionSpec reads the present one from the cache.
func admissionSpec(c client.Reader) func(context.Context) (v1alpha1.AdmissionSpec, error) {
	return func(ctx context.Context) (v1alpha1.AdmissionSpec, error) {
		audit := &v1alpha1.KubeletCertAudit{}
		err := c.Get(ctx, types.NamespacedName{Name: v1alpha1.AuditName}, audit)
		if apierrors.IsNotFound(err) || err == nil && !audit.DeletionTimestamp.IsZero() {
			return v1alpha1.AdmissionSpec{Mode: v1alpha1.AdmissionOff}, nil
		}
		return audit.Spec.Admission, err
	}
}

// webhookServer serves the webhook once it can: with a certificate, and with the
// Nodes known.
type webhookServer struct {
	server    webhook.Server
	options   WebhookOptions
	namespace string
	extraName []string
	manager   ctrl.Manager
	reviewer  *admission.Reviewer
	log       logr.Logger
}

func setUpWebhook(mgr ctrl.Manager, o ManagerOptions, reviewer *admission.Reviewer, recorder *record.Recorder, m *metrics.Metrics) error {
	host, text, err := net.SplitHostPort(o.Webhook.BindAddress)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	s := &webhookServer{
		server:  webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: o.Webhook.CertDir}),
		options: o.Webhook, namespace: o.Namespace, manager: mgr, reviewer: reviewer, log: mgr.GetLogger().WithName("webhook"),
	}
	if o.AllowLocalAddresses {
		s.extraName = []string{"localhost"} // as kube-apiserver calls it where there is no Service network
	}
	handler := &webhook.Admission{Handler: &admission.Handler{
		Reviewer: reviewer, Spec: admissionSpec(mgr.GetClient()), Counters: m, Recorder: recorder, Clock: o.Clock,
	}}
	// A panic that is answered would be a denial; one that ends the connection
	// lets kube-apiserver go on without us.
	s.server.Register(admission.Path, handler.WithRecoverPanic(false))
	return errors.Join(mgr.Add(s), mgr.AddReadyzCheck("webhook", s.server.StartedChecker()))
}

// Start implements manager.Runnable.
func (s *webhookServer) Start(ctx context.Context) error {
	certificate := s.awaitFiles
	if s.options.SelfSigned {
		certificate = s.rotate
	}
	if err := certificate(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := s.reviewer.Wait(ctx); err != nil {
		return nil //nolint:nilerr // the manager is ending
	}
	s.log.Info("serving", "address", s.options.BindAddress)
	return s.server.Start(ctx)
}

// patience is how often something that is missing is looked for again.
const patience = time.Second

func (s *webhookServer) awaitFiles(ctx context.Context) error {
	path := filepath.Join(s.options.CertDir, corev1.TLSCertKey)
	return s.await(ctx, "the webhook waits for its certificate", func() error {
		_, err := os.Stat(path)
		return err
	})
}

// await says once why it waits, until it need not or the manager ends.
func (s *webhookServer) await(ctx context.Context, why string, try func() error) error {
	said := false
	err := wait.PollUntilContextCancel(ctx, patience, true, func(context.Context) (bool, error) {
		err := try()
		if err != nil && !said && ctx.Err() == nil {
			said = true
			s.log.Info(why, "error", err.Error())
		}
		return err == nil, nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the manager is ending
	}
	return err
}

// rotators counts those of this process: each of their controllers needs a name.
var rotators atomic.Int32

// rotate returns when there is a certificate, which is renewed from then on.
func (s *webhookServer) rotate(ctx context.Context) error {
	key := types.NamespacedName{Namespace: s.namespace, Name: webhookSecret}
	if err := s.await(ctx, "the webhook waits for its Secret", func() error {
		return s.manager.GetAPIReader().Get(ctx, key, &corev1.Secret{})
	}); err != nil || ctx.Err() != nil {
		return err
	}
	name := "webhook-certificate"
	if n := rotators.Add(1); n > 1 {
		name += "-" + strconv.Itoa(int(n))
	}
	ready := make(chan struct{})
	err := rotator.AddRotator(s.manager, &rotator.CertRotator{
		SecretKey: key, CertDir: s.options.CertDir,
		CAName: "kubelet-cert-auditor-webhook-ca", CAOrganization: "kubelet-cert-auditor",
		DNSName: fmt.Sprintf("%s.%s.svc", webhookService, s.namespace), ExtraDNSNames: s.extraName,
		Webhooks:           []rotator.WebhookInfo{{Name: webhookConfiguration, Type: rotator.Validating}},
		FieldOwner:         record.Controller,
		ControllerName:     name,
		ServerCertDuration: s.options.Life, LookaheadInterval: s.options.RenewBefore, RotationCheckFrequency: s.options.Check,
		IsReady: ready,
	})
	if err != nil {
		return err
	}
	select {
	case <-ready:
	case <-ctx.Done():
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica
// serves.
func (*webhookServer) NeedLeaderElection() bool { return false }
