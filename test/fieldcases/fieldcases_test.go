package fieldcases

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/field-cases.md")

// TestMain sets a proxy at which nobody listens: no probe may take it.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	_ = os.Unsetenv("NO_PROXY")
	m.Run()
}

// TestFieldCases puts the product to each case that has no test elsewhere.
func TestFieldCases(t *testing.T) {
	left := map[string]bool{}
	for id := range tests {
		left[id] = true
	}
	for _, kind := range All() {
		for _, c := range kind.Cases {
			test, ok := tests[c.ID]
			switch here := c.At == nil && c.Why == ""; {
			case here && !ok:
				t.Errorf("%s has no test", c.ID)
			case !here && ok:
				t.Errorf("%s has a test that its line does not name", c.ID)
			case here:
				t.Run(c.ID, func(t *testing.T) { t.Parallel(); test(newScene(t)) })
			}
			delete(left, c.ID)
		}
	}
	for id := range left {
		t.Errorf("a test of %s, which is no case", id)
	}
}

// TestElsewhere: a test that is named exists.
func TestElsewhere(t *testing.T) {
	for _, kind := range All() {
		for _, c := range kind.Cases {
			if c.At == nil {
				continue
			}
			text, err := os.ReadFile(filepath.Join("..", "..", c.At.File))
			if err != nil {
				t.Errorf("%s: %v", c.ID, err)
			}
			if !strings.Contains(string(text), c.At.Name) {
				t.Errorf("%s: no %q in %s", c.ID, c.At.Name, c.At.File)
			}
		}
	}
}

func TestDocumentIsUpToDate(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "field-cases.md")
	if *update {
		if err := os.WriteFile(path, []byte(Document()), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != Document() {
		t.Error("docs/field-cases.md is out of date: run go test ./test/fieldcases -update")
	}
}

func TestEveryCaseSaysItAll(t *testing.T) {
	seen := map[string]bool{}
	for _, kind := range All() {
		for _, c := range kind.Cases {
			if c.ID == "" || seen[c.ID] || c.Source == "" || c.Happened == "" || c.Answer == "" {
				t.Errorf("%+v lacks something, or is there twice", c)
			}
			seen[c.ID] = true
		}
	}
}
