// Command kubernetes builds the pinned Kubernetes binaries that the tests and
// the demo run against, once, through the Go module proxy:
//
//	go run . [-o DIR] [kube-apiserver etcd kubectl kube-controller-manager kubelet fakecri]
//
// The default DIR is bin/k8s/VERSION of the repository, VERSION being what
// go.mod pins. A binary that exists is kept, so a second run is instant; a
// lock lets concurrent runs wait for each other; a binary appears under its
// name only when it is complete.
//
//	go run . -version v1.34.4
//
// builds the kube-apiserver of another version, from what that version's own
// go.mod asks for, and with the Go that runs here; etcd and kubectl beside it
// are the pinned ones.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// packages maps a binary's name to the import path it is built from.
var packages = map[string]string{
	"etcd":                    "go.etcd.io/etcd/server/v3",
	"fakecri":                 "./fakecri",
	"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
	"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
	"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
}

func main() {
	out := flag.String("o", "", "directory of the binaries (default: bin/k8s/VERSION of the repository)")
	other := flag.String("version", "", "build kube-apiserver of this version instead, such as v1.34.4")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *out, flag.Args())
	if err == nil && *other != "" {
		err = runOther(ctx, *other)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, names []string) error {
	if len(names) == 0 {
		names = []string{"etcd", "kube-apiserver", "kubectl"}
	}
	for _, name := range names {
		if packages[name] == "" {
			return fmt.Errorf("unknown binary %q", name)
		}
	}
	version, err := pinnedVersion(ctx)
	if err != nil {
		return err
	}
	if out == "" {
		out = filepath.Join("..", "..", "bin", "k8s", version)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(out, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range names {
		if err := build(ctx, "", out, name, version); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

// pinnedVersion is the version of k8s.io/kubernetes in go.mod, such as v1.37.2.
func pinnedVersion(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("read the pinned version: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// lock takes an exclusive lock on a file, which the system drops should this
// process die.
func lock(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	said := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !said {
			fmt.Fprintln(os.Stderr, "waiting for another build to finish")
			said = true
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// build puts one binary into out; module is the directory of the module that
// requires it, here by default.
func build(ctx context.Context, module, out, name, version string) error {
	target, err := filepath.Abs(filepath.Join(out, name))
	if err != nil {
		return err
	}
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	partial := target + ".partial"
	defer func() { _ = os.Remove(partial) }()

	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-ldflags", ldflags(version), "-o", partial, packages[name])
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	fmt.Fprintf(os.Stderr, "building %s %s (from an empty build cache kube-apiserver takes about ten minutes on two cores)\n", name, version)
	if err := cmd.Start(); err != nil {
		return err
	}
	output := watch(stderr, func(compiled int) {
		fmt.Fprintf(os.Stderr, "  %s: %d packages compiled, %s\n", name, compiled, time.Since(start).Round(time.Second))
	})
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	fmt.Fprintf(os.Stderr, "built %s in %s\n", name, time.Since(start).Round(time.Second))
	return os.Rename(partial, target)
}

// ldflags stamps the version: kubectl and clients parse what a binary says it is.
func ldflags(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	stamps := []string{
		"gitVersion=" + version, "gitMajor=" + parts[0], "gitMinor=" + parts[1], "gitTreeState=clean",
	}
	flags := []string{"-s", "-w"} // in one order, as they are part of Go's build cache key
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, stamp := range stamps {
			flags = append(flags, "-X", pkg+"."+stamp)
		}
	}
	return strings.Join(flags, " ")
}

// watch reads the names of compiled packages until EOF, reports their number
// every 15 s, and returns whatever else the go command said (its errors).
func watch(r io.Reader, report func(compiled int)) string {
	var compiled atomic.Int64
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				report(int(compiled.Load()))
			}
		}
	}()
	var rest strings.Builder
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		if strings.ContainsAny(line, " \t") {
			rest.WriteString(line + "\n")
			continue
		}
		compiled.Add(1)
	}
	return rest.String()
}
