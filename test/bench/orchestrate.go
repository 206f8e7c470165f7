package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

func listenLocal(ctx context.Context) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}

// bench is one run.
type bench struct {
	root    string // of the repository
	dir     string
	self    string
	product string
	nodes   int
	rounds  int
	sizes   []int
	only    string // parts, if not all
	results string // a directory, if any
	// environment of the manager, as its manifest sets it.
	environment []string
	out         *table
}

func orchestrate(ctx context.Context, args []string) (err error) {
	b := &bench{out: &table{}}
	if err := b.parse(args); err != nil {
		return err
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.root, err = os.Getwd(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "kubelet-cert-auditor-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	if b.environment, err = environmentOf(filepath.Join(b.root, "config", "manager", "deployment.yaml")); err != nil {
		return err
	}
	b.product = filepath.Join(b.dir, "kubelet-cert-auditor")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.product, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the product: %w", err)
	}
	parts := []struct {
		name string
		run  func(context.Context) error
	}{
		{"sweeps", b.sweeps},
		{"tarpits", b.tarpits},
		{"managers", b.managers},
		{"churn", b.churn},
		{"rooms", b.rooms},
	}
	for _, part := range parts {
		if b.only != "" && !slices.Contains(strings.Split(b.only, ","), part.name) {
			continue
		}
		if failed := part.run(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", part.name, failed))
		}
	}
	err = errors.Join(err, b.out.show(os.Stdout))
	if b.results == "" || err != nil { // half a table would pass for a whole one
		return err
	}
	return b.out.write(b.results, "make bench")
}

func (b *bench) parse(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&b.nodes, "nodes", 5000, "the number of nodes of the sweeps")
	flags.IntVar(&b.rounds, "rounds", 5, "how often each of them is measured")
	sizes := flags.String("sizes", "1000,5000,15000,50000", "the numbers of nodes of the managers")
	flags.StringVar(&b.results, "out", "", "a directory for the table and its plots")
	flags.StringVar(&b.only, "only", "", "comma-separated names of the parts to run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.nodes < 10 || b.rounds < 1 {
		return fmt.Errorf("-nodes=%d -rounds=%d: at least ten nodes and one round", b.nodes, b.rounds)
	}
	var err error
	if b.sizes, err = numbers(*sizes); err != nil {
		return fmt.Errorf("-sizes=%q: %w", *sizes, err)
	}
	return nil
}

// numbers above zero, separated by commas.
func numbers(list string) ([]int, error) {
	var all []int
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, errors.New("must be numbers above zero")
		}
		all = append(all, n)
	}
	return all, nil
}

// Cores: the process under test on the first, all else on the second.
const (
	subjectCore = 0
	othersCore  = 1
)

