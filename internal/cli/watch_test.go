package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
)

// screen collects what a command writes while a test reads it.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) await(t *testing.T, words string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%q", words), func() bool { return strings.Contains(s.String(), words) })
}

// watched is a command that runs until it is Ready or cancelled.
type watched struct {
	out, stderr screen
	done        chan result
	cancel      context.CancelFunc
}

func watch(t *testing.T, args ...string) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{done: make(chan result, 1), cancel: cancel}
	go func() {
		code, err := cli.Run(ctx, append(args, "--watch", "--watch-interval=20ms"), cli.Streams{In: strings.NewReader(""), Out: &w.out, Err: &w.stderr})
		w.done <- result{code: code, err: err}
	}()
	t.Cleanup(cancel)
	return w
}

func (w *watched) ends(t *testing.T, code int) {
	t.Helper()
	select {
	case r := <-w.done:
		if r.code != code || r.err != nil {
			t.Errorf("exit code %d, %v; want %d\n%s", r.code, r.err, code, &w.out)
		}
	case <-time.After(quick):
		t.Fatalf("it goes on:\n%s", &w.out)
	}
}

func TestWatchEndsOnceEveryNodePasses(t *testing.T) {
	c := newCluster(t, "good", "bare-node-name")
	w := watch(t, c.args(t, "--kubelet-certificate-authority", c.ca)...)
	w.out.await(t, "1 would break")
	w.out.await(t, "again in 20ms")
	path := filepath.Join(c.dir, "nodes.json")
	replace(t, path, []byte("not a list of Nodes"))
	w.stderr.await(t, "no look: ")
	c.list.Items = c.list.Items[:1]
	text, err := json.Marshal(c.list)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, path, text)
	w.ends(t, cli.ExitReady)
	if !strings.Contains(w.out.String(), "\nREADY: of 1 node 1 are verified") {
		t.Errorf("%s", &w.out)
	}
}

func TestWatchThatIsInterruptedAnswersByItsLastLook(t *testing.T) {
	c := newCluster(t, "good", "bare-node-name")
	w := watch(t, c.args(t, "--kubelet-certificate-authority", c.ca)...)
	w.out.await(t, "NOT READY")
	w.cancel()
	w.ends(t, cli.ExitNotReady)
}

func TestWatchRefuses(t *testing.T) {
	c := newCluster(t, "good")
	args := func(more ...string) []string { return c.args(t, append(more, "--watch")...) }
	run(t, args("-o", "json")...).refuses(t, `--output="json": --watch takes table or wide`)
	run(t, args("--watch-interval=0s")...).refuses(t, "--watch-interval=0s: must be above zero")
	run(t, "audit", "-f", "-", "--watch").refuses(t, `--filename="-": --watch cannot read standard input again`)
	run(t, "audit", "-f", "/nowhere", "--watch").refuses(t, `--filename="/nowhere"`)
}

// replace a file at once, as an editor does.
func replace(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
