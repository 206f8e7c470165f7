package fieldcases

import (
	"fmt"
	"strings"
)

// Document is docs/field-cases.md.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Cases from the field

What happened to people who run clusters, what this project answers, and the test that holds it to that. Generated from
` + "`test/fieldcases/cases.go`" + ` by ` + "`go test ./test/fieldcases -update`" + `; a test fails when it is out of date.
`)
	for _, kind := range All() {
		fmt.Fprintf(&b, "\n## %s\n\n| case | what happened | what we answer | test |\n|---|---|---|---|\n", kind.Title)
		for _, c := range kind.Cases {
			fmt.Fprintf(&b, "| %s | %s (%s) | %s | %s |\n", c.ID, c.Happened, c.Source, c.Answer, c.test())
		}
	}
	return b.String()
}

func (c Case) test() string {
	switch {
	case c.Why != "":
		return "none: " + c.Why
	case c.At != nil:
		return fmt.Sprintf("`%s`, \"%s\"", c.At.File, c.At.Name)
	}
	return fmt.Sprintf("`TestFieldCases/%s`", c.ID)
}
