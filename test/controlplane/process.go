package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// pollEvery is how often a starting process is asked whether it is ready.
const pollEvery = 50 * time.Millisecond

// errPortTaken says that a process ended since another one held its port.
var errPortTaken = errors.New("port is taken")

// process is one running binary.
type process struct {
	name    string
	logPath string
	logFrom int64 // where this run begins in the log, which restarts share
	cmd     *exec.Cmd
	exited  chan struct{} // closed once the process was reaped; waitErr is set before
	waitErr error
}

// launch starts a binary whose output is appended to dir/NAME.log. It returns
// as soon as the process runs.
func launch(binary, dir string, args []string) (*process, error) {
	name := filepath.Base(binary)
	p := &process{name: name, logPath: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	info, err := log.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log of %s: %w", name, err), log.Close())
	}
	p.logFrom = info.Size()
	p.cmd = exec.Command(binary, args...) //nolint:noctx // it outlives the context of Start; Stop ends it
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// ETCD_*, KUBE_FEATURE_* and proxies of the caller's shell would change
	// what the tests run against.
	p.cmd.Env = []string{"HOME=" + dir}
	p.cmd.SysProcAttr = processAttributes()

	started := make(chan error)
	go func() {
		// The kernel's parent-death signal fires when the *thread* that forked
		// ends, so this one is held until the process is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		_ = log.Close() // the child has its own copy
		started <- err
		if err != nil {
			return
		}
		p.waitErr = p.cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// await polls ready until it answers nil. It errs when the process ends first
// (errPortTaken if that was over its port) or ctx does; the error holds what
// ready answered last and the tail of the log.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-p.exited:
			return p.ended()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last answer: %w); its log ends:\n%s", p.name, context.Cause(ctx), last, p.tail())
		case <-tick.C:
		}
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // else it only repeats that ctx ended
			last = err
		}
	}
}

// ended explains an exit nobody asked for.
func (p *process) ended() error {
	tail := p.tail()
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("%s: %w; its log ends:\n%s", p.name, errPortTaken, tail)
	}
	outcome := "exit status 0"
	if p.waitErr != nil {
		outcome = p.waitErr.Error()
	}
	return fmt.Errorf("%s ended by itself (%s); its log ends:\n%s", p.name, outcome, tail)
}

// stop asks the process to end, kills it after stopGrace, and returns when it is
// gone. It does nothing to a nil or ended process.
func (p *process) stop() error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return p.kill()
	}
	deadline := time.NewTimer(stopGrace)
	defer deadline.Stop()
	select {
	case <-p.exited:
		return nil
	case <-deadline.C:
		return p.kill()
	}
}

// kill ends the process at once and returns when it is gone. It does nothing
// to a nil or ended process.
func (p *process) kill() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.exited
	return nil
}

// tail is the end of what this run logged, at most 4 KiB, for an error message.
func (p *process) tail() string {
	const most = 4 << 10
	log, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	log = log[min(p.logFrom, int64(len(log))):]
	log = log[max(0, len(log)-most):]
	return strings.TrimSpace(string(log))
}
