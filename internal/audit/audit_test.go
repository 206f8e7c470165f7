package audit_test

import (
	"context"
	"crypto/x509"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	now   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	world = certs.NewWorld(now)
)

func bundleOf(cas ...*certs.CA) verdict.Bundle {
	b := verdict.Bundle{Roots: x509.NewCertPool(), Source: "test", SHA256: "5ha"}
	for _, ca := range cas {
		b.Roots.AddCert(ca.Certificate)
		b.Certificates = append(b.Certificates, ca.Certificate)
	}
	return b
}

// options probe by the InternalIP and judge by the world's CA.
func options(p audit.Prober) audit.Options {
	return audit.Options{
		Prober:    p,
		Endpoints: kubelet.Options{PreferredAddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}},
		Policy:    verdict.Policy{Bundle: bundleOf(world.CA)},
		Timeout:   10 * time.Second, Concurrency: 8, What: verdict.WhatBoth,
		Clock: clocktesting.NewFakePassiveClock(now),
	}
}

func clockAt(rfc3339 string) clock.PassiveClock {
	at, err := time.Parse(time.RFC3339, rfc3339)
	if err != nil {
		panic(err)
	}
	return clocktesting.NewFakePassiveClock(at)
}

// proberFunc is a Prober made of a function.
type proberFunc func(ctx context.Context, e verdict.Endpoint) (verdict.Observation, error)

func (f proberFunc) Probe(ctx context.Context, e verdict.Endpoint, _ time.Duration) (verdict.Observation, error) {
	return f(ctx, e)
}

// cluster is some Nodes, and a Prober that gives what their kubelets show.
type cluster struct {
	nodes []*corev1.Node
	mu    sync.Mutex
	shows map[string]verdict.Observation // by address
}

func (c *cluster) Probe(_ context.Context, e verdict.Endpoint, _ time.Duration) (verdict.Observation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shows[e.Host], nil
}

// id is that of the next node.
func (c *cluster) id(name string) certs.Identity {
	return certs.Identity{NodeName: name, IP: netip.AddrFrom4([4]byte{10, 0, 0, byte(len(c.nodes) + 1)})}
}

// add makes a node whose handshake completes.
func (c *cluster) add(id certs.Identity, served certs.Served) {
	obs := verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true}
	for _, der := range served.Chain {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			panic(err)
		}
		obs.Chain = append(obs.Chain, certificate)
	}
	c.shows[id.IP.String()] = obs
	c.nodes = append(c.nodes, fleet.Node(id.NodeName, id.IP, 10250))
}

// clusterOf makes nodes from "name defect" each.
func clusterOf(nodes ...string) *cluster {
	c := &cluster{shows: map[string]verdict.Observation{}}
	for _, n := range nodes {
		name, defect, _ := strings.Cut(n, " ")
		id := c.id(name)
		c.add(id, defectOf(defect).Serve(world, id))
	}
	return c
}

func defectOf(name string) certs.Defect {
	for _, d := range certs.Defects() {
		if d.Name == name {
			return d
		}
	}
	panic("no defect " + name)
}

// chosen is what is left of Nodes for a sweep over all of them.
func chosen(t *testing.T, nodes []*corev1.Node) []*corev1.Node {
	t.Helper()
	c := audit.Chosen{Selector: labels.Everything()}
	for _, n := range nodes {
		if err := c.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	return c.Nodes
}

// What a sweep of very many nodes gathers is words, not certificates.
func TestCertificatesThatPassAreNotKept(t *testing.T) {
	c := clusterOf("a good", "b good", "c good")
	var leaves []weak.Pointer[x509.Certificate]
	opts := options(proberFunc(func(_ context.Context, e verdict.Endpoint) (verdict.Observation, error) {
		runtime.GC()
		for _, before := range leaves {
			if kept := before.Value(); kept != nil {
				t.Errorf("at %s, that of %s is", e.Host, kept.Subject.CommonName)
			}
		}
		parsed, err := x509.ParseCertificate(c.shows[e.Host].Chain[0].Raw)
		if err != nil {
			return verdict.Observation{}, err
		}
		leaves = append(leaves, weak.Make(parsed))
		return verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: []*x509.Certificate{parsed}}, nil
	}))
	opts.Concurrency = 1
	if r := audit.Run(t.Context(), c.nodes, opts); r.Summary.Verified != 3 {
		t.Errorf("%d nodes are verified", r.Summary.Verified)
	}
}

