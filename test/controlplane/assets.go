package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	modulePath = "github.com/kubelet-cert-auditor/kubelet-cert-auditor"
	howToBuild = "run `make control-plane`, or set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver and kubectl"
)

// Assets is the directory of the binaries etcd, kube-apiserver and kubectl:
// $KUBEBUILDER_ASSETS where set, else bin/k8s/VERSION of the repository around
// the working directory, VERSION being what test/kubernetes/go.mod pins.
//
// It errs, saying how to get them, when one of the three is absent.
func Assets() (string, error) {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		pinned, err := pinnedAssets()
		if err != nil {
			return "", fmt.Errorf("find the control plane's binaries: %w; %s", err, howToBuild)
		}
		dir = pinned
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() {
			return "", fmt.Errorf("no %s in %s: %s", name, dir, howToBuild)
		}
	}
	return dir, nil
}

func pinnedAssets() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	version, err := pinnedVersion(filepath.Join(root, "test", "kubernetes", "go.mod"))
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "bin", "k8s", version), nil
}

// repository walks up to the go.mod of this module. It passes those of nested
// modules, which hold another module line.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		for line := range strings.Lines(string(mod)) {
			if strings.TrimSpace(line) == "module "+modulePath {
				return dir, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of %s in %s or above", modulePath, start)
		}
	}
}

func pinnedVersion(goMod string) (string, error) {
	mod, err := os.ReadFile(goMod)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("%s requires no k8s.io/kubernetes", goMod)
}
