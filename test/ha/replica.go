// Package ha runs two managers against the real API server and breaks what lies
// between and under them.
package ha

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// replica is a manager's process. As a kubelet does, supervise starts it again
// when it ends.
type replica struct {
	name    string
	command []string
	logPath string
	metrics string // address
	token   string
	link    *link // if any

	mu       sync.Mutex
	process  *os.Process
	starts   int
	lastExit time.Time
	held     chan struct{} // not started again before this is closed; nil is closed
}

const restartPause = time.Second

// supervise runs until ctx ends, and then ends the process in good order.
func (r *replica) supervise(ctx context.Context) error {
	log, err := os.OpenFile(r.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, r.command[0], r.command[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error {
			return errors.Join(cmd.Process.Signal(syscall.SIGCONT), cmd.Process.Signal(syscall.SIGTERM))
		}
		cmd.WaitDelay = 20 * time.Second
		if err := cmd.Start(); err != nil {
			return err
		}
		r.mu.Lock()
		r.process = cmd.Process
		r.starts++
		r.mu.Unlock()
		_ = cmd.Wait() // how it ends is what the test makes it
		r.mu.Lock()
		r.process, r.lastExit = nil, time.Now()
		held := r.held
		r.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(restartPause):
		}
		if held != nil {
			select {
			case <-ctx.Done():
			case <-held:
			}
		}
	}
	return nil
}

func (r *replica) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return fmt.Errorf("%s does not run", r.name)
	}
	return r.process.Signal(s)
}

// down kills it, and keeps it from being started again until up.
func (r *replica) down() error {
	r.mu.Lock()
	r.held = make(chan struct{})
	r.mu.Unlock()
	return r.signal(syscall.SIGKILL)
}

func (r *replica) up() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.held)
	r.held = nil
}

// expired counts the watches of Nodes that the API server has ended with the
// error 410 Expired, as client-go logs them.
func (r *replica) expired() (int, error) {
	log, err := os.ReadFile(r.logPath)
	return len(expiredWatch.FindAll(log, -1)), err
}

var expiredWatch = regexp.MustCompile(`(?m)^.*"Watch closed".*"\*v1\.Node".*"too old resource version.*$`)

// exited is when it ended last, and how often it was started.
func (r *replica) exited() (time.Time, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastExit, r.starts
}

// series are the lines of our metrics, without those of the webhook's.
func (r *replica) series(ctx context.Context) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	// The manager makes its own certificate.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // see above
	client := &http.Client{Transport: transport, Timeout: 3 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, errors.Join(err, fmt.Errorf("%s: %s", r.name, resp.Status))
	}
	var ours []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "kubelet_cert_auditor_") {
			ours = append(ours, strings.TrimSpace(line))
		}
	}
	return ours, nil
}

// value of a series by its exact name and labels, and whether it is there.
func (r *replica) value(ctx context.Context, series string) (string, bool) {
	lines, err := r.series(ctx)
	if err != nil {
		return "", false
	}
	for _, line := range lines {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return v, true
		}
	}
	return "", false
}

func (r *replica) leads(ctx context.Context) bool {
	_, leads := r.value(ctx, "kubelet_cert_auditor_ready_to_enforce")
	return leads
}
