package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/apiserver"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

type auditOptions struct {
	connection  *genericclioptions.ConfigFlags
	endpoints   endpointFlags
	what        whatFlag
	output      outputFlag
	filename    string
	fromFile    bool
	ca          string
	caGiven     bool
	selector    string
	selects     labels.Selector
	timeout     time.Duration
	concurrency int
	allowLocal  bool
	watch       bool
	pause       time.Duration
	streams     Streams

	cluster *rest.Config // nil where the Nodes come from a file
	limiter *probe.Limiter
	paths   *audit.Paths // nil where there is one sweep
}

func newAuditCommand(streams Streams) *cobra.Command {
	o := &auditOptions{connection: clusterFlags(), streams: streams}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Probe every kubelet once and say whether the CN check is safe to turn on",
		Example: `  # of the cluster of the current context, with the CA that kube-apiserver uses for kubelets
  kubelet-cert-auditor audit --kubelet-certificate-authority /etc/kubernetes/pki/ca.crt

  # of a file, without an API server
  kubectl get nodes -o json | kubelet-cert-auditor audit -f - --kubelet-certificate-authority ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.caGiven, o.fromFile = cmd.Flags().Changed(caFlag), cmd.Flags().Changed("filename")
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlags(cmd.Flags())
	completeValues(cmd)
	return cmd
}

func (o *auditOptions) addFlags(flags *pflag.FlagSet) {
	o.endpoints.addFlags(flags)
	o.what.addFlags(flags)
	o.output.addFlags(flags)
	addCAFlag(flags, &o.ca)
	flags.StringVarP(&o.filename, "filename", "f", "", `read Nodes from a file instead of an API server, as "kubectl get nodes -o json" or "-o yaml" prints them; - is standard input`)
	flags.StringVarP(&o.selector, "selector", "l", "", "audit only the Nodes with these labels; the answer is then about these alone")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "the time limit of one probe")
	flags.IntVar(&o.concurrency, "concurrency", 128, "the number of probes at a time; another may begin beside each whose peer is slow to answer, up to sixteen times as many")
	flags.BoolVar(&o.allowLocal, "allow-local-addresses", false, "also dial loopback, link-local, multicast and unspecified addresses")
	flags.BoolVarP(&o.watch, "watch", "w", false, "look again, and repaint a terminal, until every node passes")
	flags.DurationVar(&o.pause, "watch-interval", 10*time.Second, "the pause between two looks of --watch")
	addConnectionFlags(flags, o.connection)
}

func (o *auditOptions) validate() error {
	problems := o.endpoints.validate()
	problems = append(problems, o.what.validate()...)
	problems = append(problems, o.output.validate()...)
	problems = append(problems, validatePositive("--timeout", o.timeout)...)
	if o.fromFile {
		problems = append(problems, validateRequired("--filename", o.filename)...)
	}
	problems = append(problems, validateAtLeastOne("--concurrency", o.concurrency)...)
	problems = append(problems, o.validateWatch()...)
	selects, err := labels.Parse(o.selector)
	if err != nil {
		problems = append(problems, fmt.Errorf("--selector=%q: %w", o.selector, err))
	}
	o.selects = selects
	return errors.Join(problems...)
}

func (o *auditOptions) run(ctx context.Context) error {
	if !o.fromFile {
		config, err := connect(o.connection)
		if err != nil {
			return err
		}
		o.cluster = config
	}
	defer TuneForASweep()()
	o.limiter = probe.NewLimiter(o.concurrency)
	if o.watch {
		o.paths = &audit.Paths{}
		return o.watchUntilReady(ctx)
	}
	result, err := o.sweep(ctx)
	if err != nil {
		return err
	}
	if err := report.Render(o.streams.Out, result, report.Format(o.output)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return answerOf(result.Answer)
}

// sweep reads everything anew and looks at each node once.
func (o *auditOptions) sweep(ctx context.Context) (*audit.Report, error) {
	bundle, clusterCA, err := loadCA(ctx, o.ca, o.caGiven, o.cluster)
	if err != nil {
		return nil, err
	}
	chosen, err := o.nodes(ctx)
	if err != nil {
		return nil, err
	}
	requests, err := o.requests(ctx)
	if err != nil {
		return nil, err
	}
	servers := o.servers(ctx)
	progress, done := o.progress(len(chosen.Nodes))
	defer done()
	return audit.Run(ctx, chosen.Nodes, audit.Options{
		Prober:    &probe.Prober{AllowLocalAddresses: o.allowLocal, Limiter: o.limiter},
		Endpoints: o.endpoints.options(),
		Policy:    verdict.Policy{Bundle: bundle},
		Requests:  requests, APIServers: servers,
		Paths:   o.paths,
		Timeout: o.timeout, Concurrency: o.concurrency, Allowed: o.limiter.Allowed,
		What:     verdict.What(o.what),
		Selector: o.selector, Excluded: chosen.Excluded, ClusterCA: clusterCA,
		Clock: clock.RealClock{}, Progress: progress,
	}), nil
}

// nodes reads the Nodes that the selector chooses, and counts the others.
func (o *auditOptions) nodes(ctx context.Context) (*audit.Chosen, error) {
	chosen := &audit.Chosen{Selector: o.selects}
	if o.fromFile {
		return chosen, o.readFile(chosen.Add)
	}
	return chosen, listNodes(ctx, o.cluster, chosen.Add)
}

func (o *auditOptions) readFile(add func(*corev1.Node) error) error {
	in := o.streams.In
	if o.filename != "-" {
		file, err := os.Open(o.filename)
		if err != nil {
			return fmt.Errorf("--filename=%q: %w", o.filename, withoutPath(err))
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	if err := kubelet.Decode(in, add); err != nil {
		return fmt.Errorf("--filename=%q: %w", o.filename, withoutPath(err))
	}
	return nil
}

func listNodes(ctx context.Context, cluster *rest.Config, add func(*corev1.Node) error) error {
	c, err := newClient(cluster)
	if err != nil {
		return err
	}
	next := ""
	for {
		var list corev1.NodeList
		if err := c.List(ctx, &list, client.Limit(500), client.Continue(next)); err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		for i := range list.Items {
			if err := add(kubelet.Stripped(&list.Items[i])); err != nil {
				return err
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// requests lists those for serving certificates, which is advice: whoever may
// not is told so, and goes on without.
func (o *auditOptions) requests(ctx context.Context) (*kubelet.Requests, error) {
	if o.fromFile {
		return nil, nil
	}
	c, err := newClient(o.cluster)
	if err != nil {
		return nil, err
	}
	requests := &kubelet.Requests{}
	ofSigner := client.MatchingFields{"spec.signerName": certificatesv1.KubeletServingSignerName}
	next := ""
	for {
		var list certificatesv1.CertificateSigningRequestList
		if err := c.List(ctx, &list, ofSigner, client.Limit(500), client.Continue(next)); err != nil {
			if ctx.Err() == nil {
				_, _ = fmt.Fprintf(o.streams.Err, "hints to nodes' pending requests are left out: list certificatesigningrequests: %s\n", verdict.Quote(err.Error()))
			}
			return nil, nil
		}
		for i := range list.Items {
			requests.Set(&list.Items[i])
		}
		if next = list.Continue; next == "" {
			return requests, nil
		}
	}
}

// servers reads kube-apiserver's flags where its Pods are visible; nil where they
// are not, such as without the right to.
func (o *auditOptions) servers(ctx context.Context) *verdict.APIServers {
	if o.fromFile {
		return nil
	}
	c, err := newClient(o.cluster)
	if err != nil {
		return nil
	}
	seen, err := (&apiserver.Reader{Live: c}).Look(ctx)
	if err != nil {
		if ctx.Err() == nil && !apierrors.IsForbidden(err) {
			_, _ = fmt.Fprintf(o.streams.Err, "findings about kube-apiserver's flags are left out: list pods: %s\n", verdict.Quote(err.Error()))
		}
		return nil
	}
	return &seen
}

// progress shows a bar, but only on a terminal.
func (o *auditOptions) progress(total int) (step, done func()) {
	file, ok := o.streams.Err.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || total == 0 {
		return nil, func() {}
	}
	bar := progressbar.NewOptions(total,
		progressbar.OptionSetWriter(io.Writer(file)), progressbar.OptionSetDescription("probing"),
		progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond))
	return func() { _ = bar.Add(1) }, func() { _ = bar.Finish() }
}
