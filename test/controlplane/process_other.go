//go:build !unix

package controlplane

import "syscall"

func processAttributes() *syscall.SysProcAttr { return nil }
