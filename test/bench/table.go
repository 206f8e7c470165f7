package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// sample is one thing, measured several times.
type sample struct {
	costs   []Cost
	figures []float64
}

func (s *sample) add(costs ...Cost) { s.costs = append(s.costs, costs...) }

func (s *sample) of(f func(Cost) float64) []float64 {
	var all []float64
	for _, c := range s.costs {
		all = append(all, f(c))
	}
	return all
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// spread is the median, with the least and the most where they differ.
func spread(format string, all []float64) string {
	if slices.Min(all) == slices.Max(all) {
		return fmt.Sprintf(format, all[0])
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", median(all), slices.Min(all), slices.Max(all))
}

// table is what is printed, and written for the documentation.
type table struct {
	rows   [][]string
	limit  sample
	growth []growth
}

// growth is what a manager of so many nodes takes.
type growth struct {
	nodes        int
	cpu          float64 // µs for each probe
	settled, top float64 // MiB
}

var header = []string{"what", "throughput", "of the limit", "CPU for each probe", "of the limit", "more"}

// costs adds a row with its ratios to the limit.
func (t *table) costs(name string, s sample) {
	perSecond, cpu := s.of(Cost.PerSecond), s.of(Cost.CPU)
	more := ""
	if allocs := median(s.of(func(c Cost) float64 { return c.Allocs })); allocs > 0 {
		more = fmt.Sprintf("%.0f allocations, %.1f KiB", allocs, median(s.of(func(c Cost) float64 { return c.Bytes }))/1024)
	}
	t.rows = append(t.rows, []string{name, spread("%.0f", perSecond) + "/s", t.ratio(s, Cost.PerSecond),
		spread("%.0f", cpu) + " µs", t.ratio(s, Cost.CPU), more})
}

// costsOf is a row with its ratios to a limit of its own.
func (t *table) costsOf(limit sample, name string, s sample) {
	all := t.limit
	t.limit = limit
	defer func() { t.limit = all }()
	t.costs(name, s)
}

// ratio to the limit of the same round, or to the median where what was measured
// did not take turns with it; empty where there is no limit.
func (t *table) ratio(s sample, of func(Cost) float64) string {
	limits, ratios := t.limit.of(of), s.of(of)
	if len(limits) == 0 {
		return ""
	}
	for i := range ratios {
		if len(ratios) == len(limits) {
			ratios[i] /= limits[i]
		} else {
			ratios[i] /= median(limits)
		}
	}
	return spread("%.2f", ratios)
}

func (t *table) figure(name, format string, all []float64) {
	t.rows = append(t.rows, []string{name, "", "", "", "", spread(format, all)})
}

// managed adds the rows of a manager, next to the limit on the same kubelets.
func (t *table) managed(n int, m managed) {
	name := fmt.Sprintf("manager, %d nodes, ", n)
	text := func(what, more string) { t.rows = append(t.rows, []string{name + what, "", "", "", "", more}) }
	t.costsOf(m.limit, name+"the limit in turns with it", m.limit)
	t.costsOf(m.limit, name+"first sweep", sample{costs: []Cost{m.first}})
	t.rows[len(t.rows)-1][5] = fmt.Sprintf("%d conditions written", m.written)
	t.costsOf(m.limit, name+"steady", m.steady)
	t.rows[len(t.rows)-1][5] = fmt.Sprintf("in %s: %s", window, listed(m.idle))
	text("one in a hundred changes", listed(m.changed))
	t.figure(name+"probes of others before a new node has its verdict", "%.0f", m.newcomers)
	text("memory", fmt.Sprintf("%.0f MiB settled (%.0f MiB of them mapped from the binary), %.0f MiB at its peak", m.settled, m.files, m.peak))
	if last := len(t.growth) - 1; last >= 0 && n > t.growth[last].nodes {
		text("memory for each node more", fmt.Sprintf("%.1f KiB settled, %.1f KiB at the peak",
			1024*(m.settled-t.growth[last].settled)/float64(n-t.growth[last].nodes), 1024*(m.peak-t.growth[last].top)/float64(n-t.growth[last].nodes)))
	}
	t.growth = append(t.growth, growth{n, median(m.steady.of(Cost.CPU)), m.settled, m.peak})
}

func (t *table) show(w io.Writer) error {
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, t.rows...) {
		_, _ = fmt.Fprintln(tabs, strings.Join(row, "\t"))
	}
	return tabs.Flush()
}

// write puts the table and the plots into a directory.
func (t *table) write(dir, command string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Results\n\nWritten by `%s` on %s, with %s on %d cores. Medians, with the least and the most in parentheses where there were several rounds; what is of the limit is so of the same round.\n\n",
		command, time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.NumCPU())
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	if len(t.growth) > 1 {
		b.WriteString("\n![CPU for each probe, by the number of nodes](cpu.svg)\n\n![Memory, by the number of nodes](memory.svg)\n")
		if err := t.plots(dir); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "results.md"), []byte(b.String()), 0o644)
}

func (t *table) plots(dir string) error {
	var cpu, settled, peak plotter.XYs
	for _, g := range t.growth {
		x := float64(g.nodes)
		cpu = append(cpu, plotter.XY{X: x, Y: g.cpu})
		settled = append(settled, plotter.XY{X: x, Y: g.settled})
		peak = append(peak, plotter.XY{X: x, Y: g.top})
	}
	if err := draw(filepath.Join(dir, "cpu.svg"), "CPU for each probe of a manager", "µs", map[string]plotter.XYs{"steady": cpu}); err != nil {
		return err
	}
	return draw(filepath.Join(dir, "memory.svg"), "Resident memory of a manager", "MiB", map[string]plotter.XYs{"settled": settled, "peak": peak})
}

func draw(path, title, unit string, lines map[string]plotter.XYs) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.Y.Min = title, "nodes", unit, 0
	p.Add(plotter.NewGrid())
	dash := 0.0
	for name, points := range lines {
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		if dash > 0 {
			line.Dashes = []vg.Length{vg.Points(dash)}
		}
		dash += 4
		p.Add(line, dots)
		p.Legend.Add(name, line, dots)
	}
	return p.Save(16*vg.Centimeter, 9*vg.Centimeter, path)
}
