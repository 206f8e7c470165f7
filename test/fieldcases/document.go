package fieldcases

import (
	"fmt"
	"strings"
)

//go:generate go test . -run ^TestDocumentIsUpToDate$ -update

// Document is docs/field-cases.md.
func Document() string {
	var b strings.Builder
	b.WriteString(`# Cases from the field

What happened to people who run clusters, what this project answers, and the test that holds it to that. Each test in
` + "`TestFieldCases`" + ` probes a simulated kubelet with real TLS and compares status, reason, failing checks and hints, and what Go's
own crypto/tls says to the same kubelet with verification on, as kube-apiserver has it. Where the right answer is not the one
that was expected, the answer says so. Generated from ` + "`test/fieldcases/cases.go`" + ` by ` + "`go generate ./test/fieldcases`" + `; a test
fails when it is out of date.
`)
	for _, kind := range All() {
		fmt.Fprintf(&b, "\n## %s\n\n| case | what happened | what we answer | test |\n|---|---|---|---|\n", kind.Title)
		for _, c := range kind.Cases {
			fmt.Fprintf(&b, "| %s | %s (%s) | %s | %s |\n", c.ID, c.Happened, c.Source, c.answer(), c.test())
		}
	}
	return b.String()
}

func (c Case) answer() string {
	if c.Disagrees == "" {
		return c.Answer
	}
	return c.Answer + " *" + c.Disagrees + "*"
}

func (c Case) test() string {
	switch {
	case c.Why != "":
		return "none: " + c.Why
	case c.At != nil:
		return c.At.String()
	case c.Also != nil:
		return fmt.Sprintf("`TestFieldCases/%s`; %s", c.ID, c.Also)
	}
	return fmt.Sprintf("`TestFieldCases/%s`", c.ID)
}

// String is the place as the document has it.
func (p Place) String() string { return fmt.Sprintf("`%s`, \"%s\"", p.File, p.Name) }
