package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/controllers"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/admission"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/apiserver"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/record"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

const (
	serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
	leaseName         = "kubelet-cert-auditor"
)

// ManagerOptions configure the manager. NewManagerOptions has the defaults.
type ManagerOptions struct {
	// Namespace is the manager's own: leases and ConfigMaps live there.
	Namespace   string
	LeaderElect bool
	// MetricsBindAddress serves metrics over TLS, for authenticated and
	// authorised clients only; "0" turns them off.
	MetricsBindAddress     string
	HealthProbeBindAddress string
	Concurrency            int
	AllowLocalAddresses    bool
	// ClusterCAFile is the default trust bundle.
	ClusterCAFile    string
	QPS              float32
	Burst            int
	MaxFailingSeries int
	// RetryAfter is the pause before a probe that showed nothing is repeated.
	RetryAfter time.Duration
	// GracefulShutdown bounds the time that the end takes.
	GracefulShutdown time.Duration
	Webhook          WebhookOptions
	// Registerer takes our metrics; several managers of one process need one each.
	Registerer prometheus.Registerer
	// Clock by which certificates are judged and Nodes have their turn. Leases
	// have their own.
	Clock clock.Clock
}

// NewManagerOptions returns the defaults.
func NewManagerOptions() ManagerOptions {
	return ManagerOptions{
		Namespace: ownNamespace(), LeaderElect: true,
		MetricsBindAddress: ":8443", HealthProbeBindAddress: ":8081",
		Concurrency: 64, ClusterCAFile: serviceAccountDir + "/ca.crt",
		QPS: 50, Burst: 100, MaxFailingSeries: 1000,
		RetryAfter: 10 * time.Second, GracefulShutdown: 15 * time.Second,
		Webhook:    WebhookOptions{BindAddress: ":9443", CertDir: "/etc/kubelet-cert-auditor/webhook", SelfSigned: true},
		Registerer: ctrlmetrics.Registry, Clock: clock.RealClock{},
	}
}

// ownNamespace is the pod's, or the one of the manifests.
func ownNamespace() string {
	if text, err := os.ReadFile(serviceAccountDir + "/namespace"); err == nil {
		return strings.TrimSpace(string(text))
	}
	return "kubelet-cert-auditor-system"
}

func (o *ManagerOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "probe only while holding the lease, so that several replicas can run")
	flags.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "where to serve metrics over TLS, to clients that may get /metrics; 0 turns them off")
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "where to serve /healthz and /readyz")
	flags.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "the number of probes at a time; another may begin beside each whose peer is slow to answer, up to sixteen times as many")
	flags.BoolVar(&o.AllowLocalAddresses, "allow-local-addresses", o.AllowLocalAddresses, "also dial loopback, link-local, multicast and unspecified addresses, for tests")
	flags.StringVar(&o.ClusterCAFile, "cluster-ca-file", o.ClusterCAFile, "the trust bundle where the KubeletCertAudit names none")
	flags.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "requests per second to the API server")
	flags.IntVar(&o.Burst, "kube-api-burst", o.Burst, "requests to the API server in a burst")
	flags.StringVar(&o.Webhook.BindAddress, "webhook-bind-address", o.Webhook.BindAddress, "where to serve the admission webhook over TLS; 0 turns it off")
	flags.StringVar(&o.Webhook.CertDir, "webhook-cert-dir", o.Webhook.CertDir, "the directory of the webhook's tls.crt and tls.key")
	flags.BoolVar(&o.Webhook.SelfSigned, "webhook-self-signed", o.Webhook.SelfSigned, "make the webhook's certificate and renew it, in the Secret that is mounted at --webhook-cert-dir; false where others do, such as cert-manager")
	flags.IntVar(&o.MaxFailingSeries, "max-failing-series", o.MaxFailingSeries, "the most series of failing_node_info")
}

