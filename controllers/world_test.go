package controllers_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// member is a simulated kubelet with its Node.
type member struct {
	name string
	ip   netip.Addr
}

var addresses int // used up, so that no spec sees the connections of another

func newMember(name string) member {
	addresses++
	return member{name: name, ip: fleet.Address(addresses)}
}

func defect(name string) certs.Defect {
	GinkgoHelper()
	all := certs.Defects()
	i := slices.IndexFunc(all, func(d certs.Defect) bool { return d.Name == name })
	Expect(i).To(BeNumerically(">=", 0), "no defect %q", name)
	return all[i]
}

func (m member) identity() certs.Identity { return certs.Identity{NodeName: m.name, IP: m.ip} }

// serve makes the kubelet behave like that from now on, with a new certificate.
func (m member) serve(defectName string) member {
	GinkgoHelper()
	sim.Set(m.ip, fleet.BehaviourOf(world, defect(defectName), m.identity()))
	return m
}

// node is the Node as its kubelet registers it.
func (m member) node() *corev1.Node { return fleet.Node(m.name, m.ip, sim.PortOf(m.ip)) }

func (m member) register(ctx context.Context) member {
	GinkgoHelper()
	Expect(kube.Create(ctx, m.node())).To(Succeed())
	return m
}

// join is a new kubelet with its Node.
func join(ctx context.Context, name, defectName string) member {
	GinkgoHelper()
	return newMember(name).serve(defectName).register(ctx)
}

func (m member) get(ctx context.Context) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(kube.Get(ctx, client.ObjectKey{Name: m.name}, node)).To(Succeed())
	return node
}

func (m member) delete(ctx context.Context) {
	GinkgoHelper()
	Expect(kube.Delete(ctx, m.node())).To(Succeed())
}

// connections that have come to the kubelet.
func (m member) connections() int64 { return sim.Counts(m.ip).Connections }

// condition is "<status> <reason>" of our condition, "" without.
func (m member) condition(ctx context.Context) string {
	GinkgoHelper()
	return conditionOf(m.get(ctx))
}

func conditionOf(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.ConditionServingCertificateValid {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// events of the Node, as "<type> <reason>" in the order of their creation.
func (m member) events(ctx context.Context) []string {
	GinkgoHelper()
	var texts []string
	for _, e := range eventsOn(ctx, m.get(ctx).UID) {
		if e.Action == "ProbeKubelet" {
			Expect(e.Series).To(BeNil(), "an Event that repeats")
		}
		texts = append(texts, e.Type+" "+e.Reason)
	}
	return texts
}

// eventsOn an object, in the order of their creation.
func eventsOn(ctx context.Context, uid types.UID) []eventsv1.Event {
	GinkgoHelper()
	var list eventsv1.EventList
	Expect(kube.List(ctx, &list, client.InNamespace("default"))).To(Succeed())
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != uid })
}

// audit creates the singleton. Nodes are dialled by IP, young Nodes get no
// grace, and the manager's cluster CA is the fleet's, unless change says so.
func createAudit(ctx context.Context, change func(*v1alpha1.KubeletCertAuditSpec)) *v1alpha1.KubeletCertAudit {
	GinkgoHelper()
	audit := &v1alpha1.KubeletCertAudit{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AuditName}}
	kubectlApply(ctx, `{"apiVersion":"kubeletcert.dev/v1alpha1","kind":"KubeletCertAudit","metadata":{"name":"cluster"},
		"spec":{"interval":"10s","timeout":"2s","newNodeGrace":"0s","preferredAddressTypes":["InternalIP"]}}`)
	if change != nil {
		editSpec(ctx, change)
	}
	Expect(kube.Get(ctx, client.ObjectKeyFromObject(audit), audit)).To(Succeed())
	return audit
}

