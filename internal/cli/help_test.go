package cli_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
)

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"help"}, {"--help"}, {"-h"}} {
		r := run(t, args...)
		r.answers(t, 0)
		for _, want := range []string{"audit", "verify", "manager", "cleanup", "version", "Exit codes: 0 "} {
			if !strings.Contains(r.out, want) {
				t.Errorf("%v: no %q in\n%s", args, want, r.out)
			}
		}
	}
	for _, command := range []string{"audit", "verify", "manager", "cleanup", "version"} {
		byCommand, byFlag := run(t, "help", command), run(t, command, "--help")
		byCommand.answers(t, 0)
		if byCommand != byFlag || !strings.Contains(byFlag.out, "kubelet-cert-auditor "+command) {
			t.Errorf("%q\n%q", byCommand.out, byFlag.out)
		}
	}
}

func TestVersion(t *testing.T) {
	r := run(t, "version")
	r.answers(t, 0)
	if !regexp.MustCompile(`^kubelet-cert-auditor \S+ \(go\S+, \w+/\w+\)\n$`).MatchString(r.out) {
		t.Errorf("%q", r.out)
	}
}

// The flags are a contract: a new one belongs into this table, and into the
// documents.
func TestFlagsOfEachCommand(t *testing.T) {
	var connection []string
	kubectl := pflag.NewFlagSet("", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(true).AddFlags(kubectl)
	kubectl.VisitAll(func(f *pflag.Flag) {
		if f.Name != "namespace" && f.Name != "cache-dir" { // nodes have none; nothing is cached
			connection = append(connection, f.Name)
		}
	})
	if !slices.Contains(connection, "kubeconfig") || !slices.Contains(connection, "context") {
		t.Fatal(connection)
	}
	for command, own := range map[string]string{
		"audit": "filename kubelet-certificate-authority kubelet-preferred-address-types kubelet-port timeout concurrency" +
			" selector what allow-local-addresses output watch watch-interval",
		"verify": "node address cert kubelet-certificate-authority kubelet-port what output",
		"manager": "namespace leader-elect metrics-bind-address health-probe-bind-address concurrency allow-local-addresses" +
			" cluster-ca-file kube-api-qps kube-api-burst max-failing-series webhook-bind-address webhook-cert-dir webhook-self-signed" +
			" zap-devel zap-encoder zap-log-level zap-stacktrace-level zap-time-encoding",
		"cleanup": "",
		"version": "",
	} {
		want := append(strings.Fields(own), "help")
		if command != "verify" && command != "version" {
			want = append(want, connection...)
		}
		var got []string
		_, flags, _ := strings.Cut(run(t, command, "--help").out, "\nFlags:\n")
		for _, match := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(flags, -1) {
			got = append(got, match[1])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v\nwant %v", command, got, want)
		}
	}
}

func TestDefaultsAreThoseOfKubeAPIServer(t *testing.T) {
	help := run(t, "audit", "--help").out
	for _, want := range []string{
		"(default [Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP])", "(default 10250)", "(default 10s)",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("no %q in\n%s", want, help)
		}
	}
}

// An error is never an exit code that means an answer.
func TestTheCodesOfAnswersAndErrorsDiffer(t *testing.T) {
	codes := []int{cli.ExitReady, cli.ExitNotReady, cli.ExitUnknown, cli.ExitCannotRun}
	if !slices.Equal(codes, []int{0, 1, 2, 3}) {
		t.Errorf("published: 0, 1, 2, 3; here: %v", codes)
	}
}
