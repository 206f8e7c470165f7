package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const (
	namespace      = "kubelet-cert-auditor-system"
	serviceAccount = "kubelet-cert-auditor"
	// window is how long a steady state's requests are counted, turn for how long
	// its probes are, each time.
	window, turn = 30 * time.Second, 8 * time.Second
	// shortest interval that a spec may have, and the usual one.
	shortest, usual = 10 * time.Second, 10 * time.Minute
)

// cluster is a real API server with Nodes whose kubelets are simulated, and the
// product's manager.
type cluster struct {
	b       *bench
	nodes   int
	fleet   *fleetProcess
	plane   *controlplane.ControlPlane
	client  kubernetes.Interface
	manager *exec.Cmd
	ended   chan error
	pprof   string // address of the manager's profiles, if any
}

// newCluster has its Nodes in the API server, and no manager yet.
// The kubelets of so many more serve already.
func (b *bench) newCluster(ctx context.Context, nodes, more int) (*cluster, error) {
	c := &cluster{b: b, nodes: nodes, pprof: os.Getenv(pprofVariable)}
	var err error
	if c.fleet, err = b.fleet(ctx, nodes+more, ""); err != nil {
		return nil, err
	}
	if c.plane, err = controlplane.Start(ctx, controlplane.Options{Audit: true}); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	cfg := c.plane.Config()
	cfg.QPS = -1
	if c.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	if _, err := c.plane.Kubectl(ctx, nil, "apply", "-k", filepath.Join(b.root, "config", "default")); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	if err := c.create(ctx, 0, nodes); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// create makes the Nodes from one number to another.
func (c *cluster) create(ctx context.Context, from, to int) error {
	return parallel(from, to, func(i int) error {
		_, err := c.client.CoreV1().Nodes().Create(ctx, realisticNode(i, c.fleet.Port), metav1.CreateOptions{})
		return err
	})
}

// parallel calls f with each number, and gives the last error.
func parallel(from, to int, f func(int) error) error {
	next := atomic.Int64{}
	next.Store(int64(from))
	var failure atomic.Pointer[error]
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	workers.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *cluster) apply(ctx context.Context, interval time.Duration) error {
	bundle, err := os.ReadFile(c.b.ca())
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "kubeletcert.dev/v1alpha1", "kind": "KubeletCertAudit", "metadata": map[string]any{"name": v1alpha1.AuditName},
		"spec": map[string]any{
			"interval": interval.String(), "timeout": "10s", "newNodeGrace": "0s", "preferredAddressTypes": []string{"InternalIP"},
			"trustBundle": map[string]any{"inline": string(bundle)},
		},
	})
	if err != nil {
		return err
	}
	_, err = c.plane.Kubectl(ctx, bytes.NewReader(text), "apply", "-f", "-")
	return err
}

// start runs the manager as its Pod would, but for the rate of its requests.
func (c *cluster) start(ctx context.Context) error {
	cfg, err := c.plane.ServiceAccountConfig(ctx, namespace, serviceAccount)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(c.b.dir, "manager.kubeconfig")
	if err := c.plane.WriteKubeconfig(kubeconfig, cfg); err != nil {
		return err
	}
	command := []string{c.b.product}
	if c.pprof != "" {
		command = []string{c.b.self, "product"}
	}
	command = append(command, "manager", "--kubeconfig", kubeconfig, "--namespace", namespace, "--allow-local-addresses",
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--webhook-bind-address=0", "--zap-log-level=error",
		"--kube-api-qps=200", "--kube-api-burst=200", "--leader-elect=false")
	c.manager = pinned(context.WithoutCancel(ctx), subjectCore, command[0], command[1:]...)
	c.manager.Env = append(append(os.Environ(), c.b.environment...), pprofVariable+"="+c.pprof)
	if err := c.manager.Start(); err != nil {
		return err
	}
	c.ended = make(chan error, 1)
	go func() { c.ended <- c.manager.Wait() }()
	return nil
}

// counted waits until the audit's last sweep is later than a time, and counts so
// many Nodes.
func (c *cluster) counted(ctx context.Context, after time.Time, verified, breaks int) error {
	return wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 30*time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-c.ended:
			c.ended <- nil // for stop
			return false, fmt.Errorf("the manager ended: %w", err)
		default:
		}
		text, err := c.client.Discovery().RESTClient().Get().AbsPath("/apis/kubeletcert.dev/v1alpha1/kubeletcertaudits/cluster").DoRaw(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // a busy API server
		}
		var audit v1alpha1.KubeletCertAudit
		if err := json.Unmarshal(text, &audit); err != nil {
			return false, err
		}
		last := audit.Status.LastSweepTime
		n := audit.Status.Nodes
		return last != nil && last.After(after) && int(n.Verified) == verified && int(n.BreaksWhenEnabled) == breaks && int(n.Total) == verified+breaks, nil
	})
}

