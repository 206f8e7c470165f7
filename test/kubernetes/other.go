package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// aVersion of Kubernetes' module, whose staging modules are v0 of the same.
var aVersion = regexp.MustCompile(`^v1\.\d+\.\d+$`)

// runOther builds the kube-apiserver of a version that go.mod does not pin, and
// links the pinned etcd and kubectl, which exist, beside it.
func runOther(ctx context.Context, version string) error {
	if !aVersion.MatchString(version) {
		return fmt.Errorf("-version=%q: must be like v1.34.4", version)
	}
	pinned, err := pinnedVersion(ctx)
	if err != nil {
		return err
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin", "k8s"))
	if err != nil || version == pinned {
		return err
	}
	out := filepath.Join(bin, version)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(out, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range []string{"etcd", "kubectl"} {
		link := filepath.Join(out, name)
		if err := os.Symlink(filepath.Join("..", pinned, name), link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(out, "kube-apiserver")); err == nil {
		return nil
	}
	module, err := os.MkdirTemp("", "kubernetes-"+version+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(module) }()
	if err := writeModule(ctx, module, version); err != nil {
		return fmt.Errorf("make a module that requires k8s.io/kubernetes %s: %w", version, err)
	}
	return build(ctx, module, out, "kube-apiserver", version)
}

// writeModule requires one version of Kubernetes with the staging modules and
// the godebug lines of its own go.mod, which Go does not carry over.
func writeModule(ctx context.Context, dir, version string) error {
	out, err := goCommand(ctx, "", "mod", "download", "-json", "k8s.io/kubernetes@"+version)
	if err != nil {
		return err
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return err
	}
	theirs, err := os.ReadFile(downloaded.GoMod)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), moduleFor(string(theirs), version), 0o644); err != nil {
		return err
	}
	_, err = goCommand(ctx, dir, "mod", "tidy")
	return err
}

func moduleFor(theirs, version string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "module other\n\ntool k8s.io/kubernetes/cmd/kube-apiserver\n\nrequire k8s.io/kubernetes %s\n\n", version)
	for line := range strings.Lines(theirs) {
		switch fields := strings.Fields(line); {
		case strings.HasPrefix(line, "go ") || strings.HasPrefix(line, "godebug "):
			b.WriteString(line)
		case len(fields) == 3 && fields[1] == "=>" && strings.HasPrefix(fields[2], "./staging/"):
			fmt.Fprintf(&b, "replace %s => %s v0%s\n", fields[0], fields[0], strings.TrimPrefix(version, "v1"))
		}
	}
	return b.Bytes()
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}
