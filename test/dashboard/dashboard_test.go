// Package dashboard asks a real Prometheus, which scrapes the demo, for every
// panel of config/grafana.
package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

const root = "../.."

type panel struct {
	ID          int    `json:"id"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Type        string `json:"type"`
	Datasource  source `json:"datasource"`
	Targets     []struct {
		Expr       string `json:"expr"`
		Datasource source `json:"datasource"`
	} `json:"targets"`
	GridPos struct{ X, Y, W, H int } `json:"gridPos"`
}

type source struct{ Type, UID string }

func panels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "config", "grafana", "kubelet-cert-auditor.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID    string  `json:"uid"`
		Panels []panel `json:"panels"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || len(d.Panels) < 10 {
		t.Fatalf("uid %q, %d panels", d.UID, len(d.Panels))
	}
	return d.Panels
}

func TestPanelsAreWhole(t *testing.T) {
	all := panels(t)
	known := metricNames()
	ids := map[int]bool{}
	for i, p := range all {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d: title %q, or its id is taken", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, other := range all[:i] {
			if p.overlaps(other) {
				t.Errorf("%q lies on %q", p.Title, other.Title)
			}
		}
		if p.Type != "row" {
			assertShows(t, p, known)
		}
	}
}

func (p panel) overlaps(other panel) bool {
	a, b := p.GridPos, other.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

// assertShows wants a panel to say what it is, and to ask for what there is.
func assertShows(t *testing.T, p panel, known []string) {
	t.Helper()
	if p.Description == "" || len(p.Targets) == 0 {
		t.Errorf("%q has no description or shows nothing", p.Title)
	}
	for _, target := range p.Targets {
		if want := (source{"prometheus", "${datasource}"}); target.Datasource != want || p.Datasource != want {
			t.Errorf("%q asks %v", p.Title, target.Datasource)
		}
		for _, name := range regexp.MustCompile(`\bkubelet_cert_auditor_\w+`).FindAllString(target.Expr, -1) {
			if !slices.Contains(known, strings.TrimSuffix(name, "_bucket")) {
				t.Errorf("%q: there is no metric %s", p.Title, name)
			}
		}
	}
}

func metricNames() []string {
	descs := make(chan *prometheus.Desc, 100)
	metrics.New(clock.RealClock{}, 0).Describe(descs)
	close(descs)
	var names []string
	for desc := range descs {
		_, name, _ := strings.Cut(desc.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		names = append(names, name)
	}
	return names
}

// Grafana's interval, for Prometheus alone.
var interval = strings.NewReplacer("$__rate_interval", "1m")

func TestEveryPanelShowsSomethingOfTheDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	demo := startDemo(ctx, t)
	server := startPrometheus(ctx, t, demo.config)

	// A rate takes two scrapes, and the duration of reviews a review in between.
	awaitValue(ctx, t, server, "kubelet_cert_auditor_ready_to_enforce")
	demo.request(ctx, t)
	awaitValue(ctx, t, server, "increase(kubelet_cert_auditor_csr_review_duration_seconds_count[1m]) > 0")
	if got := query(ctx, t, server, "kubelet_cert_auditor_no_such_metric"); len(got) != 0 {
		t.Fatalf("a metric that is not there has values: %v", got)
	}
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			if !slices.ContainsFunc(query(ctx, t, server, interval.Replace(target.Expr)), func(v float64) bool { return !math.IsNaN(v) }) {
				t.Errorf("%q shows nothing: %s", p.Title, target.Expr)
			}
		}
	}
}

// demo is one that stays up, as it says how to look around.
type demo struct{ kubectl, kubeconfig, config string }

// request has the API server ask the webhook.
func (d demo) request(ctx context.Context, t *testing.T) {
	t.Helper()
	kubectl := exec.CommandContext(ctx, d.kubectl, "--kubeconfig", d.kubeconfig, "create", "--dry-run=server", "-f", "-")
	kubectl.Stdin = strings.NewReader(certs.RequestManifest("dashboard", "any", "any"))
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// startDemo runs the demo until the test ends, and returns when it stays up.
func startDemo(ctx context.Context, t *testing.T) demo {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "demo")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./test/demo")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the demo: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(ctx, binary)
	cmd.Dir = root
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	start(t, cmd)

	found := make(chan demo, 1)
	go func() {
		defer close(found)
		var d demo
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if path, ok := strings.CutPrefix(line, "export KUBECONFIG="); ok {
				d.kubeconfig = path
			}
			if path, ok := strings.CutSuffix(line, " get kubeletcertaudit"); ok {
				d.kubectl = path
			}
			if path, ok := strings.CutPrefix(line, "prometheus --config.file="); ok {
				d.config = path
				found <- d
			}
		}
	}()
	select {
	case d, ok := <-found:
		if !ok {
			t.Fatal("the demo ended")
		}
		return d
	case <-ctx.Done():
		t.Fatal("the demo did not come up")
	}
	return demo{}
}

// startPrometheus returns the address of a Prometheus.
func startPrometheus(ctx context.Context, t *testing.T, config string) string {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("it takes a Prometheus server, such as Debian's package prometheus: %v", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(ctx, binary, "--config.file="+config, "--storage.tsdb.path="+t.TempDir(),
		"--web.listen-address="+address, "--log.level=warn")
	server.Stderr = os.Stderr
	start(t, server)
	return address
}

// start runs a command that the end of the test ends in good order.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		_ = cmd.Wait() // its exit code is that of a signal
	})
}

func awaitValue(ctx context.Context, t *testing.T, server, expr string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		values, err := ask(ctx, server, expr)
		return err == nil && len(values) > 0, nil
	})
	if err != nil {
		t.Fatalf("%s has no value: %v", expr, err)
	}
}

func query(ctx context.Context, t *testing.T, server, expr string) []float64 {
	t.Helper()
	values, err := ask(ctx, server, expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
	}
	return values
}

// ask evaluates an expression now.
func ask(ctx context.Context, server, expr string) ([]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s %w", resp.Status, answer.Error, err)
	}
	var values []float64
	for _, r := range answer.Data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}
