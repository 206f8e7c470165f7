package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Process is one more of the built binaries.
type Process struct {
	p       *process
	stopped bool
}

// Run starts a binary that lies beside kube-apiserver, such as kubelet. Its
// output is appended to a log in the control plane's directory. Whoever started
// it stops it, before the control plane. It errs, saying how to get it, where
// the binary is absent.
func (c *ControlPlane) Run(name string, args ...string) (*Process, error) {
	binary := filepath.Join(c.assets, name)
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("no %s in %s: run `make e2e` without KUBEBUILDER_ASSETS, or `go run -C test/kubernetes . %s`", name, c.assets, name)
	}
	p, err := launch(binary, c.dir, args)
	if err != nil {
		return nil, err
	}
	return &Process{p: p}, nil
}

// Log is what was logged since the start, by others too that run under the same
// name at the same time.
func (p *Process) Log() (string, error) {
	text, err := os.ReadFile(p.p.logPath)
	if err != nil {
		return "", err
	}
	return string(text[min(p.p.logFrom, int64(len(text))):]), nil
}

// Ended is nil while the process runs, else why it does not.
func (p *Process) Ended() error {
	if p.p.running() {
		return nil
	}
	return p.p.ended()
}

// Stop ends the process as ControlPlane.Stop does. It errs also when the
// process had ended by itself. A second call does nothing.
func (p *Process) Stop() error {
	if p.stopped {
		return nil
	}
	p.stopped = true
	return errors.Join(p.Ended(), p.p.stop())
}
