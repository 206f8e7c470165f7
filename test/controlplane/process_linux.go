package controlplane

import "syscall"

// processAttributes puts a child into a process group of its own, so that
// Ctrl-C in a terminal reaches it only through this process, and has the
// kernel kill it when this process dies in whatever way.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
