package ha

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const (
	namespace = "kubelet-cert-auditor-system"
	account   = "kubelet-cert-auditor"
	scraper   = "scraper"
	nodes     = 300

	// What controller-runtime's leader election takes at most: a lease of 15 s,
	// looked at every 2 s; and what a machine that is busy may add.
	takeOver = 15*time.Second + 2*time.Second
	slack    = 20 * time.Second
)

const manifest = `apiVersion: kubeletcert.dev/v1alpha1
kind: KubeletCertAudit
metadata: {name: cluster}
spec:
  interval: 10s
  timeout: 2s
  newNodeGrace: 0s
  preferredAddressTypes: [InternalIP]
  trustBundle: {configMap: {name: kubelet-ca}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: scraper, namespace: kubelet-cert-auditor-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kubelet-cert-auditor-metrics-reader}
subjects: [{kind: ServiceAccount, name: scraper, namespace: kubelet-cert-auditor-system}]
`

// world is a cluster of simulated kubelets, and what happens to its Nodes.
type world struct {
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	fleet  *fleet.Fleet
	certs  *certs.World
	dir    string

	mu      sync.Mutex
	want    map[string]string   // node -> "status reason"
	history map[string][]string // node -> what its condition was, one after the other
	ips     map[string]netip.Addr
	ready   []string // what ReadyToEnforce was, one after the other
}

func newWorld(ctx context.Context, t *testing.T, defects []certs.Defect) *world {
	t.Helper()
	plane, err := controlplane.Start(ctx, controlplane.Options{Audit: true})
	must(t, err)
	t.Cleanup(func() { must(t, plane.Stop()) })
	f, err := fleet.Start()
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	w := &world{
		plane: plane, fleet: f, certs: certs.NewWorld(time.Now()), dir: t.TempDir(),
		want: map[string]string{}, history: map[string][]string{}, ips: map[string]netip.Addr{},
	}
	w.client, err = kubernetes.NewForConfig(plane.Config())
	must(t, err)
	ca := filepath.Join(w.dir, "kubelet-ca.crt")
	must(t, os.WriteFile(ca, w.certs.CA.PEM(), 0o600))
	w.kubectl(ctx, t, "", "apply", "--server-side", "-k", "../../config/default")
	w.kubectl(ctx, t, "", "wait", "--for=condition=Established", "crd/kubeletcertaudits.kubeletcert.dev")
	w.kubectl(ctx, t, "", "create", "configmap", "kubelet-ca", "--namespace", namespace, "--from-file", "ca.crt="+ca)
	for _, m := range fleet.Populate(f, w.certs, defects, nodes) {
		w.create(ctx, t, m)
	}
	w.watch(t)
	w.kubectl(ctx, t, manifest, "apply", "-f", "-")
	return w
}

