//go:build unix

package controlplane

import "syscall"

// pause stops a process until resume; both do nothing to one that has ended.
func (p *process) pause() error { return p.signal(syscall.SIGSTOP) }

func (p *process) resume() error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) error {
	if !p.running() {
		return nil
	}
	return p.cmd.Process.Signal(s)
}