func (o *ManagerOptions) validate() error {
	problems := validateAtLeastOne("--concurrency", o.Concurrency)
	problems = append(problems, validateAtLeastOne("--kube-api-burst", o.Burst)...)
	if qps := float64(o.QPS); math.IsNaN(qps) || math.IsInf(qps, 0) || qps <= 0 {
		problems = append(problems, fmt.Errorf("--kube-api-qps=%g: must be a number above zero", o.QPS))
	}
	if o.MaxFailingSeries < 0 {
		problems = append(problems, fmt.Errorf("--max-failing-series=%d: must not be negative", o.MaxFailingSeries))
	}
	problems = append(problems, validateBindAddress("--metrics-bind-address", o.MetricsBindAddress)...)
	problems = append(problems, validateBindAddress("--health-probe-bind-address", o.HealthProbeBindAddress)...)
	problems = append(problems, o.Webhook.validate()...)
	for _, text := range validation.IsDNS1123Label(o.Namespace) {
		problems = append(problems, fmt.Errorf("--namespace=%q: %s", o.Namespace, text))
	}
	return errors.Join(problems...)
}

func newManagerCommand(streams Streams) *cobra.Command {
	o := NewManagerOptions()
	connection := genericclioptions.NewConfigFlags(true)
	logs := zap.Options{StacktraceLevel: zapcore.PanicLevel}
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Watch Nodes, probe their kubelets periodically, and keep conditions, Events and metrics",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *connection.Namespace != "" {
				o.Namespace = *connection.Namespace
			}
			if err := o.validate(); err != nil {
				return err
			}
			cfg, err := connect(connection)
			if err != nil {
				return err
			}
			logs.DestWriter = streams.Err
			logger := zap.New(zap.UseFlagOptions(&logs))
			ctrl.SetLogger(logger)
			klog.SetLogger(logger.WithName("client-go"))
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go tuneGC(ctx)
			return RunManager(ctx, cfg, o, logger)
		},
	}
	o.addFlags(cmd.Flags())
	zapFlags := flag.NewFlagSet("zap", flag.ContinueOnError)
	zapFlags.SetOutput(io.Discard)
	logs.BindFlags(zapFlags)
	cmd.Flags().AddGoFlagSet(zapFlags)
	addConnectionFlags(cmd.Flags(), connection)
	cmd.Flags().Lookup("namespace").Usage = "the manager's own namespace, for its lease and its trust bundle (default " + o.Namespace + ")"
	return cmd
}

// RunManager runs the controllers until ctx ends, which is no error. It waits
// for the API server and for the KubeletCertAudit kind as long as it takes.
func RunManager(ctx context.Context, cfg *rest.Config, o ManagerOptions, logger logr.Logger) error {
	ctx = logr.NewContext(ctx, logger)
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = o.QPS, o.Burst
	cfg.UserAgent = "kubelet-cert-auditor/" + version
	if err := waitForAPI(ctx, cfg, logger); err != nil || ctx.Err() != nil {
		return err
	}
	mgr, err := newManager(cfg, o, logger)
	if err != nil {
		return err
	}
	m := metrics.New(o.Clock, o.MaxFailingSeries)
	if err := o.Registerer.Register(m); err != nil {
		return err
	}
	defer o.Registerer.Unregister(m)
	if err := setUp(mgr, o, m); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// waitForAPI tries until the API server answers and serves our kind, with one
// line per attempt, or until ctx ends, which is no error.
func waitForAPI(ctx context.Context, cfg *rest.Config, logger logr.Logger) error {
	api, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	backoff := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Steps: 1 << 30, Cap: 15 * time.Second, Jitter: 0.1}
	for attempt := 1; ; attempt++ {
		_, err := api.ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.GroupVersion.String())
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // the end of ctx is no error
		}
		why := "the API server does not answer"
		if apierrors.IsNotFound(err) {
			why = "the KubeletCertAudit kind is not installed"
		}
		logger.Info(why+", trying again", "attempt", attempt, "error", err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(backoff.Step(), 15*time.Second)):
		}
	}
}