func (w *world) create(ctx context.Context, t *testing.T, m fleet.Member) {
	t.Helper()
	node, err := w.client.CoreV1().Nodes().Create(ctx, m.Node, metav1.CreateOptions{})
	must(t, err)
	node.Status = m.Node.Status
	_, err = w.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	must(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want[node.Name], w.ips[node.Name] = m.Defect.Status+" "+string(m.Defect.Reason), m.IP
}

// turn gives a node that was good the bare node name, or back.
func (w *world) turn(t *testing.T, name, defect string) {
	t.Helper()
	d := defectOf(t, defect)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fleet.Set(w.ips[name], fleet.BehaviourOf(w.certs, d, certs.Identity{NodeName: name, IP: w.ips[name]}))
	w.want[name] = d.Status + " " + string(d.Reason)
}

func defectOf(t *testing.T, name string) certs.Defect {
	t.Helper()
	i := slices.IndexFunc(certs.Defects(), func(d certs.Defect) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("there is no defect %s", name)
	}
	return certs.Defects()[i]
}

func (w *world) kubectl(ctx context.Context, t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := w.plane.Kubectl(ctx, strings.NewReader(stdin), args...)
	must(t, err)
	return out
}

// watch writes the history, until the test ends.
func (w *world) watch(t *testing.T) {
	t.Helper()
	klog.SetLogger(logr.Discard()) // a watch that breaks is what this is about
	ctrl.SetLogger(logr.Discard())
	resource, err := dynamic.NewForConfig(w.plane.Config())
	must(t, err)
	audits := resource.Resource(v1alpha1.GroupVersion.WithResource("kubeletcertaudits"))
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, watched := range []struct {
		from cache.ListerWatcher
		kind any
		see  func(any)
	}{
		{cache.NewListWatchFromClient(w.client.CoreV1().RESTClient(), "nodes", "", fields.Everything()), &corev1.Node{}, w.seeNode},
		{&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return audits.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return audits.Watch(ctx, o)
			},
		}, &unstructured.Unstructured{}, w.seeAudit},
	} {
		see := func(object any) error { watched.see(object); return nil }
		store := &cache.FakeCustomStore{AddFunc: see, UpdateFunc: see, ReplaceFunc: func(list []any, _ string) error {
			for _, object := range list {
				watched.see(object)
			}
			return nil
		}}
		// An informer would wait up to a minute before it asks an API server again that
		// was away for one, and what it has not heard by then looks like a wrong condition.
		reflector := cache.NewReflectorWithOptions(watched.from, watched.kind, store, cache.ReflectorOptions{
			Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Cap: time.Second, Steps: 10, Factor: 2},
		})
		running.Go(func() { reflector.Run(stop) })
	}
	t.Cleanup(func() { close(stop); running.Wait() })
}

func (w *world) seeNode(object any) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.ConditionServingCertificateValid {
			w.mu.Lock()
			w.history[node.Name] = appendChange(w.history[node.Name], string(c.Status)+" "+c.Reason)
			w.mu.Unlock()
		}
	}
}

func (w *world) seeAudit(object any) {
	var audit v1alpha1.KubeletCertAudit
	if u, ok := object.(*unstructured.Unstructured); !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &audit) != nil {
		return
	}
	if c := meta.FindStatusCondition(audit.Status.Conditions, v1alpha1.AuditReadyToEnforce); c != nil {
		w.mu.Lock()
		w.ready = appendChange(w.ready, string(c.Status)+" "+c.Reason)
		w.mu.Unlock()
	}
}

func appendChange(history []string, now string) []string {
	if len(history) == 0 || history[len(history)-1] != now {
		return append(history, now)
	}
	return history
}

// answers are what ReadyToEnforce was so far.
func (w *world) answers() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ready)
}

// wrong lists the nodes whose condition is not what their kubelet makes it.
func (w *world) wrong() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []string
	for name, want := range w.want {
		if h := w.history[name]; len(h) == 0 || h[len(h)-1] != want {
			wrong = append(wrong, fmt.Sprintf("%s: %q, want %q", name, h, want))
		}
	}
	slices.Sort(wrong)
	return wrong
}

func (w *world) conditionOf(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.history[name]; len(h) > 0 {
		return h[len(h)-1]
	}
	return ""
}

func (w *world) transitions() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for name, h := range w.history {
		n[name] = len(h)
	}
	return n
}

// settled waits until every condition is right, and then wants those nodes alone
// to have changed since before that are named, once each, and one Event for each
// change there ever was.
func (w *world) settled(ctx context.Context, t *testing.T, before map[string]int, changed ...string) {
	t.Helper()
	eventually(ctx, t, "every condition is right", time.Minute, func(context.Context) bool { return len(w.wrong()) == 0 }, w.wrong)
	after := w.transitions()
	for name, n := range after {
		want := before[name]
		if slices.Contains(changed, name) {
			want++
		}
		if n != want && before != nil {
			t.Errorf("the condition of %s changed %d times, want %d: %q", name, n-before[name], want-before[name], w.history[name])
		}
	}
	eventually(ctx, t, "an Event for each change", 20*time.Second, func(ctx context.Context) bool { return len(w.eventProblems(ctx, after)) == 0 },
		func() []string { return w.eventProblems(ctx, after) })
}

