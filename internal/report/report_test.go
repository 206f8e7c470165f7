package report_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cluster is a Prober, and the Nodes whose kubelets it looks at.
type cluster struct {
	world *certs.World
	nodes []*corev1.Node
	shows map[string]verdict.Observation // by address
	opts  audit.Options
}

func newCluster() *cluster {
	c := &cluster{world: certs.NewWorld(now), shows: map[string]verdict.Observation{}}
	bundle := verdict.Bundle{Source: "file /ca.crt", SHA256: strings.Repeat("0123456789abcdef", 4), Roots: x509.NewCertPool()}
	bundle.Roots.AddCert(c.world.CA.Certificate)
	bundle.Certificates = []*x509.Certificate{c.world.CA.Certificate}
	c.opts = audit.Options{
		Prober: c, Concurrency: 1, What: verdict.WhatBoth, Clock: clocktesting.NewFakePassiveClock(now),
		Endpoints: kubelet.Options{PreferredAddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP}},
		Policy:    verdict.Policy{Bundle: bundle},
	}
	return c
}

func (c *cluster) Probe(_ context.Context, e verdict.Endpoint, _ time.Duration) (verdict.Observation, error) {
	return c.shows[e.Host], nil
}

// add makes a node with the good certificate, as changed.
func (c *cluster) add(name string, change func(*x509.Certificate)) *cluster {
	id := certs.Identity{NodeName: name, IP: netip.AddrFrom4([4]byte{10, 0, 0, byte(len(c.nodes) + 1)})}
	c.nodes = append(c.nodes, fleet.Node(name, id.IP, 10250))
	template := certs.Template(id)
	if change != nil {
		change(template)
	}
	c.shows[id.IP.String()] = verdict.Observation{
		Outcome: verdict.OutcomeCompleted, KeyProven: true, TLSVersion: 0x0304, Duration: 7 * time.Millisecond,
		Chain: []*x509.Certificate{c.world.CA.Issue(template).Leaf()},
	}
	return c
}

// mute makes a node that does not answer.
func (c *cluster) mute(name string) *cluster {
	c.add(name, nil)
	c.shows[c.nodes[len(c.nodes)-1].Status.Addresses[1].Address] = verdict.Observation{Outcome: verdict.OutcomeTimeout, Duration: time.Second}
	return c
}

func (c *cluster) with(change func(*audit.Options)) *cluster {
	change(&c.opts)
	return c
}

func (c *cluster) run() *audit.Report { return audit.Run(context.Background(), c.nodes, c.opts) }

func bare(t *x509.Certificate) { t.Subject.CommonName = t.DNSNames[0] }