func newManager(cfg *rest.Config, o ManagerOptions, logger logr.Logger) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Logger: logger,
		LeaderElection: o.LeaderElect, LeaderElectionID: leaseName, LeaderElectionNamespace: o.Namespace,
		// The process ends right after, so that a successor need not wait.
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        o.HealthProbeBindAddress,
		GracefulShutdownTimeout:       &o.GracefulShutdown,
		Metrics: metricsserver.Options{
			BindAddress: o.MetricsBindAddress, SecureServing: true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
		},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: strip},
				&certificatesv1.CertificateSigningRequest{}: {
					Field:     fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeletServingSignerName),
					Transform: strip,
				},
				&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{o.Namespace: {}}},
			},
		},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, err
	}
	return mgr, errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("caches", func(r *http.Request) error {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(ctx) {
				return errors.New("the caches are not filled yet")
			}
			return nil
		}),
	)
}

func strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Node:
		return kubelet.Pack(o)
	case *certificatesv1.CertificateSigningRequest:
		return kubelet.StrippedRequest(o), nil
	}
	return object, nil
}

// setUp wires the rooms together.
func setUp(mgr ctrl.Manager, o ManagerOptions, m *metrics.Metrics) error {
	recorder := &record.Recorder{Client: mgr.GetClient(), Events: mgr.GetEventRecorder(record.Controller), Clock: o.Clock}
	reviewer, err := newReviewer(mgr, o.AllowLocalAddresses)
	if err != nil {
		return err
	}
	if o.Webhook.BindAddress != "0" {
		if err := setUpWebhook(mgr, o, reviewer, recorder, m); err != nil {
			return err
		}
	}
	regimes, requests := &controllers.Regimes{}, &kubelet.Requests{}
	limiter := probe.NewLimiter(o.Concurrency)
	nodes := &controllers.NodeReconciler{
		Client: mgr.GetClient(), Prober: &probe.Prober{AllowLocalAddresses: o.AllowLocalAddresses, Limiter: limiter},
		First:    &probe.Prober{AllowLocalAddresses: o.AllowLocalAddresses, Limiter: limiter, Urgent: true},
		Recorder: recorder, Ledger: m, Counters: m, Regimes: regimes, Requests: requests, Clock: o.Clock,
		Concurrency: probe.MostOpen * o.Concurrency, RetryAfter: o.RetryAfter,
	}
	audit := &controllers.AuditReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: recorder, Ledger: m, Counters: m,
		Bundles: &bundles{reader: mgr.GetClient(), namespace: o.Namespace, clusterCA: o.ClusterCAFile},
		Servers: &apiserver.Reader{Live: mgr.GetAPIReader(), Ask: mgr.GetClient()},
		Regimes: regimes, Nodes: nodes, Clock: o.Clock,
	}
	nodes.Changed = audit.NodesChanged
	csrs := &controllers.CSRReconciler{
		Client: mgr.GetClient(), Requests: requests, Nodes: nodes,
		Reviewer: &admission.Late{Reviewer: reviewer, Spec: admissionSpec(mgr.GetClient()), Counters: m, Recorder: recorder, Clock: o.Clock},
	}
	return errors.Join(nodes.SetupWithManager(mgr), audit.SetupWithManager(mgr), csrs.SetupWithManager(mgr))
}

// bundles finds the trust bundle that a spec names.
type bundles struct {
	reader    client.Reader
	namespace string
	clusterCA string
	store     trust.Store
}

// Load implements controllers.Bundles.
func (b *bundles) Load(ctx context.Context, spec *v1alpha1.TrustBundleSource) (verdict.Bundle, error) {
	return b.store.Load(ctx, b.source(spec))
}

func (b *bundles) source(spec *v1alpha1.TrustBundleSource) trust.Source {
	switch {
	case spec == nil:
		return trust.File(b.clusterCA)
	case spec.ConfigMap != nil:
		return trust.ConfigMap{
			Reader: b.reader, Key: spec.ConfigMap.Key,
			Object: types.NamespacedName{Namespace: b.namespace, Name: spec.ConfigMap.Name},
		}
	case spec.File != "":
		return trust.File(spec.File)
	}
	return trust.Text{Label: "spec.trustBundle.inline", PEM: []byte(spec.Inline)}
}