// handshakes that the kubelets have seen.
func (f *fleetProcess) handshakes(ctx context.Context) (int64, error) {
	var counts fleet.Counts
	err := f.get(ctx, "/counts", &counts)
	return counts.Handshakes, err
}

func (f *fleetProcess) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.Control+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// during is what the manager does in a time.
func (c *cluster) during(ctx context.Context, f func() error) (Cost, error) {
	before, err := c.fleet.handshakes(ctx)
	if err != nil {
		return Cost{}, err
	}
	cpu, err := processCPU(c.manager.Process.Pid)
	if err != nil {
		return Cost{}, err
	}
	start := time.Now()
	if err := f(); err != nil {
		return Cost{}, err
	}
	after, err := c.fleet.handshakes(ctx)
	if err != nil {
		return Cost{}, err
	}
	end, err := processCPU(c.manager.Process.Pid)
	return Cost{Probes: int(after - before), Seconds: time.Since(start).Seconds(), CPUSeconds: (end - cpu).Seconds()}, err
}

// idle lets time pass.
func idle(ctx context.Context, d time.Duration) func() error {
	return func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
}

// requests of the manager since a time, as "<verb> <resource>[/<subresource>]".
func (c *cluster) requests(since time.Time) (map[string]int, error) {
	events, err := c.plane.AuditEvents()
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, e := range events {
		if e.User == "system:serviceaccount:"+namespace+":"+serviceAccount && e.Time.After(since) {
			path, _, _ := strings.Cut(e.RequestURI, "?")
			what := e.Verb + " " + kindOf(path)
			if e.Code >= 300 {
				what += fmt.Sprintf(" (%d)", e.Code)
			}
			counts[what]++
		}
	}
	return counts, nil
}

// kindOf leaves the names out of a path.
func kindOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		if part == "nodes" && i+1 < len(parts) {
			parts[i+1] = "*"
		}
		if part == "events" && i+1 < len(parts) {
			parts[i+1] = "*"
		}
	}
	return strings.Join(parts[max(0, len(parts)-3):], "/")
}

// end of the manager.
func (c *cluster) end() error {
	if c.manager == nil || c.manager.Process == nil {
		return nil
	}
	manager := c.manager
	c.manager = nil
	_ = manager.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-c.ended:
		if err != nil {
			return fmt.Errorf("the manager ended with: %w", err)
		}
		return nil
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("the manager did not end"), manager.Process.Kill())
	}
}

func (c *cluster) stop() error {
	err := c.end()
	if c.plane != nil {
		err = errors.Join(err, c.plane.Stop())
	}
	if c.fleet != nil {
		c.fleet.stop()
	}
	return err
}

// processCPU is user and system time, from /proc/PID/stat (in hundredths of a
// second, see proc(5)).
func processCPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// memory of a process in MiB: now, of which so much is mapped from files, and at
// its peak.
func memory(pid int) (now, files, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, 0, err
	}
	figures := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if kib, isSize := strings.CutSuffix(strings.TrimSpace(value), " kB"); isSize {
			if figures[name], err = strconv.ParseFloat(kib, 64); err != nil {
				return 0, 0, 0, err
			}
		}
	}
	return figures["VmRSS"] / 1024, figures["RssFile"] / 1024, figures["VmHWM"] / 1024, nil
}

// managers measures the manager with more and more nodes.
func (b *bench) managers(ctx context.Context) error {
	for _, n := range b.sizes {
		if err := b.managed(ctx, n); err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
	}
	return nil
}

func (b *bench) managed(ctx context.Context, n int) (err error) {
	fmt.Fprintf(os.Stderr, "bench: a manager of %d nodes\n", n)
	c, err := b.newCluster(ctx, n, b.rounds)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	m, err := c.measure(ctx)
	if err != nil {
		return err
	}
	b.out.managed(n, m)
	return nil
}

// limit is measured on the same kubelets, while there is no manager or it is
// stopped: for less than the time limit of a probe that was under way.
func (c *cluster) limit(ctx context.Context) (Cost, error) {
	const handshakes = 5000
	n := min(c.nodes, handshakes)
	l, err := c.b.subject(ctx, "limit", "-nodes", strconv.Itoa(n), "-port", strconv.Itoa(int(c.fleet.Port)), "-ca", c.b.ca(), "-sweeps", strconv.Itoa(handshakes/n))
	return total(l.Sweeps), err
}

