package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// rooms runs the Go benchmarks of the product, and keeps what they print in a
// form that benchstat compares.
func (b *bench) rooms(ctx context.Context) error {
	fmt.Fprintln(os.Stderr, "bench: the benchmarks of each room")
	cmd := exec.CommandContext(ctx, "go", "test", "-p", "1", "-run", "^$", "-bench", ".", "-benchmem", "-benchtime", "0.3s",
		"-count", strconv.Itoa(b.rounds), "./internal/...", "./controllers")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	kept, units, err := benchmarks(string(text))
	if err != nil {
		return err
	}
	for _, unit := range []string{"p50-ms", "p99-ms"} {
		figures := units["Webhook "+unit]
		if len(figures) == 0 {
			return fmt.Errorf("BenchmarkWebhook does not say %s", unit)
		}
		b.out.figure("webhook, 50000 nodes, 200 requests in flight over HTTPS, "+strings.TrimSuffix(unit, "-ms"), "%.0f ms", figures)
	}
	for _, key := range []string{"Review/nodes=50 ns/op", "Review/nodes=50000 ns/op", "Reconcile/nodes=1000 ns/op", "Reconcile/nodes=50000 ns/op", "Scrape/nodes=50000 ns/op"} {
		if len(units[key]) == 0 {
			return fmt.Errorf("no benchmark says %q; there are %q", key, slices.Sorted(maps.Keys(units)))
		}
		inMicroseconds := make([]float64, len(units[key]))
		for i, ns := range units[key] {
			inMicroseconds[i] = ns / 1000
		}
		b.out.figure("benchmark "+strings.TrimSuffix(key, " ns/op"), "%.0f µs", inMicroseconds)
	}
	if b.results == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(b.results, "rooms.txt"), kept, 0o644)
}

// benchmarks gives the lines that benchstat reads, and the figures by name and
// unit, such as "Judge ns/op".
func benchmarks(text string) (kept []byte, units map[string][]float64, err error) {
	units = map[string][]float64{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ok") || strings.HasPrefix(line, "?") || strings.HasPrefix(line, "PASS") {
			continue
		}
		kept = append(kept, line...)
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		name := strings.TrimSuffix(strings.TrimRight(strings.TrimPrefix(fields[0], "Benchmark"), "0123456789"), "-")
		for i := 2; i+1 < len(fields); i += 2 {
			figure, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, nil, fmt.Errorf("%q: %w", line, err)
			}
			key := name + " " + fields[i+1]
			units[key] = append(units[key], figure)
		}
	}
	return kept, units, nil
}