// everyDefect is a node of each defect, named after it, and the report of a
// sweep over real sockets. The cluster then shows the same once more.
var everyDefect = sync.OnceValues(func() (*cluster, *audit.Report) {
	f, err := fleet.Start()
	if err != nil {
		panic(err)
	}
	c, prober, silent := clusterOf(), &probe.Prober{AllowLocalAddresses: true}, map[string]bool{}
	for _, m := range fleet.Populate(f, world, certs.Defects(), len(certs.Defects())) {
		c.nodes = append(c.nodes, m.Node)
		silent[m.IP.String()] = m.Defect.Reason == v1alpha1.ReasonProbeTimeout
	}
	report := audit.Run(context.Background(), c.nodes, options(proberFunc(func(ctx context.Context, e verdict.Endpoint) (verdict.Observation, error) {
		timeout := 10 * time.Second
		if silent[e.Host] {
			timeout = 50 * time.Millisecond
		}
		obs, err := prober.Probe(ctx, e, timeout)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shows[e.Host] = obs
		return obs, err
	})))
	if err := f.Close(); err != nil {
		panic(err)
	}
	return c, report
})

func TestEveryDefectIsReportedAsTheTableSays(t *testing.T) {
	_, r := everyDefect()
	if len(r.Nodes) != len(certs.Defects()) || r.Summary.Total != len(r.Nodes) {
		t.Fatalf("%d nodes, total %d, of %d", len(r.Nodes), r.Summary.Total, len(certs.Defects()))
	}
	for _, n := range r.Nodes {
		d := defectOf(n.Name)
		if n.Status != d.Status || n.Reason != d.Reason {
			t.Errorf("%s: %s %s, want %s %s: %s", n.Name, n.Status, n.Reason, d.Status, d.Reason, n.Message)
		}
		if (n.Certificate != nil) != d.Captured() {
			t.Errorf("%s: certificate %+v, want one: %v", n.Name, n.Certificate, d.Captured())
		}
		if n.AddressType != "InternalIP" || !strings.HasPrefix(n.Address, "127.") || n.Port == 0 {
			t.Errorf("%s: dialled %s %s %d", n.Name, n.AddressType, n.Address, n.Port)
		}
		if d.Captured() && d.KeyProven() {
			assertChecks(t, n, d.Fails)
		}
	}
	if r.Readiness != verdict.NotReady || r.Answer != verdict.NotReady {
		t.Errorf("%s, answer %s", r.Readiness, r.Answer)
	}
}

func assertChecks(t *testing.T, n audit.Node, want []v1alpha1.CheckName) {
	t.Helper()
	var all, failing []v1alpha1.CheckName
	for _, c := range n.Checks {
		all = append(all, c.Name)
		if c.Result == "Fail" {
			failing = append(failing, c.Name)
		}
	}
	if !slices.Equal(all, v1alpha1.CheckNames()) || !slices.Equal(failing, want) {
		t.Errorf("%s: failing checks %v of %v, want %v", n.Name, failing, all, want)
	}
}

