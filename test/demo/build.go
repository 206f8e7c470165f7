package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

// buildControlPlane builds etcd, kube-apiserver and kubectl if they are not
// there yet.
func (d *demo) buildControlPlane(ctx context.Context) error {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		if err := d.command(ctx, "go", "run", "-C", "test/kubernetes", ".").Run(); err != nil {
			return fmt.Errorf("build the control plane: %w", err)
		}
	}
	assets, err := controlplane.Assets()
	d.kubectl = filepath.Join(assets, "kubectl")
	return err
}

func (d *demo) buildProduct(ctx context.Context) error {
	title("Building kubelet-cert-auditor")
	start := time.Now()
	if err := d.command(ctx, "go", "build", "-o", d.binary, ".").Run(); err != nil {
		return fmt.Errorf("build the product: %w", err)
	}
	fmt.Printf("built in %s\n", time.Since(start).Round(time.Second))
	return nil
}

// command runs in the repository, shows what it prints, and gets an interrupt
// when ctx ends.
func (d *demo) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = d.root
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// repository is the directory of this module's go.mod.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "PROJECT")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("run it within the repository")
		}
		dir = parent
	}
}

func title(text string) { fmt.Printf("\n=== %s\n", text) }
