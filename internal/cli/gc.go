package cli

import (
	"os"
	"runtime/debug"
)

const (
	// sweepGC: a handshake leaves some 70 KiB of garbage, of which nearly nothing
	// stays; with Go's default a twentieth of a sweep's time went into collecting
	// it.
	sweepGC = 400
	// sweepMemory, where it is reached, has the garbage collected earlier again.
	sweepMemory = 1 << 30
)

// TuneForASweep lets garbage be for longer, where the environment does not say
// how long (GOGC, GOMEMLIMIT), until it is undone.
func TuneForASweep() (undo func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	percent, memory := debug.SetGCPercent(sweepGC), debug.SetMemoryLimit(sweepMemory)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(memory)
	}
}
