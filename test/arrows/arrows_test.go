// Package arrows_test holds the project to its drawing: which room may import
// which. Every arrow points at internal/verdict, and verdict points at words.
package arrows_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kubelet-cert-auditor/kubelet-cert-auditor"

// all stands for every room; those of the product still do not import test/.
const all = "*"

// rooms maps each room to those that its files, tests apart, may import. The
// root is main.go.
var rooms = map[string][]string{
	"":                   {"internal/cli"},
	"api/v1alpha1":       {},
	"controllers":        {"api/v1alpha1", "internal/compact", "internal/kubelet", "internal/verdict"},
	"internal/admission": {"api/v1alpha1", "internal/kubelet", "internal/verdict"},
	"internal/apiserver": {"internal/kubelet", "internal/verdict"},
	"internal/audit":     {"api/v1alpha1", "internal/kubelet", "internal/verdict"},
	"internal/cli":       {all},
	"internal/compact":   {},
	"internal/kubelet":   {"api/v1alpha1", "internal/compact", "internal/verdict"},
	"internal/metrics":   {"api/v1alpha1", "internal/compact", "internal/verdict"},
	"internal/probe":     {"internal/verdict"},
	"internal/record":    {"api/v1alpha1", "internal/verdict"},
	"internal/report":    {"api/v1alpha1", "internal/audit", "internal/verdict"},
	"internal/trust":     {"internal/verdict"},
	"internal/verdict":   {"api/v1alpha1"},

	"test/alerts":       {},
	"test/arrows":       {},
	"test/bench":        {all},
	"test/browser":      {all},
	"test/certs":        {"api/v1alpha1"},
	"test/chart":        {"test/controlplane"},
	"test/config":       {},
	"test/controlplane": {"api/v1alpha1", "test/certs"},
	"test/dashboard":    {all},
	"test/demo":         {all},
	"test/demo/preview": {all},
	"test/e2e":          {all},
	"test/fieldcases":   {},
	"test/fleet":        {"api/v1alpha1", "test/certs"},
	"test/ha":           {all},
	"test/oracle":       {all},
	"test/readme":       {},
}

func TestArrows(t *testing.T) {
	for _, p := range packages(t) {
		may, known := rooms[p.room()]
		if !known {
			t.Errorf("%s is no room: draw it here and in .golangci.yml first", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			to, ours := roomOf(imported)
			switch {
			case !ours:
			case isTest(to) && !isTest(p.room()):
				t.Errorf("%s imports %s: the product does not depend on its tests", p.ImportPath, imported)
			case !slices.Contains(may, to) && !slices.Contains(may, all):
				t.Errorf("%s imports %s: there is no such arrow", p.ImportPath, imported)
			}
		}
	}
}

// A fleet node knows what it serves, the test knows what is right: were the
// judge's words used to write the fixtures, both could be wrong together.
func TestFixturesDoNotAskTheJudge(t *testing.T) {
	for _, p := range packages(t) {
		if room := p.room(); room != "test/certs" && room != "test/fleet" && room != "test/controlplane" {
			continue
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			if to, ours := roomOf(imported); ours && strings.HasPrefix(to, "internal/") {
				t.Errorf("the tests of %s import %s", p.ImportPath, imported)
			}
		}
	}
}

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// room is the path of a package in the module, "" being the root.
func (p pkg) room() string {
	room, _ := roomOf(p.ImportPath)
	return room
}

func roomOf(path string) (room string, ours bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func isTest(room string) bool { return strings.HasPrefix(room, "test/") }

func packages(t *testing.T) []pkg {
	t.Helper()
	touchSources(t)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var list []pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("read what go list says: %v", err)
		}
		list = append(list, p)
	}
}

// touchSources looks at what the answer of go list depends on. Go's test cache
// sees what a test opens, not what its children do, and would otherwise keep an
// old answer.
func touchSources(t *testing.T) {
	t.Helper()
	root := os.DirFS("../..")
	if _, err := fs.Stat(root, "main.go"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, dir := range []string{"api", "controllers", "internal", "test"} {
		err := fs.WalkDir(root, dir, func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
	}
}
