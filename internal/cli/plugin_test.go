package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
)

// called runs a command under another name of the binary.
func called(t *testing.T, program string, args ...string) result {
	t.Helper()
	var out, stderr bytes.Buffer
	code, err := cli.Run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &stderr, Program: program})
	return result{code, out.String(), stderr.String(), err}
}

func TestPluginSpeaksAsKubectl(t *testing.T) {
	for _, program := range []string{"/usr/local/bin/kubectl-kubelet_certs", "kubectl-kubelet_certs", "C:/krew/bin/kubectl-kubelet_certs.exe"} {
		for _, args := range [][]string{nil, {"help", "audit"}, {"audit", "--help"}, {"verify", "--help"}} {
			r := called(t, program, args...)
			r.answers(t, cli.ExitReady)
			_, usage, _ := strings.Cut(r.out, "Usage:")
			if !strings.Contains(usage, "  kubectl kubelet-certs ") || strings.Contains(usage, "kubelet-cert-auditor ") || strings.Contains(usage, "  manager ") ||
				strings.Contains(usage, "  completion ") {
				t.Errorf("%s %v:\n%s", program, args, r.out)
			}
		}
	}
	for _, program := range []string{"", "kubelet-cert-auditor", "kubectl-kubelet_certs-old"} {
		r := called(t, program, "audit", "--help")
		if !strings.Contains(r.out, "  kubelet-cert-auditor audit ") || strings.Contains(r.out, "kubectl kubelet-certs") {
			t.Errorf("%s:\n%s", program, r.out)
		}
	}
}

func TestPluginAnswersAsTheProgram(t *testing.T) {
	c := newCluster(t, "good", "bare-node-name")
	r := called(t, "kubectl-kubelet_certs", c.args(t, "--kubelet-certificate-authority", c.ca)...)
	r.answers(t, cli.ExitNotReady)
	called(t, "kubectl-kubelet_certs", "audit", "--what=all").refuses(t, `--what="all"`)
}

// kubectl runs kubectl_complete-kubelet_certs with the words so far.
func TestPluginCompletes(t *testing.T) {
	for words, want := range map[string]string{"": "audit", "aud": "audit", "audit --wh": "--what", "audit --what ": "tls", "audit -o h": "html"} {
		r := called(t, "kubectl_complete-kubelet_certs", strings.Split(words, " ")...)
		if r.code != cli.ExitReady || !strings.Contains("\n"+r.out, "\n"+want) {
			t.Errorf("%q completes to %q, %q", words, r.out, r.stderr)
		}
	}
}
