package main

import (
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"
)

// Cost is what some probes took. CPU is user and system time of the process.
type Cost struct {
	Probes     int     `json:"probes"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpuSeconds"`
	Allocs     float64 `json:"allocs"`
	Bytes      float64 `json:"bytes"`
}

// PerSecond is the throughput.
func (c Cost) PerSecond() float64 { return float64(c.Probes) / c.Seconds }

// CPU is microseconds for each probe.
func (c Cost) CPU() float64 { return c.CPUSeconds * 1e6 / float64(c.Probes) }

// total is the cost of several sweeps as if they were one.
func total(costs []Cost) (sum Cost) {
	for _, c := range costs {
		sum.Probes += c.Probes
		sum.Seconds += c.Seconds
		sum.CPUSeconds += c.CPUSeconds
		sum.Allocs += c.Allocs / float64(len(costs))
		sum.Bytes += c.Bytes / float64(len(costs))
	}
	return sum
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs f, which probes so many times.
func measure(probes int, f func()) Cost {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	f()
	c := Cost{Probes: probes, Seconds: time.Since(start).Seconds(), CPUSeconds: (cpuTime() - cpu).Seconds()}
	runtime.ReadMemStats(&after)
	c.Allocs = float64(after.Mallocs-before.Mallocs) / float64(probes)
	c.Bytes = float64(after.TotalAlloc-before.TotalAlloc) / float64(probes)
	return c
}

// peakRSS of this process in bytes.
func peakRSS() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Maxrss << 10
}

// startProfile writes a CPU profile to a file, if that is named, until stop.
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}