// pinned is a command on one core, where there are more.
func pinned(ctx context.Context, core int, name string, args ...string) *exec.Cmd {
	if runtime.NumCPU() > core && runtime.NumCPU() > 1 {
		name, args = "taskset", append([]string{"-c", strconv.Itoa(core), name}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// fleetProcess serves until stop.
type fleetProcess struct {
	Served
	stop func()
}

func (b *bench) fleet(ctx context.Context, nodes int, file string) (*fleetProcess, error) {
	args := []string{"serve", "-nodes", strconv.Itoa(nodes), "-ca", b.ca()}
	if file != "" {
		args = append(args, "-f", file)
	}
	// Kubelets are not on the machine of the API server, and take no time from it.
	cmd := pinned(ctx, othersCore, "nice", append([]string{"-n", "10", b.self}, args...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f := &fleetProcess{stop: func() { _ = stdin.Close(); _ = cmd.Wait() }}
	if err := json.NewDecoder(stdout).Decode(&f.Served); err != nil {
		f.stop()
		return nil, fmt.Errorf("start the kubelets: %w", err)
	}
	return f, nil
}

func (b *bench) ca() string { return filepath.Join(b.dir, "ca.crt") }

// subject runs one of the measured processes to its end.
func (b *bench) subject(ctx context.Context, name string, args ...string) (Result, error) {
	cmd := pinned(ctx, subjectCore, b.self, append([]string{name}, args...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Result{}, err
	}
	if err := cmd.Start(); err != nil {
		return Result{}, err
	}
	var r Result
	text, err := io.ReadAll(stdout)
	if waited := cmd.Wait(); waited != nil {
		return r, fmt.Errorf("%s: %w", name, waited)
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// sweepRounds are run for each round of the others.
const sweepRounds = 3

// sweeps compares a sweep of the command audit with the limit.
func (b *bench) sweeps(ctx context.Context) error {
	file := filepath.Join(b.dir, "nodes.json")
	f, err := b.fleet(ctx, b.nodes, file)
	if err != nil {
		return err
	}
	defer f.stop()
	n := strconv.Itoa(b.nodes)
	var limits, limitFirst, limitSecond, first, second, reads, writes, rss, command sample
	// What a shared machine gets done differs by the second, and by more than what
	// is looked for: hence more rounds, in every other one of which the limit comes
	// last.
	for round := range sweepRounds * b.rounds {
		var l, s Result
		subjects := []func() error{
			func() (err error) {
				l, err = b.subject(ctx, "limit", "-nodes", n, "-port", strconv.Itoa(int(f.Port)), "-ca", b.ca(), "-sweeps", "2")
				return err
			},
			func() (err error) {
				s, err = b.subject(ctx, "sweep", "-f", file, "-ca", b.ca(), "-sweeps", "2")
				return err
			},
		}
		for i := range subjects {
			if err := subjects[(i+round)%len(subjects)](); err != nil {
				return err
			}
		}
		limits.add(total(l.Sweeps))
		limitFirst.add(l.Sweeps[0])
		limitSecond.add(l.Sweeps[1])
		first.add(s.Sweeps[0])
		second.add(s.Sweeps[1])
		reads.figures = append(reads.figures, s.Read)
		writes.figures = append(writes.figures, s.Write)
		rss.figures = append(rss.figures, float64(s.PeakRSS)/(1<<20))
		if round%sweepRounds != 0 {
			continue
		}
		whole, err := b.command(ctx, file)
		if err != nil {
			return err
		}
		command.add(whole)
	}
	b.out.limit = limits
	name := fmt.Sprintf("audit, %d nodes, ", b.nodes)
	b.out.costs("limit", limits)
	// A process' first sweep is the dearer one, whatever it does.
	b.out.costsOf(limitFirst, "limit, first sweep", limitFirst)
	b.out.costsOf(limitFirst, name+"first sweep", first)
	b.out.costsOf(limitSecond, "limit, second sweep", limitSecond)
	b.out.costsOf(limitSecond, name+"second sweep", second)
	b.out.figure(name+"reading them from a file", "%.2f s", reads.figures)
	b.out.figure(name+"writing the JSON", "%.2f s", writes.figures)
	b.out.costs(name+"the whole command, with both", command)
	b.out.figure(name+"peak of its memory", "%.0f MiB", rss.figures)
	return nil
}

// command is `kubelet-cert-auditor audit` from its start to its end.
func (b *bench) command(ctx context.Context, file string) (Cost, error) {
	cmd := pinned(ctx, subjectCore, b.product, "audit", "--filename", file, "--kubelet-certificate-authority", b.ca(),
		"--kubelet-preferred-address-types", "InternalIP", "--allow-local-addresses", "--concurrency", "128", "-o", "json")
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return Cost{}, fmt.Errorf("audit: %w", err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return Cost{Probes: b.nodes, Seconds: time.Since(start).Seconds(), CPUSeconds: used.Seconds()}, nil
}

// tarpits compares the time that the others take where a tenth never answers
// with what they take alone.
func (b *bench) tarpits(ctx context.Context) error {
	file := filepath.Join(b.dir, "nodes.json")
	f, err := b.fleet(ctx, b.nodes, file)
	if err != nil {
		return err
	}
	defer f.stop()
	silent := b.nodes / 10
	healthy := strconv.Itoa(b.nodes - silent)
	var ratios []float64
	for range b.rounds {
		if err := f.get(ctx, "/set?defect=good&nodes="+strconv.Itoa(silent), nil); err != nil {
			return err
		}
		alone, err := b.subject(ctx, "sweep", "-f", file, "-ca", b.ca(), "-take", healthy, "-until", healthy)
		if err != nil {
			return err
		}
		if err := f.get(ctx, "/set?defect=silent&nodes="+strconv.Itoa(silent), nil); err != nil {
			return err
		}
		among, err := b.subject(ctx, "sweep", "-f", file, "-ca", b.ca(), "-until", healthy)
		if err != nil {
			return err
		}
		ratios = append(ratios, among.Sweeps[0].Seconds/alone.Sweeps[0].Seconds)
	}
	b.out.figure(fmt.Sprintf("audit, %d nodes, a tenth silent: time of the others, of what they take alone", b.nodes), "%.2f", ratios)
	return nil
}

// environmentOf the manager's container, such as GOMEMLIMIT=300MiB.
func environmentOf(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var d appsv1.Deployment
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var environment []string
	for _, variable := range d.Spec.Template.Spec.Containers[0].Env {
		environment = append(environment, variable.Name+"="+variable.Value)
	}
	return environment, nil
}
