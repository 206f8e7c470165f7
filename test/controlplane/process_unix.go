//go:build unix && !linux

package controlplane

import "syscall"

// processAttributes puts a child into a process group of its own, so that
// Ctrl-C in a terminal reaches it only through this process. These systems
// cannot tie its life to this process: a crash leaves it running.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