// turns has the limit and the manager measured in turns.
func (c *cluster) turns(ctx context.Context) (limit, steady sample, err error) {
	for range c.b.rounds {
		if err := c.manager.Process.Signal(syscall.SIGSTOP); err != nil {
			return limit, steady, err
		}
		l, err := c.limit(ctx)
		if err := errors.Join(err, c.manager.Process.Signal(syscall.SIGCONT)); err != nil {
			return limit, steady, err
		}
		if err := idle(ctx, 2*time.Second)(); err != nil { // what was due meanwhile
			return limit, steady, err
		}
		s, err := c.during(ctx, idle(ctx, turn))
		if err != nil {
			return limit, steady, err
		}
		limit.add(l)
		steady.add(s)
	}
	return limit, steady, nil
}

// managed is what one manager took.
type managed struct {
	first         Cost
	limit, steady sample         // in turns
	written       int            // conditions, in the first sweep
	idle, changed map[string]int // requests, in a window and for one node in a hundred
	newcomers     []float64      // probes of others before a new node has its verdict
	settled, peak float64        // MiB
	files         float64        // MiB of settled that are mapped from the binary
}

// measure a manager from its start until it has settled.
func (c *cluster) measure(ctx context.Context) (m managed, err error) {
	start := time.Now()
	if err := c.apply(ctx, shortest); err != nil {
		return m, err
	}
	if err := c.start(ctx); err != nil {
		return m, err
	}
	if m.first, err = c.during(ctx, func() error { return c.counted(ctx, start.Add(-time.Second), c.nodes, 0) }); err != nil {
		return m, err
	}
	if m.written, err = c.written(ctx, start); err != nil {
		return m, err
	}
	if err := idle(ctx, shortest+2*time.Second)(); err != nil {
		return m, err
	}
	begin := time.Now()
	if err := idle(ctx, window)(); err != nil {
		return m, err
	}
	if m.idle, err = c.requests(begin); err != nil {
		return m, err
	}
	if m.limit, m.steady, err = c.turns(ctx); err != nil {
		return m, err
	}
	for range c.b.rounds {
		n, err := c.newcomer(ctx)
		if err != nil {
			return m, err
		}
		m.newcomers = append(m.newcomers, float64(n))
	}
	if m.changed, err = c.change(ctx, c.nodes/100); err != nil {
		return m, err
	}
	if err := c.apply(ctx, usual); err != nil {
		return m, err
	}
	if err := idle(ctx, time.Minute)(); err != nil {
		return m, err
	}
	m.settled, m.files, m.peak, err = memory(c.manager.Process.Pid)
	return m, err
}

// written waits for a condition on every Node: they may still be on their way.
func (c *cluster) written(ctx context.Context, since time.Time) (n int, err error) {
	err = wait.PollUntilContextTimeout(ctx, time.Second, 20*time.Minute, true, func(context.Context) (bool, error) {
		requests, err := c.requests(since)
		n = requests["patch nodes/*/status"]
		return n >= c.nodes, err
	})
	if err != nil {
		return n, fmt.Errorf("%d conditions are written: %w", n, err)
	}
	return n, nil
}

// change what the last nodes of the fleet serve, and give the requests until
// they are counted.
func (c *cluster) change(ctx context.Context, n int) (map[string]int, error) {
	start := time.Now()
	if err := c.fleet.get(ctx, "/set?defect=bare-node-name&nodes="+strconv.Itoa(n), nil); err != nil {
		return nil, err
	}
	if err := c.counted(ctx, start, c.nodes-n, n); err != nil {
		return nil, err
	}
	return c.requests(start)
}

// newcomer is a node that joins now; it gives the number of probes until its
// condition is there.
func (c *cluster) newcomer(ctx context.Context) (int64, error) {
	before, err := c.fleet.handshakes(ctx)
	if err != nil {
		return 0, err
	}
	w, err := c.client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + nodeName(c.nodes)})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	if err := c.create(ctx, c.nodes, c.nodes+1); err != nil {
		return 0, err
	}
	c.nodes++
	for e := range w.ResultChan() {
		node, ok := e.Object.(*corev1.Node)
		if !ok {
			continue
		}
		if condition := kubelet.Condition(node, v1alpha1.ConditionServingCertificateValid); condition != nil && condition.Status == corev1.ConditionTrue {
			after, err := c.fleet.handshakes(ctx)
			return after - before, err
		}
	}
	return 0, errors.New("the watch ended before the new node had a condition")
}

func listed(requests map[string]int) string {
	var parts []string
	for what, n := range requests {
		parts = append(parts, fmt.Sprintf("%d %s", n, what))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
