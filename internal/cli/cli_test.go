package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick is far above what anything here takes, and far below any time limit of
// the product that a test must not wait for.
const quick = 8 * time.Second

// result is what a shell sees of a command; err is what main.go prints.
type result struct {
	code        int
	out, stderr string
	err         error
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	return runWith(t.Context(), strings.NewReader(""), args...)
}

func runWith(ctx context.Context, in io.Reader, args ...string) result {
	var out, stderr bytes.Buffer
	code, err := cli.Run(ctx, args, cli.Streams{In: in, Out: &out, Err: &stderr})
	return result{code, out.String(), stderr.String(), err}
}

// answers checks that a command gave an answer, and nothing but an answer.
func (r result) answers(t *testing.T, code int) {
	t.Helper()
	if r.code != code || r.err != nil || r.out == "" || r.stderr != "" {
		t.Errorf("exit code %d, error %v, stderr %q; want exit code %d\n%s", r.code, r.err, r.stderr, code, r.out)
	}
}

// refuses checks that a command could not run and says why, in one line that
// holds all of want.
func (r result) refuses(t *testing.T, want ...string) {
	t.Helper()
	if r.code != cli.ExitCannotRun || r.err == nil || r.out != "" || r.stderr != "" {
		t.Fatalf("exit code %d, error %v, stdout %q, stderr %q", r.code, r.err, r.out, r.stderr)
	}
	text := r.err.Error()
	if strings.ContainsAny(text, "\n\r\x1b") {
		t.Errorf("not one clean line: %q", text)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q lacks %q", text, w)
		}
	}
}

// cluster is simulated kubelets, and the files that an audit of them reads.
type cluster struct {
	fleet *fleet.Fleet
	world *certs.World
	list  corev1.NodeList
	dir   string
	ca    string
}

func newCluster(t *testing.T, defects ...string) *cluster {
	t.Helper()
	f, err := fleet.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{fleet: f, world: certs.NewWorld(time.Now()), dir: t.TempDir()}
	c.list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}
	c.ca = writeFile(t, c.dir, "ca.crt", c.world.CA.PEM())
	for _, name := range defects {
		c.add(defectOf(t, name))
	}
	return c
}

func defectOf(t *testing.T, name string) certs.Defect {
	t.Helper()
	for _, d := range certs.Defects() {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("there is no defect %q", name)
	return certs.Defect{}
}

// add sets a node that bears the defect's name, and gives what it serves.
func (c *cluster) add(d certs.Defect) certs.Served {
	ip := fleet.Address(len(c.list.Items))
	b := fleet.BehaviourOf(c.world, d, certs.Identity{NodeName: d.Name, IP: ip})
	c.fleet.Set(ip, b)
	c.list.Items = append(c.list.Items, *fleet.Node(d.Name, ip, c.fleet.PortOf(ip)))
	return b.Served
}

// newInterruptible is a cluster that an audit with --concurrency=1 comes to a
// stop in: a first node, as many silent ones as may be waited for, and a last
// one, whose turn does not come. Once each silent one has a connection, the
// first is done.
func newInterruptible(t *testing.T, first, last string) *cluster {
	t.Helper()
	c := newCluster(t, first)
	for i := range probe.MostOpen {
		silent := defectOf(t, "silent")
		silent.Name = fmt.Sprintf("silent-%d", i)
		c.add(silent)
	}
	c.add(defectOf(t, last))
	return c
}

// stuck waits until it has come to a stop.
func (c *cluster) stuck(t *testing.T) {
	t.Helper()
	waitFor(t, "a connection to each silent node", func() bool {
		for i := range probe.MostOpen {
			if c.counts(1+i).Connections == 0 {
				return false
			}
		}
		return true
	})
}

// counts is what arrived at the i-th node.
func (c *cluster) counts(i int) fleet.Counts { return c.fleet.Counts(fleet.Address(i)) }

// args of an audit without a CA.
func (c *cluster) args(t *testing.T, more ...string) []string {
	t.Helper()
	text, err := json.Marshal(c.list)
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{
		"audit", "-f", writeFile(t, c.dir, "nodes.json", text),
		"--allow-local-addresses", "--kubelet-preferred-address-types=InternalIP",
	}, more...)
}

func (c *cluster) audit(t *testing.T, more ...string) result {
	t.Helper()
	return run(t, c.args(t, append(more, "--kubelet-certificate-authority", c.ca)...)...)
}

func writeFile(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeconfig of one context "here" with the server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	return writeFile(t, t.TempDir(), "kubeconfig", []byte(`{"apiVersion":"v1","kind":"Config","current-context":"here",
		"clusters":[{"name":"c","cluster":{"server":"`+server+`"}}],"users":[{"name":"u","user":{}}],
		"contexts":[{"name":"here","context":{"cluster":"c","user":"u"}}]}`))
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// waitFor polls, since the fleet counts and does not tell.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(quick)
	for !condition() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Errorf("never saw %s", what)
			return
		}
	}
}
