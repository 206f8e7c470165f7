package oracle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runInside runs this test binary once more in mount and network namespaces of
// its own, and returns its exit code.
func runInside() int {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The pure Go resolver, which kube-apiserver's build has too.
	cmd.Env = append(os.Environ(), inside+"=1", "GODEBUG=netdns=go")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "oracle: mount and network namespaces of its own cannot be had here; run it as root:", err)
	return 1
}

// setUpNetwork gives the loopback device life and this process a resolver.
func setUpNetwork() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring the loopback device up: %w", err)
	}
	return errors.Join(
		replaceFile("/etc/resolv.conf", "nameserver "+nameserver+"\noptions attempts:1 timeout:2\n"),
		replaceFile("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
	)
}

// replaceFile lays another content over a file, in this namespace only.
func replaceFile(path, content string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp("", "oracle-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // the mount keeps it
	_, err = f.WriteString(content)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	if err := unix.Mount(f.Name(), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount over %s: %w", target, err)
	}
	return nil
}

func loopbackUp() error {
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// addAddress gives the loopback device one more IPv6 address.
func addAddress(ip netip.Addr) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request := struct { // in6_ifreq of linux/ipv6.h
		address      [16]byte
		prefixLength uint32
		index        int32
	}{ip.As16(), 128, int32(lo.Index)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&request)))
	if errno != 0 && !errors.Is(errno, unix.EEXIST) {
		return fmt.Errorf("add %s to the loopback device: %w", ip, errno)
	}
	return nil
}
