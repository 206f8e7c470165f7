package fieldcases

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"strconv"
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

// TestFieldCases puts the product to each case.
func TestFieldCases(t *testing.T) {
	tests := map[string]func(*scene){}
	for _, some := range []map[string]func(*scene){
		sanTests, addressTests, nameTests, chainTests, timeTests, cryptoTests, serverTests, pathTests, rolloutTests,
	} {
		maps.Copy(tests, some)
	}
	for _, kind := range All() {
		for _, c := range kind.Cases {
			test, ok := tests[c.ID]
			if ok != c.here() {
				t.Errorf("%s has a test: %v, and its line says %v", c.ID, ok, c.here())
			}
			if ok {
				t.Run(c.ID, func(t *testing.T) { t.Parallel(); test(newScene(t)) })
			}
			delete(tests, c.ID)
		}
	}
	for id := range tests {
		t.Errorf("a test of %s, which is no case", id)
	}
}

// TestElsewhere: a test that is named exists, as a function or as a spec.
func TestElsewhere(t *testing.T) {
	for _, kind := range All() {
		for _, c := range kind.Cases {
			for _, place := range []*Place{c.At, c.Also} {
				if place != nil && !names(t, filepath.Join("..", "..", place.File), place.Name) {
					t.Errorf("%s: no test %q in %s", c.ID, place.Name, place.File)
				}
			}
		}
	}
	if names(t, "fieldcases_test.go", "TestNothing") || names(t, "fieldcases_test.go", "Test") {
		t.Error("a test was found that is not there")
	}
}

// names tells whether a file has a test function of that name, or a spec of
// that text.
func names(t *testing.T, file, name string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			found = found || n.Name.Name == name && strings.HasPrefix(name, "Test")
		case *ast.CallExpr:
			found = found || specText(n) == name
		}
		return true
	})
	return found
}

// specText is the text of a call of Ginkgo's It; "" for any other.
func specText(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "It" || len(call.Args) == 0 {
		return ""
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return text
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
		t.Error("docs/field-cases.md is out of date: run go generate ./test/fieldcases")
	}
}

func TestEveryCaseSaysItAll(t *testing.T) {
	seen := map[string]bool{}
	for _, kind := range All() {
		for _, c := range kind.Cases {
			if c.ID == "" || seen[c.ID] || c.Source == "" || c.Happened == "" || c.Answer == "" {
				t.Errorf("%+v lacks something, or is there twice", c)
			}
			if c.At != nil && (c.Why != "" || c.Also != nil) {
				t.Errorf("%s: elsewhere alone, and yet also", c.ID)
			}
			if strings.ContainsAny(c.Source+c.Happened+c.Answer+c.Disagrees+c.Why, "|\n") {
				t.Errorf("%s would break the table", c.ID)
			}
			seen[c.ID] = true
		}
	}
}