func render(t *testing.T, r *audit.Report, format report.Format) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Render(&b, r, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func assertLines(t *testing.T, got string, want ...string) {
	t.Helper()
	if lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n"); !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

const pages = "What to do, by reason: https://github.com/kubelet-cert-auditor/kubelet-cert-auditor/blob/main/docs/runbooks/REASON.md"

// short is a node's message as a table shows it: the pages are named once.
func short(t *testing.T, n audit.Node) string {
	t.Helper()
	text, page, named := strings.Cut(n.Message, " See https://")
	if named != (n.Status != "True") || named && !strings.HasSuffix(page, "/docs/runbooks/"+string(n.Reason)+".md") {
		t.Errorf("%s %s: %s", n.Status, n.Reason, n.Message)
	}
	return text
}

func TestTable(t *testing.T) {
	r := newCluster().add("worker-1", nil).add("worker-2", bare).add("worker-3", bare).mute("worker-4").run()
	assertLines(t, render(t, r, report.Table),
		`NOT READY: of 4 nodes 1 are verified, 2 would break once the CN check is on, 0 are refused today, 1 are unknown.`,
		`Trust bundle: file /ca.crt, 1 certificate, sha256 0123456789abcdef.`,
		`Finding BareNodeNames: the common name is the bare node name, as k3s, RKE2 and kops issue it; that is the distribution's to change, not the nodes' (worker-2, worker-3)`,
		pages,
		``,
		`NAME      STATUS   REASON              ADDRESS         MESSAGE`,
		`worker-2  False    CommonNameMismatch  10.0.0.2:10250  `+short(t, r.Nodes[0]),
		`worker-3  False    CommonNameMismatch  10.0.0.3:10250  `+short(t, r.Nodes[1]),
		`worker-4  Unknown  ProbeTimeout        10.0.0.4:10250  `+short(t, r.Nodes[2]),
		`worker-1  True     Verified            10.0.0.1:10250  `+short(t, r.Nodes[3]))
}

func TestWide(t *testing.T) {
	c := newCluster().add("worker-1", nil).mute("worker-2").add("worker-3", nil)
	c.nodes[2].Status.Addresses = nil
	r := c.run()
	assertLines(t, render(t, r, report.Wide),
		`UNKNOWN: of 3 nodes 1 are verified, 0 would break once the CN check is on, 0 are refused today, 2 are unknown.`,
		`Trust bundle: file /ca.crt, 1 certificate, sha256 0123456789abcdef.`,
		pages,
		``,
		`NAME      STATUS   REASON        ADDRESS         COMMON NAME             ISSUER           NOT AFTER             TLS      TIME  MESSAGE`,
		`worker-2  Unknown  ProbeTimeout  10.0.0.2:10250  -                       -                -                     -        1s    `+short(t, r.Nodes[0]),
		`worker-3  Unknown  NoAddress     -               -                       -                -                     -        0s    `+short(t, r.Nodes[1]),
		`worker-1  True     Verified      10.0.0.1:10250  "system:node:worker-1"  "CN=kubernetes"  2027-03-01T12:00:00Z  TLS 1.3  7ms   `+short(t, r.Nodes[2]))
}

// head is what stands above the table of nodes.
func head(t *testing.T, r *audit.Report) string {
	t.Helper()
	text, _, _ := strings.Cut(render(t, r, report.Table), "\n\n")
	return text
}

func TestHead(t *testing.T) {
	const count = ": of 1 node 1 are verified, 0 would break once the CN check is on, 0 are refused today, 0 are unknown."
	const bundle = "Trust bundle: file /ca.crt, 1 certificate, sha256 0123456789abcdef."
	for name, c := range map[string]struct {
		cluster *cluster
		want    []string
	}{
		"the answer leads": {newCluster().add("a", nil), []string{"READY" + count, bundle}},
		"nobody there": {
			newCluster(), []string{"UNKNOWN: of 0 nodes 0 are verified, 0 would break once the CN check is on, 0 are refused today, 0 are unknown.", bundle},
		},
		"a selection says so on the first line": {
			newCluster().add("a", nil).with(func(o *audit.Options) { o.Selector, o.Excluded = "role=worker", 2 }),
			[]string{"Only the nodes that match role=worker; 2 others were left out, but kube-apiserver's switch is for all.", "READY" + count, bundle},
		},
		"the cluster CA by default": {
			newCluster().add("a", nil).with(func(o *audit.Options) { o.ClusterCA = true }),
			[]string{"READY" + count, bundle, "This is the cluster CA: the API server's own --kubelet-certificate-authority was not read."},
		},
		"--what tls is about today": {
			newCluster().add("a", bare).with(func(o *audit.Options) { o.What = verdict.WhatTLS }),
			[]string{
				"NOT READY: of 1 node 0 are verified, 1 would break once the CN check is on, 0 are refused today, 0 are unknown.",
				"Without the common name (--what tls) the answer is Ready: this is about today, not about turning the check on.", bundle, pages,
			},
		},
		"--what cn": {
			newCluster().add("a", func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour) }).
				with(func(o *audit.Options) { o.What = verdict.WhatCN }),
			[]string{
				"NOT READY: of 1 node 0 are verified, 0 would break once the CN check is on, 1 are refused today, 0 are unknown.",
				"By the common name alone (--what cn) the answer is Ready.", bundle, pages,
			},
		},
		"no CA": {
			newCluster().add("a", nil).with(func(o *audit.Options) { o.Policy.Bundle = verdict.Bundle{} }),
			[]string{
				"UNKNOWN: of 1 node 0 are verified, 0 would break once the CN check is on, 0 are refused today, 1 are unknown.",
				"No CA was given, so no chain was verified: pass --kubelet-certificate-authority.", pages,
			},
		},
		"warnings about the bundle": {
			newCluster().add("a", nil).with(func(o *audit.Options) { o.Policy.Bundle.Warnings = []string{"block 2 was skipped"} }),
			[]string{"READY" + count, bundle, "Warning: trust bundle: block 2 was skipped"},
		},
	} {
		t.Run(name, func(t *testing.T) { assertLines(t, head(t, c.cluster.run()), c.want...) })
	}
}

func TestInterruptedSweepSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := newCluster().add("a", nil)
	if got := head(t, audit.Run(ctx, c.nodes, c.opts)); !strings.Contains(got, "Interrupted") || !strings.Contains(got, "UNKNOWN:") {
		t.Error(got)
	}
}

func TestFindingsOfManyNodesAreCutShort(t *testing.T) {
	c := newCluster()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		c.add(name, bare)
	}
	r := c.run()
	if got := head(t, r); !strings.Contains(got, "(6 nodes: a, b, c, d, e, ...)") {
		t.Error(got)
	}
	if len(r.Findings[0].Nodes) != 6 {
		t.Errorf("the report itself lists %v", r.Findings[0].Nodes)
	}
}

func TestJSONIsTheReport(t *testing.T) {
	r := newCluster().add("a", nil).add("b", func(c *x509.Certificate) { c.Subject.CommonName = "<b> & co" }).run()
	text := render(t, r, report.JSON)
	want, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(decode(t, []byte(text)), decode(t, want)) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if !strings.HasPrefix(text, "{\n  \"apiVersion\": \"kubeletcert.dev/v1alpha1\",\n  \"kind\": \"AuditReport\",\n") {
		t.Errorf("it begins %.80s", text)
	}
	if !strings.Contains(text, "<b> & co") {
		t.Error("it is escaped for HTML")
	}
}

func decode(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestYAMLEqualsJSON(t *testing.T) {
	r := hostileCluster("\x1b[2J\u009b2J\u202e\u2028\uffff\x7f\U000e0041\n\ttrue: no # ").add("on", nil).mute("null").run() // words that YAML takes for others
	fromYAML, err := yaml.YAMLToJSON([]byte(render(t, r, report.YAML)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := decode(t, fromYAML), decode(t, []byte(render(t, r, report.JSON))); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestUnknownFormat(t *testing.T) {
	var b bytes.Buffer
	err := report.Render(&b, newCluster().run(), "xml")
	if err == nil || !strings.Contains(err.Error(), `"xml"`) || b.Len() != 0 {
		t.Errorf("error %v after %q", err, b.String())
	}
}

func TestEveryFormatIsRendered(t *testing.T) {
	r := newCluster().add("a", nil).run()
	for _, format := range report.Formats() {
		if got := render(t, r, report.Format(format)); !strings.Contains(got, "Verified") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// full is a disk with room for some bytes.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

var errFull = errors.New("no space left on device")

func TestFailureToWriteIsAnError(t *testing.T) {
	r := newCluster().add("a", nil).run()
	for _, format := range report.Formats() {
		size := len(render(t, r, report.Format(format)))
		for _, left := range []int{0, size - 1} {
			if err := report.Render(&full{left}, r, report.Format(format)); !errors.Is(err, errFull) {
				t.Errorf("%s, after %d bytes: %v", format, left, err)
			}
		}
	}
}