func kubectlApply(ctx context.Context, manifest string) {
	GinkgoHelper()
	_, err := cp.Kubectl(ctx, strings.NewReader(manifest), "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}

// editSpec gives the generation that the change leads to.
func editSpec(ctx context.Context, change func(*v1alpha1.KubeletCertAuditSpec)) int64 {
	GinkgoHelper()
	var generation int64
	Eventually(ctx, func() error {
		audit := getAudit(ctx)
		change(&audit.Spec)
		err := kube.Update(ctx, audit)
		generation = audit.Generation
		return err
	}).Should(Succeed())
	return generation
}

func getAudit(ctx context.Context) *v1alpha1.KubeletCertAudit {
	GinkgoHelper()
	audit := &v1alpha1.KubeletCertAudit{}
	Expect(kube.Get(ctx, client.ObjectKey{Name: v1alpha1.AuditName}, audit)).To(Succeed())
	return audit
}

// ready is "<status> <reason>" of ReadyToEnforce.
func ready(ctx context.Context) string {
	GinkgoHelper()
	return auditCondition(getAudit(ctx), v1alpha1.AuditReadyToEnforce)
}

func bundleLoaded(ctx context.Context) string {
	GinkgoHelper()
	return auditCondition(getAudit(ctx), v1alpha1.AuditTrustBundleLoaded)
}

func auditCondition(audit *v1alpha1.KubeletCertAudit, name string) string {
	c := meta.FindStatusCondition(audit.Status.Conditions, name)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// manager is one that runs in this process, with the token of the shipped
// ServiceAccount and no more than the shipped RBAC.
type manager struct {
	logs   *lockedBuffer
	cancel context.CancelFunc
	done   chan error
}

var managers []*manager

// start runs a manager; its cluster CA is the fleet's, unless change says so.
func start(ctx context.Context, change func(*cli.ManagerOptions)) *manager {
	GinkgoHelper()
	cfg, err := cp.ServiceAccountConfig(ctx, namespace, serviceAccount)
	Expect(err).NotTo(HaveOccurred())
	o := cli.NewManagerOptions()
	o.Namespace, o.MetricsBindAddress, o.HealthProbeBindAddress = namespace, "0", "0"
	o.AllowLocalAddresses, o.RetryAfter = true, retryAfter
	o.ClusterCAFile = clusterCA
	o.Webhook.BindAddress = "0"
	if change != nil {
		change(&o)
	}
	m := &manager{logs: &lockedBuffer{}, done: make(chan error, 1)}
	running, cancel := context.WithCancel(context.Background()) // not the spec's: stop ends it
	m.cancel = cancel
	managers = append(managers, m)
	go func() {
		err := cli.RunManager(running, cfg, o, zap.New(zap.WriteTo(m.logs), zap.UseDevMode(false)))
		_, _ = fmt.Fprintln(m.logs, "the manager ended with:", err)
		m.done <- err
	}()
	return m
}

func (m *manager) stop() {
	GinkgoHelper()
	m.cancel()
	var err error
	Eventually(m.done).WithTimeout(30 * time.Second).Should(Receive(&err))
	m.done <- nil // stop may be called again
	Expect(err).NotTo(HaveOccurred(), m.logs.String())
}

// lines of the log that hold all the texts.
func (m *manager) lines(texts ...string) []string {
	var found []string
	for line := range strings.Lines(m.logs.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = append(found, line)
		}
	}
	return found
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var _ = AfterEach(func(ctx SpecContext) {
	for _, m := range managers {
		if CurrentSpecReport().Failed() {
			AddReportEntry("the manager's log", m.logs.String())
		}
		m.stop()
	}
	managers = nil
	out, err := cleanUp(ctx)
	Expect(err).NotTo(HaveOccurred(), out)
	Expect(client.IgnoreNotFound(kube.Delete(ctx, &v1alpha1.KubeletCertAudit{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AuditName}}))).To(Succeed())
	Expect(kube.DeleteAllOf(ctx, &corev1.Node{})).To(Succeed())
	Expect(kube.DeleteAllOf(ctx, &certificatesv1.CertificateSigningRequest{})).To(Succeed())
	Expect(kube.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace))).To(Succeed())
}, NodeTimeout(time.Minute))

// cleanUp runs the command as an administrator would.
func cleanUp(ctx context.Context) (string, error) {
	GinkgoHelper()
	var out bytes.Buffer
	code, err := cli.Run(ctx, []string{"cleanup", "--kubeconfig", kubeconfig()}, cli.Streams{Out: &out, Err: &out})
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	return out.String(), err
}

func kubeconfig() string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(cp.WriteKubeconfig(path, cp.Config())).To(Succeed())
	return path
}

func file(name string, text []byte) string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), name)
	Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
	return path
}

// series are those of a metric as Prometheus would see them, by their labels as
// "name=value,..." in the order of the names.
func series(name string) map[string]float64 {
	GinkgoHelper()
	return seriesIn(ctrlmetrics.Registry, name)
}

// seriesIn are those of a registry.
func seriesIn(registry prometheus.Gatherer, name string) map[string]float64 {
	GinkgoHelper()
	families, err := registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "kubelet_cert_auditor_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			found[strings.Join(labels, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

// trail is every state of some objects that the API server showed, in order.
type trail[T client.Object] struct {
	mu   sync.Mutex
	seen []T
}

// follow collects from now on, until the spec ends.
func follow[T client.Object](ctx context.Context, list client.ObjectList) *trail[T] {
	GinkgoHelper()
	t := &trail[T]{}
	w, err := kube.Watch(ctx, list)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			if object, ok := e.Object.(T); ok {
				t.mu.Lock()
				t.seen = append(t.seen, object)
				t.mu.Unlock()
			}
		}
	}()
	return t
}

func followNodes(ctx context.Context) *trail[*corev1.Node] {
	GinkgoHelper()
	return follow[*corev1.Node](ctx, &corev1.NodeList{})
}

func followAudit(ctx context.Context) *trail[*v1alpha1.KubeletCertAudit] {
	GinkgoHelper()
	return follow[*v1alpha1.KubeletCertAudit](ctx, &v1alpha1.KubeletCertAuditList{})
}

func (t *trail[T]) all() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.seen)
}

// upTo waits until the trail has caught up with an object, and gives it all.
func (t *trail[T]) upTo(ctx context.Context, object client.Object) []T {
	GinkgoHelper()
	Eventually(ctx, t.all).Should(ContainElement(WithTransform(func(o T) string { return o.GetResourceVersion() }, Equal(object.GetResourceVersion()))))
	return t.all()
}

// conditions that a node's UID had, one after the other.
func conditions(nodes []*corev1.Node, uid types.UID) []string {
	var texts []string
	for _, node := range nodes {
		if text := conditionOf(node); node.UID == uid && (len(texts) == 0 || texts[len(texts)-1] != text) {
			texts = append(texts, text)
		}
	}
	return texts
}
