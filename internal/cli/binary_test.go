package cli_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
)

// The one test of main.go: signals, the error's place and the exit code.
func TestTheBinary(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "kubelet-cert-auditor")
	build := exec.CommandContext(t.Context(), "go", "build", "-race="+raceDetector(), "-ldflags=-s -w", "-o", binary, "../..")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	c := newInterruptible(t, "good", "good-tls12")
	ctx, cancel := context.WithTimeout(t.Context(), quick)
	defer cancel()
	command := func(args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		var out, stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Stdout, cmd.Stderr = &out, &stderr
		return cmd, &out, &stderr
	}

	t.Run("an interrupt", func(t *testing.T) {
		cmd, out, stderr := command(c.args(t, "--timeout=1h", "--concurrency=1", "--kubelet-certificate-authority", c.ca)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c.stuck(t)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		assertExit(t, cmd.Wait(), cli.ExitUnknown)
		if !strings.Contains(out.String(), "Interrupted: ") || !strings.Contains(out.String(), "1 are verified") || stderr.Len() > 0 {
			t.Errorf("stderr %q\n%s", stderr, out)
		}
	})
	t.Run("an error", func(t *testing.T) {
		cmd, out, stderr := command("audit", "--concurrency=0")
		assertExit(t, cmd.Run(), cli.ExitCannotRun)
		if stderr.String() != "error: --concurrency=0: must be at least 1\n" || out.Len() > 0 {
			t.Errorf("stderr %q, stdout %q", stderr, out)
		}
	})
}

// raceDetector says whether this test has it. A binary that is built likewise is
// made of packages that the build of this test left in the cache; otherwise all
// of Kubernetes' would be compiled once more.
func raceDetector() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" {
				return setting.Value
			}
		}
	}
	return "false"
}

func assertExit(t *testing.T, err error, want int) {
	t.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != want {
		t.Errorf("%v, want exit code %d", err, want)
	}
}