func TestSummaryAddsUp(t *testing.T) {
	_, r := everyDefect()
	groups, checks := map[string]int{}, map[v1alpha1.CheckName]map[string]int{}
	for _, name := range v1alpha1.CheckNames() {
		checks[name] = map[string]int{"Pass": 0, "Fail": 0, "NotRun": 0}
	}
	for _, n := range r.Nodes {
		groups[groupOf(n)]++
		for _, c := range n.Checks {
			checks[c.Name][c.Result]++
		}
	}
	s := r.Summary
	got := map[string]int{
		"verified": s.Verified, "breaksWhenEnabled": s.BreaksWhenEnabled, "rejectedToday": s.RejectedToday, "unknown": s.Unknown,
	}
	if !maps.Equal(got, groups) || s.Total != len(r.Nodes) || s.Excluded != 0 {
		t.Errorf("%v of %d, want %v", got, s.Total, groups)
	}
	for name, want := range checks {
		got := map[string]int{"Pass": s.Checks[name].Pass, "Fail": s.Checks[name].Fail, "NotRun": s.Checks[name].NotRun}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// groupOf is the definition, read off a node's published words.
func groupOf(n audit.Node) string {
	switch {
	case n.Status == "True":
		return "verified"
	case n.Status == "Unknown":
		return "unknown"
	case n.Reason == v1alpha1.ReasonCommonNameMismatch:
		return "breaksWhenEnabled"
	}
	return "rejectedToday"
}

func TestNodesAreOrderedWorstFirstThenByName(t *testing.T) {
	c := clusterOf("z good", "a good", "m bare-node-name", "b bare-node-name", "y unknown-ca", "c expired", "x good")
	delete(c.shows, "10.0.0.7") // x was not reached
	want := []string{"c", "y", "b", "m", "x", "a", "z"}
	if got := names(audit.Run(t.Context(), c.nodes, options(c))); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func names(r *audit.Report) []string {
	list := make([]string, 0, len(r.Nodes))
	for _, n := range r.Nodes {
		list = append(list, n.Name)
	}
	return list
}

func TestWithoutACANothingIsReady(t *testing.T) {
	c, _ := everyDefect()
	for _, what := range []verdict.What{verdict.WhatBoth, verdict.WhatTLS, verdict.WhatCN} {
		for _, nodes := range [][]*corev1.Node{c.nodes, c.nodes[:1]} { // the first one is good
			opts := options(c)
			opts.Policy.Bundle, opts.What = verdict.Bundle{}, what
			r := audit.Run(t.Context(), nodes, opts)
			if r.Answer == verdict.Ready || r.Readiness == verdict.Ready {
				t.Errorf("--what %s: %s, answer %s", what, r.Readiness, r.Answer)
			}
			for _, n := range r.Nodes {
				if n.Status == "True" || n.Checks[0].Name != v1alpha1.CheckChain || n.Checks[0].Result == "Pass" {
					t.Errorf("--what %s: %s is %s with %+v", what, n.Name, n.Status, n.Checks)
				}
			}
		}
	}
	opts := options(c)
	opts.Policy.Bundle = verdict.Bundle{}
	good := audit.Run(t.Context(), c.nodes[:1], opts)
	if n := good.Nodes[0]; n.Reason != v1alpha1.ReasonNoTrustBundle || n.Checks[0].Result != "NotRun" || good.Readiness != verdict.ReadinessUnknown {
		t.Errorf("%s: %s %+v", good.Readiness, n.Reason, n.Checks)
	}
}

func TestAnswerIsForTheChosenChecks(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []string
		want  map[verdict.What]verdict.Readiness
	}{
		"all good": {
			[]string{"a good"},
			map[verdict.What]verdict.Readiness{verdict.WhatBoth: verdict.Ready, verdict.WhatTLS: verdict.Ready, verdict.WhatCN: verdict.Ready},
		},
		"breaks when enabled": {
			[]string{"a good", "b bare-node-name"},
			map[verdict.What]verdict.Readiness{verdict.WhatBoth: verdict.NotReady, verdict.WhatTLS: verdict.Ready, verdict.WhatCN: verdict.NotReady},
		},
		"expired": {
			[]string{"a good", "b expired"},
			map[verdict.What]verdict.Readiness{verdict.WhatBoth: verdict.NotReady, verdict.WhatTLS: verdict.NotReady, verdict.WhatCN: verdict.Ready},
		},
		"foreign CA": {
			[]string{"a good", "b unknown-ca"},
			map[verdict.What]verdict.Readiness{
				verdict.WhatBoth: verdict.NotReady, verdict.WhatTLS: verdict.NotReady, verdict.WhatCN: verdict.ReadinessUnknown},
		},
		"no node": {
			nil, map[verdict.What]verdict.Readiness{
				verdict.WhatBoth: verdict.ReadinessUnknown, verdict.WhatTLS: verdict.ReadinessUnknown, verdict.WhatCN: verdict.ReadinessUnknown},
		},
	} {
		for what, want := range c.want {
			k := clusterOf(c.nodes...)
			opts := options(k)
			opts.What = what
			r := audit.Run(t.Context(), k.nodes, opts)
			if r.Answer != want || r.Readiness != c.want[verdict.WhatBoth] {
				t.Errorf("%s, --what %s: answer %s of a cluster that is %s, want %s of one that is %s",
					name, what, r.Answer, r.Readiness, want, c.want[verdict.WhatBoth])
			}
		}
	}
}

func TestSelectionIsAnsweredForAndSaysSo(t *testing.T) {
	c := clusterOf("a good")
	opts := options(c)
	opts.Selector, opts.Excluded = "role=worker", 3
	r := audit.Run(t.Context(), c.nodes, opts)
	if r.Selector != "role=worker" || r.Summary.Excluded != 3 || r.Summary.Total != 1 || r.Readiness != verdict.Ready || r.Answer != verdict.Ready {
		t.Errorf("%s of %q, %+v", r.Readiness, r.Selector, r.Summary)
	}
}

func TestNodeWithoutAnAddressIsNotDialled(t *testing.T) {
	node := fleet.Node("a", netip.MustParseAddr("10.0.0.1"), 10250)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP}, {Type: corev1.NodeHostName, Address: "a"}}
	r := audit.Run(t.Context(), []*corev1.Node{node}, options(proberFunc(func(context.Context, verdict.Endpoint) (verdict.Observation, error) {
		t.Error("dialled")
		return verdict.Observation{}, nil
	})))
	if n := r.Nodes[0]; n.Status != "Unknown" || n.Reason != v1alpha1.ReasonNoAddress || r.Readiness != verdict.ReadinessUnknown {
		t.Errorf("%s %s, %s", n.Status, n.Reason, r.Readiness)
	}
}

