// Command fakecri is a container runtime that runs no containers: Kubernetes'
// own fake of the CRI, for a real kubelet to talk to.
//
//	fakecri SOCKET
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cri-client/pkg/fake"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fakecri SOCKET")
		os.Exit(2)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	runtime := fake.NewFakeRemoteRuntime()
	if err := runtime.Start("unix://" + os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	<-end
	runtime.Stop()
}
