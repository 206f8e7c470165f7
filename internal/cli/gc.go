package cli

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// sweepGC: a handshake leaves some 70 KiB of garbage, of which nearly nothing
	// stays. To collect it more often takes time; so does memory that was never
	// used before, which a higher percentage asks for.
	sweepGC = 300
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

const (
	// leastGC and mostGC are what GOGC is set to in a manager.
	leastGC, mostGC = 20, 100
	// tuneEvery is how often it is.
	tuneEvery = 5 * time.Second
)

// tuneGC keeps garbage small while there is little of it: a manager that probes
// some nodes a second need not be twice as large as what it knows. To mark what
// is in use takes a millisecond for each MiB of it, which, whatever the size, is
// a twentieth of a core where GOGC is twice the MiB that are allocated in a
// second. What the environment says stands.
func tuneGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(mostGC))
	tick := time.NewTicker(tuneEvery)
	defer tick.Stop()
	for before := allocated(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := allocated()
		debug.SetGCPercent(percentFor(now-before, tuneEvery))
		before = now
	}
}

func percentFor(allocated uint64, in time.Duration) int {
	mib := float64(allocated) / (1 << 20) / in.Seconds()
	return int(max(leastGC, min(2*mib, mostGC)))
}

// allocated bytes since the process started.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