// eventProblems compares the Events of each node with its history.
func (w *world) eventProblems(ctx context.Context, changes map[string]int) []string {
	list, err := w.client.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	count := map[string]int{}
	for i := range list.Items {
		e := &list.Items[i]
		if e.Regarding.Kind != "Node" || !slices.Contains(v1alpha1.Reasons(), v1alpha1.Reason(e.Reason)) {
			continue
		}
		count[e.Regarding.Name]++
		if e.Series != nil {
			count[e.Regarding.Name] += int(e.Series.Count) - 1
		}
	}
	var problems []string
	for name, n := range changes {
		if count[name] != n {
			problems = append(problems, fmt.Sprintf("%s: %d Events about %d changes", name, count[name], n))
		}
	}
	return problems
}

// never fails the test unless ReadyToEnforce is False and has never been True,
// which it must not where nodes fail.
func (w *world) never(ctx context.Context, t *testing.T) {
	t.Helper()
	out := w.kubectl(ctx, t, "", "get", "kubeletcertaudit", v1alpha1.AuditName, "-o", `jsonpath={.status.conditions[?(@.type=="ReadyToEnforce")].status}`)
	answers := w.answers()
	if out != "False" || len(answers) == 0 || slices.ContainsFunc(answers, func(a string) bool { return strings.HasPrefix(a, "True") }) {
		t.Errorf("ReadyToEnforce is %q, and was %q, while nodes fail", out, answers)
	}
}

