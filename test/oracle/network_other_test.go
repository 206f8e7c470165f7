//go:build !linux

package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
)

func runInside() int {
	fmt.Fprintln(os.Stderr, "oracle: it needs Linux, for mount and network namespaces of its own")
	return 1
}

func setUpNetwork() error { return errors.ErrUnsupported }

func addAddress(netip.Addr) error { return errors.ErrUnsupported }
