// Package controlplane starts the real etcd and kube-apiserver on 127.0.0.1,
// for tests and for the demo.
//
// There is no controller manager, scheduler or kubelet: nothing creates
// ServiceAccounts, deletes the Pods of a Node or answers for one. What has to
// exist, the caller creates.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

const (
	loopback = "127.0.0.1"

	// startLimit bounds a start even where the caller's context has no
	// deadline. Two busy cores need about five seconds.
	startLimit = 2 * time.Minute

	// stopGrace is how long a process may take to end by itself.
	stopGrace = 10 * time.Second
)

// Options of a control plane. The zero value is useful.
type Options struct {
	// Dir holds data, keys and logs. It is created where it is missing and may
	// hold other files, but not the data of an earlier control plane.
	// Default: a new temporary directory, which Stop removes.
	Dir string

	// APIServerArgs are further flags of kube-apiserver, such as
	// --kubelet-certificate-authority=FILE. They come last, so they win over
	// the flags given here; addresses and ports are not theirs to change.
	APIServerArgs []string

	// Audit keeps an audit log of every request, without bodies, in
	// Dir/audit.log: see AuditEvents.
	Audit bool
}

// ControlPlane is a running etcd and kube-apiserver. Its methods may be called
// concurrently; those that start or stop a process wait for each other.
type ControlPlane struct {
	assets string
	dir    string
	ownDir bool // Stop removes dir
	audit  bool

	ca    *certs.CA // signs the API server's certificate and all clients'
	admin *rest.Config

	etcdURL       string
	apiServerArgs []string

	mu        sync.Mutex // guards what follows
	etcd      *process
	apiServer *process // nil or ended while the API server is down
	stopped   bool
}

// Start starts etcd and kube-apiserver. It returns when /readyz answers ok and
// the namespace default exists. From then on ctx has no say; Stop ends it.
//
// It errs when a binary is missing (see Assets), ctx ends, a process ends by
// itself or two minutes have passed, and then leaves nothing running. The error
// holds the end of the log of the process that it waited for.
func Start(ctx context.Context, opts Options) (_ *ControlPlane, err error) {
	assets, err := Assets()
	if err != nil {
		return nil, err
	}
	if assets, err = filepath.Abs(assets); err != nil {
		return nil, err
	}
	c := &ControlPlane{assets: assets, audit: opts.Audit}
	if err := c.makeDir(opts.Dir); err != nil {
		return nil, fmt.Errorf("prepare the control plane's directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.abandon())
		}
	}()

	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	if c.ca, err = newCA("kubernetes-ca"); err != nil {
		return nil, fmt.Errorf("make the cluster's CA: %w", err)
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := c.writeAPIServerFiles(); err != nil {
		return nil, fmt.Errorf("write the API server's files: %w", err)
	}
	if err := retryTakenPort(func() error { return c.firstAPIServer(ctx, opts) }); err != nil {
		return nil, err
	}
	if err := c.WriteKubeconfig(c.path(adminKubeconfig), c.admin); err != nil {
		return nil, err
	}
	return c, nil
}

// makeDir creates and remembers the directory.
func (c *ControlPlane) makeDir(dir string) error {
	if dir == "" {
		made, err := os.MkdirTemp("", "controlplane-")
		if err != nil {
			return err
		}
		c.dir, c.ownDir = made, true
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	c.dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Objects of an earlier run would be there, its keys would not.
	_, err = os.Stat(c.path(etcdData))
	if err == nil {
		return fmt.Errorf("%s holds the data of an earlier control plane", dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// abandon undoes a start that did not succeed. What is lost is worth nothing,
// so nobody is asked to end in good order.
func (c *ControlPlane) abandon() error {
	err := errors.Join(c.apiServer.kill(), c.etcd.kill())
	if c.ownDir {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// Stop ends both processes, by SIGKILL those that take longer than ten seconds,
// and removes the directory where Start made it. A second call does nothing.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	err := errors.Join(c.apiServer.stop(), c.etcd.stop())
	if c.ownDir {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// StopAPIServer ends the API server in good order, by SIGKILL if that takes
// longer than ten seconds. It does nothing while the API server is down.
func (c *ControlPlane) StopAPIServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apiServer.stop()
}

// KillAPIServer ends the API server by SIGKILL and returns when it is gone. It
// does nothing while the API server is down.
func (c *ControlPlane) KillAPIServer() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apiServer.kill()
}

// StartAPIServer starts an API server that was stopped, was killed or ended by
// itself: same port, keys and flags, so clients reconnect. It returns when
// /readyz answers ok, and errs as Start does, also when the API server runs
// already or after Stop.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("start kube-apiserver: the control plane is stopped")
	}
	if c.apiServer.running() {
		return errors.New("start kube-apiserver: it is running")
	}
	ctx, cancel := withStartLimit(ctx)
	defer cancel()
	return retryTakenPort(func() error { return c.runAPIServer(ctx) })
}

// PauseEtcd stops etcd in its tracks, as a disk that does not answer does, until
// ResumeEtcd.
func (c *ControlPlane) PauseEtcd() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.etcd.pause()
}

// ResumeEtcd lets etcd go on.
func (c *ControlPlane) ResumeEtcd() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.etcd.resume()
}

// CA is the PEM of the cluster's CA, which signs the API server's certificate
// and those of its clients.
func (c *ControlPlane) CA() []byte { return c.ca.PEM() }

func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }

func withStartLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s: %w", startLimit, context.DeadlineExceeded))
}

// writeFiles writes files, by name, into the directory, for the owner alone.
func (c *ControlPlane) writeFiles(files map[string][]byte) error {
	for name, content := range files {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