func eventually(ctx context.Context, t *testing.T, what string, limit time.Duration, condition func(context.Context) bool, details func() []string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) { return condition(ctx), nil })
	if err != nil {
		text := ""
		if details != nil {
			list := details()
			text = fmt.Sprintf(": %d: %s", len(list), strings.Join(list[:min(len(list), 10)], "; "))
		}
		t.Fatalf("never: %s%s", what, text)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair runs two replicas, each with a link of its own to the API server.
func (w *world) pair(ctx context.Context, t *testing.T) []*replica {
	t.Helper()
	return w.run(ctx, t, func(r *replica, cfg *rest.Config) { r.link = linkTo(ctx, t, cfg) })
}

// run starts two replicas, once each is connected.
func (w *world) run(ctx context.Context, t *testing.T, connect func(*replica, *rest.Config)) []*replica {
	t.Helper()
	binary := filepath.Join(w.dir, "kubelet-cert-auditor")
	must(t, run(ctx, "go", "build", "-o", binary, "../.."))
	scrape, err := w.plane.ServiceAccountConfig(ctx, namespace, scraper)
	must(t, err)
	replicas := make([]*replica, 0, 2)
	for _, name := range []string{"one", "two"} {
		cfg, err := w.plane.ServiceAccountConfig(ctx, namespace, account)
		must(t, err)
		port, err := controlplane.FreePort(ctx)
		must(t, err)
		r := &replica{name: name, command: []string{binary}, token: scrape.BearerToken, logPath: filepath.Join(w.dir, name+".log"), metrics: fmt.Sprintf("127.0.0.1:%d", port)}
		connect(r, cfg)
		kubeconfig := filepath.Join(w.dir, name+".kubeconfig")
		must(t, w.plane.WriteKubeconfig(kubeconfig, cfg))
		r.command = append(r.command,
			"manager", "--kubeconfig", kubeconfig, "--zap-log-level", "4", "--namespace", namespace, "--allow-local-addresses",
			"--health-probe-bind-address", "0", "--webhook-bind-address", "0", "--metrics-bind-address", r.metrics)
		replicas = append(replicas, r)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, r := range replicas {
		running.Go(func() {
			if err := r.supervise(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		for _, r := range replicas {
			if r.link != nil {
				must(t, r.link.close())
			}
			if t.Failed() {
				text, _ := os.ReadFile(r.logPath)
				t.Logf("the log of %s ends:\n%s", r.name, text[max(0, len(text)-3000):])
			}
		}
	})
	return replicas
}

// linkTo has a configuration lead through a link.
func linkTo(ctx context.Context, t *testing.T, cfg *rest.Config) *link {
	t.Helper()
	host, err := url.Parse(cfg.Host)
	must(t, err)
	l, err := newLink(ctx, host.Host)
	must(t, err)
	cfg.Host = "https://" + l.address()
	return l
}

// leader waits until one of them leads and knows every node, and returns it and
// the other one.
func leader(ctx context.Context, t *testing.T, replicas []*replica, limit time.Duration) (first, other *replica) {
	t.Helper()
	eventually(ctx, t, "one of the replicas leads", limit, func(ctx context.Context) bool {
		for i, r := range replicas {
			if r.leads(ctx) {
				first, other = r, replicas[1-i]
				return true
			}
		}
		return false
	}, nil)
	return first, other
}

// Series that are about nodes, or could be read as "all is well".
var leadersOwn = []string{
	"nodes", "check_failures", "failing_node_info", "ready_to_enforce", "oldest_verdict_age_seconds", "certificates_late_in_lifetime",
	"earliest_certificate_expiry_timestamp_seconds", "trust_bundle_loaded", "trust_bundle_certificates",
	"trust_bundle_expiry_timestamp_seconds", "interval_seconds",
}

// silent wants a replica that does not lead to say nothing of nodes.
func silent(ctx context.Context, t *testing.T, r *replica) {
	t.Helper()
	lines, err := r.series(ctx)
	must(t, err)
	for _, line := range lines {
		name := strings.TrimPrefix(line[:strings.IndexAny(line, "{ ")], "kubelet_cert_auditor_")
		if slices.Contains(leadersOwn, name) {
			t.Errorf("%s does not lead, and says %s", r.name, line)
		}
	}
	if len(lines) == 0 {
		t.Errorf("%s has no series", r.name)
	}
}

func TestTwoReplicas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	w := newWorld(ctx, t, certs.Defects())
	replicas := w.pair(ctx, t)
	first, other := leader(ctx, t, replicas, time.Minute)
	w.settled(ctx, t, nil)
	silent(ctx, t, other)

	step := func(name string, f func(t *testing.T)) {
		if !t.Failed() { // what follows would start from somewhere else
			t.Run(name, f)
		}
	}
	step("the leader is killed within a sweep", func(t *testing.T) {
		before := w.transitions()
		sweeping(ctx, t, first)
		killed := time.Now()
		must(t, first.down())
		w.turn(t, "good", "bare-node-name")
		eventually(ctx, t, "the other one leads", takeOver+slack, other.leads, nil)
		t.Logf("the other one took over after %s", time.Since(killed).Round(100*time.Millisecond))
		first.up()
		first, other = other, first
		eventually(ctx, t, "what changed meanwhile is seen", takeOver+slack, func(context.Context) bool { return w.conditionOf("good") == "False CommonNameMismatch" }, nil)
		t.Logf("what changed meanwhile was seen after %s", time.Since(killed).Round(100*time.Millisecond))
		w.settled(ctx, t, before, "good")
		w.never(ctx, t)
	})
	step("the API server is away for two minutes", func(t *testing.T) {
		before := w.transitions()
		must(t, w.plane.KillAPIServer())
		away := time.Now()
		w.turn(t, "good", "good")
		t.Logf("the leader ended itself after %s", endedAfter(ctx, t, first, away, time.Minute))
		eventually(ctx, t, "two minutes are over", 3*time.Minute, func(context.Context) bool { return time.Since(away) > 2*time.Minute }, nil)
		must(t, w.plane.StartAPIServer(ctx))
		back := time.Now()
		first, other = leader(ctx, t, replicas, takeOver+time.Minute)
		t.Logf("%s leads %s after the API server is back", first.name, time.Since(back).Round(100*time.Millisecond))
		w.settled(ctx, t, before, "good")
		w.never(ctx, t)
	})
	step("etcd does not answer for six seconds", func(t *testing.T) {
		before := w.transitions()
		_, starts := first.exited()
		must(t, w.plane.PauseEtcd())
		paused := time.Now()
		eventually(ctx, t, "six seconds are over", time.Minute, func(context.Context) bool { return time.Since(paused) > 6*time.Second }, nil)
		w.turn(t, "good", "bare-node-name")
		must(t, w.plane.ResumeEtcd())
		w.settled(ctx, t, before, "good")
		if _, again := first.exited(); again != starts || !first.leads(ctx) {
			t.Errorf("%s gave up after six seconds: started %d times, before %d", first.name, again, starts)
		}
		w.never(ctx, t)
	})
	step("the follower's watches expire", func(t *testing.T) {
		before, lists := w.transitions(), w.listed(t)
		back(ctx, t, other)
		expired, err := other.expired()
		must(t, err)
		starts := started(replicas)
		must(t, other.signal(syscall.SIGSTOP))
		other.link.cut() // what happens now must not wait for it in a buffer
		name := w.replace(ctx, t)
		// An API server that starts knows nothing of before, so that watches from
		// there are answered with the error 410 Expired, and Nodes are listed anew.
		must(t, w.plane.KillAPIServer())
		must(t, w.plane.StartAPIServer(ctx))
		other.link.reset()
		other.link.mend()
		must(t, other.signal(syscall.SIGCONT))
		eventually(ctx, t, "its watch of Nodes expires", time.Minute, func(context.Context) bool {
			now, err := other.expired()
			return err == nil && now > expired
		}, nil)
		eventually(ctx, t, "the Nodes are listed anew", time.Minute, func(context.Context) bool { return w.listed(t) > lists }, func() []string { return w.lists(t)[lists:] })
		if again := started(replicas); again != starts {
			t.Errorf("%d starts, before %d: whoever starts lists Nodes too", again, starts)
		}
		first, other = leader(ctx, t, replicas, takeOver+time.Minute)
		// The one that missed it all is to lead: the other one stays down meanwhile.
		must(t, first.signal(syscall.SIGSTOP))
		eventually(ctx, t, "the other one leads", takeOver+slack, other.leads, nil)
		must(t, first.signal(syscall.SIGCONT))
		woken := time.Now()
		t.Logf("the one that slept ended itself after %s", endedAfter(ctx, t, first, woken, takeOver))
		first, other = other, first
		w.settled(ctx, t, before, name)
		eventually(ctx, t, "the counts are those of the nodes that are there", time.Minute, func(ctx context.Context) bool {
			return w.total(ctx) == fmt.Sprint(nodes)
		}, func() []string { return []string{w.total(ctx)} })
		w.never(ctx, t)
	})
	step("the leader is cut off from the API server, not from the kubelets", func(t *testing.T) {
		back(ctx, t, other)
		w.cutOff(ctx, t, first, other, "good", first.link.cut, first.link.mend)
	})
}

// cutOff cuts the leader off while the kubelet of the node good turns to a
// defect, and mends that once the other one leads.
func (w *world) cutOff(ctx context.Context, t *testing.T, first, other *replica, defect string, cut, mend func()) {
	t.Helper()
	before := w.transitions()
	silent(ctx, t, other)
	start := time.Now()
	cut()
	w.turn(t, "good", defect)
	eventually(ctx, t, "the other one leads", takeOver+slack, other.leads, nil)
	led := time.Now()
	// It tries to give the lease back for five seconds, so it may be the later one.
	ended := endedAfter(ctx, t, first, start, slack)
	t.Logf("the one cut off ended itself after %s; the other one led after %s", ended, led.Sub(start).Round(100*time.Millisecond))
	w.settled(ctx, t, before, "good")
	mend()
	back(ctx, t, first)
	silent(ctx, t, first)
	w.settled(ctx, t, before, "good")
	w.never(ctx, t)
}

// The same, where each replica has a network of its own, and a cable is pulled.
func TestNetworkIsCut(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a network namespace needs root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w := newWorld(ctx, t, certs.Defects())
	networks := map[*replica]*netns{}
	replicas := w.run(ctx, t, func(r *replica, _ *rest.Config) {
		n := newNetns(ctx, t, 2*len(networks))
		networks[r] = n
		r.metrics = strings.Replace(r.metrics, "127.0.0.1", n.address, 1)
		r.command = append([]string{"ip", "netns", "exec", n.name}, r.command...)
	})
	first, other := leader(ctx, t, replicas, time.Minute)
	w.settled(ctx, t, nil)
	n := networks[first]
	api, err := url.Parse(w.plane.Config().Host)
	must(t, err)
	// connected says which of the two cables lead anywhere.
	connected := func(toAPI bool) {
		t.Helper()
		good := w.ips["good"]
		if got := n.reaches(ctx, apiServer, api.Port()); got != toAPI {
			t.Errorf("the API server is reached: %t, want %t", got, toAPI)
		}
		if !n.reaches(ctx, good.String(), w.fleet.PortOf(good)) {
			t.Error("a kubelet is not reached")
		}
	}
	connected(true)
	w.cutOff(ctx, t, first, other, "bare-node-name",
		func() { must(t, n.cut(ctx)); connected(false) },
		func() { must(t, n.mend(ctx)); connected(true) })
}

// back waits until a replica answers.
func back(ctx context.Context, t *testing.T, r *replica) {
	t.Helper()
	eventually(ctx, t, r.name+" is back", time.Minute, func(ctx context.Context) bool {
		_, err := r.series(ctx)
		return err == nil
	}, nil)
}

// endedAfter waits until a replica has ended itself, and says how long after a time.
func endedAfter(ctx context.Context, t *testing.T, r *replica, since time.Time, limit time.Duration) time.Duration {
	t.Helper()
	eventually(ctx, t, r.name+" gives up", limit, func(context.Context) bool {
		exit, _ := r.exited()
		return exit.After(since)
	}, nil)
	exit, _ := r.exited()
	return exit.Sub(since).Round(100 * time.Millisecond)
}

// started counts the starts of all.
func started(replicas []*replica) int {
	n := 0
	for _, r := range replicas {
		_, starts := r.exited()
		n += starts
	}
	return n
}

// sweeping waits until a replica has probed some nodes more, but not all.
func sweeping(ctx context.Context, t *testing.T, r *replica) {
	t.Helper()
	const completed = `kubelet_cert_auditor_probes_total{outcome="completed"}`
	from, _ := r.value(ctx, completed)
	eventually(ctx, t, "a sweep is under way", time.Minute, func(ctx context.Context) bool {
		now, ok := r.value(ctx, completed)
		return ok && now != from
	}, nil)
}

// replace deletes a Node and makes it again: the same name, another UID.
func (w *world) replace(ctx context.Context, t *testing.T) string {
	t.Helper()
	const name = "bare-node-name"
	node, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	must(t, err)
	must(t, w.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
	w.turn(t, name, "good")
	again := fleet.Node(name, w.ips[name], w.fleet.PortOf(w.ips[name]))
	w.create(ctx, t, fleet.Member{Node: again, Defect: defectOf(t, "good"), IP: w.ips[name]})
	// Nodes that the follower hears of late.
	for other := range w.transitions() {
		_, err := w.client.CoreV1().Nodes().Patch(ctx, other, types.MergePatchType, []byte(`{"metadata":{"labels":{"late":"yes"}}}`), metav1.PatchOptions{})
		must(t, err)
	}
	if node.Name != name {
		t.Fatal(node.Name)
	}
	return name
}

// listed counts how often the managers have asked for all Nodes, as after a start
// or once a watch has expired.
func (w *world) listed(t *testing.T) int {
	t.Helper()
	return len(w.lists(t))
}

func (w *world) lists(t *testing.T) []string {
	t.Helper()
	events, err := w.plane.AuditEvents()
	must(t, err)
	var lists []string
	for _, e := range events {
		ours := e.User == "system:serviceaccount:"+namespace+":"+account && e.Resource == "nodes" && e.Name == ""
		streamed := e.Verb == "watch" && e.Stage == "ResponseStarted" && strings.Contains(e.RequestURI, "sendInitialEvents=true")
		if ours && (streamed || e.Verb == "list" && e.Stage == "ResponseComplete") {
			lists = append(lists, e.Time.Format(time.TimeOnly)+" "+e.RequestURI)
		}
	}
	return lists
}

func (w *world) total(ctx context.Context) string {
	out, err := w.plane.Kubectl(ctx, nil, "get", "kubeletcertaudit", v1alpha1.AuditName, "-o", "jsonpath={.status.nodes.total}")
	if err != nil {
		return err.Error()
	}
	return out
}

// skewed is a clock that is off.
type skewed struct {
	clock.RealClock
	by time.Duration
}

func (c skewed) Now() time.Time                  { return time.Now().Add(c.by) }
func (c skewed) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// A clock that is five minutes off in one of two managers costs nobody a verdict,
// whichever way, and whether it is the clock of who leads or of who comes after.
func TestClocksDiffer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w := newWorld(ctx, t, certs.Defects())
	var leads *manager
	var before map[string]int
	for _, by := range []time.Duration{0, 5 * time.Minute, 0, -5 * time.Minute, 0} {
		next := w.manager(ctx, t, by)
		if leads != nil {
			more := leads.probed() + nodes
			eventually(ctx, t, "both run for a sweep", time.Minute, func(context.Context) bool { return leads.probed() >= more }, nil)
			if n := next.probed(); n != 0 {
				t.Errorf("%d probes by who does not lead", n)
			}
			leads.end(t)
		}
		leads = next
		eventually(ctx, t, "it leads, and has probed every node twice", 2*time.Minute, func(context.Context) bool { return leads.probed() >= 2*nodes }, nil)
		w.settled(ctx, t, before)
		w.never(ctx, t)
		before = w.transitions()
	}
	leads.end(t)
}

// Where every node is verified, that stands while who says so is killed, and
// another one has looked at them.
func TestReadyStandsWhileAnotherTakesOver(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	w := newWorld(ctx, t, []certs.Defect{defectOf(t, "good")})
	replicas := w.pair(ctx, t)
	first, other := leader(ctx, t, replicas, time.Minute)
	ready := func(context.Context) bool {
		answers := w.answers()
		return len(answers) > 0 && answers[len(answers)-1] == "True AllNodesVerified"
	}
	eventually(ctx, t, "all is well", time.Minute, ready, w.answers)
	w.settled(ctx, t, nil)
	before, answers := w.transitions(), w.answers()
	sweeping(ctx, t, first)
	killed := time.Now()
	must(t, first.down())
	// Nothing may say so while nobody leads, but what was written.
	silent(ctx, t, other)
	eventually(ctx, t, "the other one leads", takeOver+slack, other.leads, nil)
	t.Logf("the other one took over after %s", time.Since(killed).Round(100*time.Millisecond))
	eventually(ctx, t, "it has looked at every node", time.Minute, func(ctx context.Context) bool { return w.swept(ctx).After(killed.Add(takeOver)) }, nil)
	w.settled(ctx, t, before)
	if now := w.answers(); !slices.Equal(now, answers) {
		t.Errorf("ReadyToEnforce was %q, and now %q", answers, now)
	}
	first.up()
}

// swept is when every node had been looked at.
func (w *world) swept(ctx context.Context) time.Time {
	out, err := w.plane.Kubectl(ctx, nil, "get", "kubeletcertaudit", v1alpha1.AuditName, "-o", "jsonpath={.status.lastSweepTime}")
	if err != nil {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, out)
	return at
}

// manager is one in this process.
type manager struct {
	registry *prometheus.Registry
	cancel   context.CancelFunc
	done     chan error
}

func (w *world) manager(ctx context.Context, t *testing.T, by time.Duration) *manager {
	t.Helper()
	cfg, err := w.plane.ServiceAccountConfig(ctx, namespace, account)
	must(t, err)
	o := cli.NewManagerOptions()
	o.Namespace, o.AllowLocalAddresses, o.MetricsBindAddress, o.HealthProbeBindAddress = namespace, true, "0", "0"
	o.Webhook.BindAddress = "0"
	m := &manager{registry: prometheus.NewRegistry(), done: make(chan error, 1)}
	o.Registerer, o.Clock = m.registry, skewed{by: by}
	ctx, m.cancel = context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { m.done <- cli.RunManager(ctx, cfg, o, logr.Discard()) })
	t.Cleanup(func() { m.cancel(); running.Wait() })
	return m
}

func (m *manager) end(t *testing.T) {
	t.Helper()
	m.cancel()
	must(t, <-m.done)
}

// probed is the number of probes so far.
func (m *manager) probed() int {
	families, err := m.registry.Gather()
	if err != nil {
		return 0
	}
	n := 0.0
	for _, family := range families {
		if family.GetName() != "kubelet_cert_auditor_probes_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			n += metric.GetCounter().GetValue()
		}
	}
	return int(n)
}