func TestInterruptedSweepSaysWhatIsKnownSoFar(t *testing.T) {
	c := clusterOf("a good", "b good", "c good", "d good", "e good")
	ctx, cancel := context.WithCancel(t.Context())
	probes := 0
	opts := options(proberFunc(func(ctx context.Context, e verdict.Endpoint) (verdict.Observation, error) {
		if probes++; probes == 3 {
			cancel() // in the middle of a probe
			return verdict.Observation{}, ctx.Err()
		}
		return c.Probe(ctx, e, 0)
	}))
	opts.Concurrency = 1
	r := audit.Run(ctx, c.nodes, opts)
	if probes != 3 || !r.Interrupted {
		t.Errorf("%d probes, want 3; interrupted %v", probes, r.Interrupted)
	}
	if r.Readiness != verdict.ReadinessUnknown || r.Answer != verdict.ReadinessUnknown || len(r.Nodes) != 5 {
		t.Errorf("%s, answer %s, %d nodes", r.Readiness, r.Answer, len(r.Nodes))
	}
	for _, n := range r.Nodes {
		want := v1alpha1.ReasonNotProbedYet
		if n.Name == "a" || n.Name == "b" {
			want = v1alpha1.ReasonVerified
		}
		if n.Reason != want {
			t.Errorf("%s: %s, want %s", n.Name, n.Reason, want)
		}
	}
	if whole := audit.Run(t.Context(), c.nodes, options(c)); whole.Interrupted {
		t.Error("a whole sweep says that it was interrupted")
	}
}

// Ten probes of a second each, in time that a bubble makes up.
func TestConcurrencyIsBounded(t *testing.T) {
	for concurrency, want := range map[int]time.Duration{
		-1: 10 * time.Second, 0: 10 * time.Second, 1: 10 * time.Second, 3: 4 * time.Second, 10: time.Second, 1000: time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := clusterOf("a good", "b good", "c good", "d good", "e good", "f good", "g good", "h good", "i good", "j good")
			var steps atomic.Int64
			opts := options(proberFunc(func(ctx context.Context, e verdict.Endpoint) (verdict.Observation, error) {
				time.Sleep(time.Second)
				return c.Probe(ctx, e, 0)
			}))
			opts.Concurrency, opts.Progress = concurrency, func() { steps.Add(1) }
			start := time.Now()
			r := audit.Run(t.Context(), c.nodes, opts)
			if took := time.Since(start); took != want || r.Readiness != verdict.Ready || steps.Load() != 10 {
				t.Errorf("%d at a time: %s, want %s; %s after %d steps", concurrency, took, want, r.Readiness, steps.Load())
			}
		})
	}
}

// What one sweep has verified the next one need not verify again: here the
// signature is broken in between, which only a look at it would show.
func TestPathsSpareTheNextSweep(t *testing.T) {
	id := certs.Identity{NodeName: "a", IP: netip.MustParseAddr("10.0.0.1")}
	leaf := *world.CA.Issue(certs.Template(id)).Leaf()
	nodes := []*corev1.Node{fleet.Node(id.NodeName, id.IP, 10250)}
	sweep := func(paths *audit.Paths) string {
		opts := options(proberFunc(func(context.Context, verdict.Endpoint) (verdict.Observation, error) {
			shown := leaf
			return verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: []*x509.Certificate{&shown}}, nil
		}))
		opts.Policy.Bundle.SHA256, opts.Paths = "of the world's CA", paths
		return string(audit.Run(t.Context(), nodes, opts).Nodes[0].Reason)
	}
	paths := &audit.Paths{}
	if got := sweep(paths); got != "Verified" {
		t.Fatal(got)
	}
	leaf.Signature = slices.Clone(leaf.Signature)
	leaf.Signature[8] ^= 1
	if known, alone := sweep(paths), sweep(nil); known != "Verified" || alone == "Verified" {
		t.Errorf("%s with the path, %s without", known, alone)
	}
}
