package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nodes that stay, and those that come and go.
const (
	staying = 1_000
	passing = 10_000
)

// left is what a process holds after a garbage collection.
type left struct {
	goroutines, series, heap float64
}

// churn looks at what nodes leave behind in the manager once they are gone. They
// come and go twice: what the first ones grow once, such as tables, is not lost.
func (b *bench) churn(ctx context.Context) (err error) {
	fmt.Fprintf(os.Stderr, "bench: %d nodes come and go\n", passing)
	c, err := b.newCluster(ctx, staying, passing)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if c.pprof == "" {
		c.pprof = "127.0.0.1:16060"
	}
	if err := c.apply(ctx, usual); err != nil {
		return err
	}
	if err := c.start(ctx); err != nil {
		return err
	}
	if err := c.counted(ctx, time.Time{}, staying, 0); err != nil {
		return err
	}
	var all []left
	for turn := range 3 {
		if turn > 0 {
			if err := c.comeAndGo(ctx); err != nil {
				return err
			}
		}
		if err := idle(ctx, 15*time.Second)(); err != nil { // connections end, and the status is written
			return err
		}
		l, err := c.left(ctx)
		if err != nil {
			return err
		}
		all = append(all, l)
	}
	for _, what := range []struct {
		name, format string
		of           func(left) float64
	}{
		{"goroutines", "%.0f", func(l left) float64 { return l.goroutines }},
		{"series", "%.0f", func(l left) float64 { return l.series }},
		{"heap in use", "%.1f MiB", func(l left) float64 { return l.heap / (1 << 20) }},
	} {
		var texts []string
		for _, l := range all {
			texts = append(texts, fmt.Sprintf(what.format, what.of(l)))
		}
		b.out.rows = append(b.out.rows, []string{fmt.Sprintf("manager, %d nodes, %d come and go, %s", staying, passing, what.name), "", "", "", "",
			fmt.Sprintf("%s before, %s after the first time, %s after the second", texts[0], texts[1], texts[2])})
	}
	return nil
}

func (c *cluster) comeAndGo(ctx context.Context) error {
	if err := c.create(ctx, staying, staying+passing); err != nil {
		return err
	}
	if err := c.counted(ctx, time.Time{}, staying+passing, 0); err != nil {
		return err
	}
	if err := parallel(staying, staying+passing, func(i int) error {
		return c.client.CoreV1().Nodes().Delete(ctx, nodeName(i), metav1.DeleteOptions{})
	}); err != nil {
		return err
	}
	return c.counted(ctx, time.Time{}, staying, 0)
}

// left is read from the profiles, the heap after a garbage collection.
func (c *cluster) left(ctx context.Context) (l left, err error) {
	for path, take := range map[string]func(line string){
		"/debug/pprof/goroutine?debug=1": func(line string) {
			if n, ok := strings.CutPrefix(line, "goroutine profile: total "); ok {
				l.goroutines, _ = strconv.ParseFloat(n, 64)
			}
		},
		"/debug/pprof/heap?gc=1&debug=1": func(line string) {
			if n, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
				l.heap, _ = strconv.ParseFloat(n, 64)
			}
		},
		"/metrics": func(line string) {
			if strings.HasPrefix(line, "kubelet_cert_auditor_") {
				l.series++
			}
		},
	} {
		text, err := fetch(ctx, "http://"+c.pprof+path)
		if err != nil {
			return l, err
		}
		for line := range strings.Lines(text) {
			take(strings.TrimSpace(line))
		}
	}
	if l.goroutines == 0 || l.heap == 0 || l.series == 0 {
		return l, fmt.Errorf("the profiles of the manager say %+v", l)
	}
	return l, nil
}

func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
