// Package alerts tests the rules in config/prometheus with promtool, which is
// how Prometheus itself reads and evaluates them.
package alerts

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// rules as Prometheus reads them from a file, and each of them.
func rules(t *testing.T) (file []byte, all []rule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "config", "prometheus", "prometheus_rule.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	var typed struct {
		Spec struct {
			Groups []struct {
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	for _, into := range []any{&object, &typed} {
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	if file, err = yaml.Marshal(object.Spec); err != nil {
		t.Fatal(err)
	}
	for _, g := range typed.Spec.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return file, all
}

func promtool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", "promtool"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestAlertsFireOnWhatTheyAreFor(t *testing.T) {
	file, _ := rules(t)
	dir := t.TempDir()
	tests, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"rules.yaml": file, "alerts.yaml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, dir, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
	if out := promtool(t, dir, "test", "rules", "alerts.yaml"); !strings.Contains(out, "SUCCESS") {
		t.Error(out)
	}
}

// Each alert fires in a test, says what it is about and what to do, and has its
// page.
func TestEachAlertIsComplete(t *testing.T) {
	const pages = "https://github.com/kubelet-cert-auditor/kubelet-cert-auditor/blob/main/docs/runbooks/"
	tests, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, all := rules(t)
	for _, r := range all {
		if !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.For == "" && !strings.Contains(r.Expr, "increase(") {
			t.Errorf("%s: fires at once", r.Alert)
		}
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		if want := pages + r.Alert + ".md"; r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if _, err := os.Stat(filepath.Join(root, "docs", "runbooks", r.Alert+".md")); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(tests), `ALERTS{alertname="`+r.Alert+`",alertstate="firing"`) {
			t.Errorf("no test in which %s fires", r.Alert)
		}
	}
}
