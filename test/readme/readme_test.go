// Package readme_test holds README.md and the documents that it leads to to the
// code: reasons, metrics, flags and fields of the spec, and everything that they
// name in this repository.
package readme_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

const root = "../.."

func TestReasonsAreThoseOfTheAPI(t *testing.T) {
	var listed, want []string
	statuses := documentedStatuses(t)
	for _, row := range table(t, "Reasons") {
		reason := unquoted(row[0])
		listed = append(listed, reason)
		if row[1] != statuses[reason].String() {
			t.Errorf("%s: status %s, but its comment in words.go says %s", reason, row[1], statuses[reason])
		}
		group := verdict.Verdict{Status: statuses[reason], Reason: v1alpha1.Reason(reason)}.Group()
		if unquoted(row[2]) != groups[group] {
			t.Errorf("%s: group %s, want %s", reason, row[2], groups[group])
		}
		if len(row) != 5 || row[3] == "" || row[4] == "" {
			t.Errorf("%s: its meaning or what to do is missing: %q", reason, row)
		}
	}
	for _, reason := range v1alpha1.Reasons() {
		want = append(want, string(reason))
	}
	sameList(t, "reasons", listed, want)
}

// The words of the README's table for the judge's groups.
var groups = map[verdict.Group]string{
	verdict.GroupVerified: "verified", verdict.GroupBreaksWhenEnabled: "breaksWhenEnabled",
	verdict.GroupRejectedToday: "rejectedToday", verdict.GroupUnknown: "unknown",
}

func TestFindingsAreThoseOfTheAudit(t *testing.T) {
	var listed []string
	for _, row := range table(t, "Findings") {
		listed = append(listed, unquoted(row[0]))
		if len(row) != 3 || row[1] == "" || row[2] == "" {
			t.Errorf("what it says or what to do is missing: %q", row)
		}
	}
	sameList(t, "findings", listed, audit.FindingKinds())
}

func TestGroupsAreTheJudges(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section(t, "kubelet-cert-auditor"), -1)
	var listed []string
	for _, row := range rows {
		listed = append(listed, row[1])
	}
	sameSet(t, "groups", listed, slices.Collect(maps.Values(groups)))
}

// The statuses that the comments of the reasons give, as in "(False; Unknown
// while the Node is young)", must be those of the defects too.
func TestStatusesAreThoseOfTheDefects(t *testing.T) {
	statuses := documentedStatuses(t)
	for _, d := range certs.Defects() {
		if got := statuses[string(d.Reason)].String(); got != d.Status {
			t.Errorf("%s: %s is %s in words.go, %s in the list of defects", d.Name, d.Reason, got, d.Status)
		}
	}
}

var statusInComment = regexp.MustCompile(`^\w+ \((True|False|Unknown)[;)]`)

func documentedStatuses(t *testing.T) map[string]verdict.Status {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "api/v1alpha1/words.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]verdict.Status{"True": verdict.True, "False": verdict.False, "Unknown": verdict.Unknown}
	statuses := map[string]verdict.Status{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		status := statusInComment.FindStringSubmatch(spec.Doc.Text())
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if status == nil || !ok {
			t.Errorf("%s: its comment does not give its status", spec.Names[0].Name)
			return true
		}
		statuses[strings.Trim(literal.Value, `"`)] = words[status[1]]
		return true
	})
	return statuses
}

func TestChecksAreThoseOfTheAPI(t *testing.T) {
	var listed, want []string
	for _, match := range regexp.MustCompile("(?m)^- `(\\w+)`:").FindAllStringSubmatch(section(t, "How it works"), -1) {
		listed = append(listed, match[1])
	}
	for _, name := range v1alpha1.CheckNames() {
		want = append(want, string(name))
	}
	sameList(t, "checks", listed, want)
}

func TestReviewReasonsAreThoseOfTheAPI(t *testing.T) {
	var listed, want []string
	for _, row := range rowsOf(sectionOf(t, document(t, "docs/admission.md"), "Reasons")) {
		listed = append(listed, unquoted(row[0]))
		if len(row) != 3 || row[1] == "" || row[2] == "" {
			t.Errorf("its meaning or what to do is missing: %q", row)
		}
	}
	for _, reason := range v1alpha1.ReviewReasons() {
		want = append(want, string(reason))
	}
	sameList(t, "reasons of a review", listed, want)
	for _, decision := range v1alpha1.ReviewDecisions() {
		if !strings.Contains(section(t, "Metrics"), "`"+string(decision)+"`") {
			t.Errorf("the decision %s is missing", decision)
		}
	}
}

// A Desc shows its name and labels in its String alone.
var descWords = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`)

func TestMetricsAreThoseOfTheCollector(t *testing.T) {
	descs := make(chan *prometheus.Desc, 100)
	metrics.New(clock.RealClock{}, 0).Describe(descs)
	close(descs)
	labels := map[string][]string{}
	for desc := range descs {
		words := descWords.FindStringSubmatch(desc.String())
		if words == nil {
			t.Fatalf("%s has no name", desc)
		}
		labels[words[1]] = strings.FieldsFunc(words[2], func(r rune) bool { return r == ',' })
	}
	var listed []string
	for _, row := range table(t, "Metrics") {
		name := unquoted(row[0])
		if !strings.HasPrefix(name, "kubelet_cert_auditor_") { // the other table there is about alerts
			continue
		}
		listed = append(listed, name)
		sameList(t, "labels of "+name, quotedWords(row[2]), labels[name])
	}
	sameSet(t, "metrics", listed, slices.Collect(maps.Keys(labels)))
	text := section(t, "Metrics")
	for _, outcome := range verdict.Outcomes() {
		if !strings.Contains(text, "`"+outcome.String()+"`") {
			t.Errorf("the outcome %s is missing", outcome)
		}
	}
	for _, name := range regexp.MustCompile(`\bkubelet_cert_auditor_\w+`).FindAllString(readme(t), -1) {
		if _, known := labels[name]; !known {
			t.Errorf("there is no metric %s", name)
		}
	}
}

// A flag in the words of pflag; the group is its long name.
var flagInHelp = regexp.MustCompile(`^ +(?:-\w, )?--([a-z0-9-]+)`)

func TestFlagsAreThoseOfTheCommands(t *testing.T) {
	connection := table(t, "Flags of the connection")
	for _, command := range []string{"audit", "verify", "cleanup", "manager"} {
		rows := table(t, "Flags of "+command)
		if strings.Contains(section(t, "Flags of "+command), "(#flags-of-the-connection)") {
			rows = append(rows, connection...)
		}
		listed := map[string]string{} // flag -> default
		for _, row := range rows {
			for _, name := range quotedWords(row[0]) {
				if long, ok := strings.CutPrefix(name, "--"); ok {
					listed[long] = row[1]
				}
			}
		}
		flags := flagsOf(t, command)
		sameSet(t, "flags of "+command, slices.Collect(maps.Keys(listed)), slices.Collect(maps.Keys(flags)))
		for name, value := range flags {
			if value != "" && !slices.Contains(quotedWords(listed[name]), value) {
				t.Errorf("%s --%s: the default is %s, the README says %s", command, name, value, listed[name])
			}
		}
	}
}

var defaultInHelp = regexp.MustCompile(`\(default \[?"?([^"\])]*)"?\]?\)$`)

// flagsOf are a command's flags and their defaults, empty for zero values.
func flagsOf(t *testing.T, command string) map[string]string {
	t.Helper()
	var out bytes.Buffer
	code, err := cli.Run(t.Context(), []string{command, "--help"}, cli.Streams{Out: &out, Err: &out})
	if code != cli.ExitReady || err != nil {
		t.Fatalf("%s --help: %d, %v", command, code, err)
	}
	flags := map[string]string{}
	for line := range strings.Lines(out.String()) {
		name := flagInHelp.FindStringSubmatch(line)
		if name == nil || name[1] == "help" {
			continue
		}
		flags[name[1]] = ""
		if value := defaultInHelp.FindStringSubmatch(strings.TrimSpace(line)); value != nil {
			flags[name[1]] = value[1]
		}
	}
	return flags
}

func TestSpecIsThatOfTheCRD(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "config/crd/bases/kubeletcert.dev_kubeletcertaudits.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema property }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	fields := map[string]property{}
	leaves("", schema.Properties["spec"], fields)
	var listed []string
	for _, row := range table(t, "Spec") {
		name := unquoted(row[0])
		listed = append(listed, name)
		if want := fields[name].defaultText(); want != "" && unquoted(row[1]) != want {
			t.Errorf("spec.%s: the default is %s, the README says %s", name, want, row[1])
		}
	}
	sameSet(t, "fields of the spec", listed, slices.Collect(maps.Keys(fields)))

	listed = nil
	for _, row := range table(t, "Status") {
		if len(row) == 2 { // the other table there is about conditions
			listed = append(listed, unquoted(row[0]))
		}
	}
	sameSet(t, "fields of the status", listed, slices.Collect(maps.Keys(schema.Properties["status"].Properties)))
}

type property struct {
	Default    any
	Properties map[string]property
}

func (p property) defaultText() string {
	switch value := p.Default.(type) {
	case nil:
		return ""
	case []any:
		words := make([]string, len(value))
		for i := range value {
			words[i] = fmt.Sprint(value[i])
		}
		return strings.Join(words, ", ")
	}
	return fmt.Sprint(p.Default)
}

// leaves finds the fields without fields of their own, and nodeSelector, which
// is Kubernetes' own.
func leaves(path string, p property, into map[string]property) {
	for name, field := range p.Properties {
		full := strings.TrimPrefix(path+"."+name, ".")
		if len(field.Properties) == 0 || full == "nodeSelector" {
			into[full] = field
			continue
		}
		leaves(full, field, into)
	}
}

func TestConditionReasonsAreThoseOfTheAPI(t *testing.T) {
	var listed []string
	rows := map[string]bool{}
	for _, row := range table(t, "Status") {
		if len(row) == 4 {
			listed = append(listed, unquoted(row[2]))
			if condition := row[0] + row[2]; rows[condition] {
				t.Errorf("%s with %s twice", row[0], row[2])
			} else {
				rows[condition] = true
			}
		}
	}
	slices.Sort(listed) // a reason may be one of several conditions
	sameSet(t, "reasons of the audit's conditions", slices.Compact(listed), []string{
		v1alpha1.AuditReasonAllNodesVerified, v1alpha1.AuditReasonNodesWouldBreak, v1alpha1.AuditReasonNodesRejectedToday,
		v1alpha1.AuditReasonNodesUnknown, v1alpha1.AuditReasonNodesExcluded, v1alpha1.AuditReasonNoNodes,
		v1alpha1.AuditReasonSweepOverdue, v1alpha1.AuditReasonLoaded, v1alpha1.AuditReasonSomeUnreadable,
		v1alpha1.AuditReasonKeptLastGood, v1alpha1.AuditReasonNotLoaded, v1alpha1.AuditReasonAPIServerDiffers,
		v1alpha1.AuditReasonFlagSet, v1alpha1.AuditReasonFlagMissing, v1alpha1.AuditReasonNotVisible,
		v1alpha1.AuditReasonNotAllowed, v1alpha1.AuditReasonNotUnderstood,
	})
}

func TestExitCodesAreThoseOfTheCLI(t *testing.T) {
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^\| ([0-9]) \|`).FindAllStringSubmatch(section(t, "Audit once"), -1) {
		listed = append(listed, match[1])
	}
	var want []string
	for _, code := range []int{cli.ExitReady, cli.ExitNotReady, cli.ExitUnknown, cli.ExitCannotRun} {
		want = append(want, strconv.Itoa(code))
	}
	sameList(t, "exit codes", listed, want)
}

// What the demo is said to show is the list of defects.
func TestDefectsAreCounted(t *testing.T) {
	wrong := 0
	for _, d := range certs.Defects() {
		if d.Status != "True" {
			wrong++
		}
	}
	if want := fmt.Sprintf("wrong in one of %d ways", wrong); !strings.Contains(section(t, "Try it"), want) {
		t.Errorf("it does not say %q", want)
	}
}

// A path of this repository; others, such as /etc/..., do not start a word.
var pathInText = regexp.MustCompile("(?m)(?:^|[\\s`(=])((?:\\.ci|api|config|controllers|internal|test)/[\\w./-]*\\w)")

func TestPathsExist(t *testing.T) {
	found := 0
	for _, page := range documents(t) {
		for _, match := range pathInText.FindAllStringSubmatch(document(t, page), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d paths were found", found)
	}
}

var (
	linkInText    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingInText = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor   = regexp.MustCompile(`[^\w -]`)
)

// Links of the README and of every document in docs lead to files, and to their
// headings.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range documents(t) {
		for _, match := range linkInText.FindAllStringSubmatch(document(t, page), -1) {
			link, anchor, _ := strings.Cut(match[1], "#")
			if strings.HasPrefix(link, "https://") {
				continue
			}
			target := page
			if link != "" {
				target = filepath.Join(filepath.Dir(page), link)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if anchor != "" && !anchorsOf(document(t, target))[anchor] {
				t.Errorf("%s: %s has no heading with the anchor %s", page, target, anchor)
			}
		}
	}
}

// documents are the Markdown files at the root and in docs.
func documents(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range found {
			page, err := filepath.Rel(root, page)
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, page)
		}
	}
	return pages
}

// Each reason and alert has its page, with what an operator looks for there, and
// there is no page of anything else.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "config/prometheus/prometheus_rule.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var alerts, want []string
	severities := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^ +- alert: (\w+)\n(?:.*\n)*? +severity: (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		alerts = append(alerts, match[1])
		severities[match[1]] = match[2]
	}
	var listed []string
	for _, row := range table(t, "Metrics") {
		if name := unquoted(row[0]); severities[name] != "" {
			listed = append(listed, name)
			if row[1] != severities[name] {
				t.Errorf("%s: severity %s, the rule says %s", name, row[1], severities[name])
			}
		}
	}
	sameSet(t, "alerts", listed, slices.Clone(alerts))

	want = append(want, alerts...)
	for _, reason := range v1alpha1.Reasons() {
		want = append(want, string(reason))
		if page := reason.Page(); page != v1alpha1.Runbooks+string(reason)+".md" {
			t.Errorf("the page of %s is %s", reason, page)
		}
	}
	var pages []string
	for _, page := range documents(t) {
		if filepath.Dir(page) != "docs/runbooks" {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		pages = append(pages, name)
		text := document(t, page)
		if name == string(v1alpha1.ReasonVerified) {
			continue
		}
		for _, words := range []string{"# " + name + "\n", "**Meaning.**", "**Impact.**", "\n## Diagnosis\n", "\n## Remedy\n"} {
			if !strings.Contains(text, words) {
				t.Errorf("%s: no %q", page, words)
			}
		}
		if _, diagnosis, _ := strings.Cut(text, "## Diagnosis"); !strings.Contains(diagnosis, "\n    kubectl ") {
			t.Errorf("%s: no command that can be pasted", page)
		}
	}
	sameSet(t, "runbooks", pages, want)
}

func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, heading := range headingInText.FindAllStringSubmatch(text, -1) {
		anchor := notInAnchor.ReplaceAllString(strings.ToLower(heading[1]), "")
		anchors[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return anchors
}

func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(string(makefile), -1) {
		targets[match[1]] = false
	}
	for _, match := range regexp.MustCompile("(?m)(?:^ {4}|`)make ([a-z0-9 -]+)").FindAllStringSubmatch(readme(t), -1) {
		for target := range strings.FieldsSeq(match[1]) {
			if _, ok := targets[target]; !ok {
				t.Errorf("the Makefile has no target %s", target)
			}
			targets[target] = true
		}
	}
	for target, named := range targets {
		if !named {
			t.Errorf("make %s is not named", target)
		}
	}
}

// readme is README.md and the documents that hold what it leaves out.
func readme(t *testing.T) string {
	t.Helper()
	text := ""
	for _, path := range []string{"README.md", "docs/install.md", "docs/reference.md", "docs/distributions.md", "docs/security.md", "CONTRIBUTING.md"} {
		text += document(t, path) + "\n"
	}
	return text
}

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section is what stands between a heading and the next one of any level.
func section(t *testing.T, heading string) string {
	t.Helper()
	return sectionOf(t, readme(t), heading)
}

func sectionOf(t *testing.T, text, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(text, "# "+heading+"\n")
	if !found {
		t.Fatalf("there is no section %q", heading)
	}
	if next := headingOutsideCode(text); next >= 0 {
		text = text[:next]
	}
	return text
}

// headingOutsideCode is where the next heading starts, or -1; in an indented or
// fenced block, # starts a comment.
func headingOutsideCode(text string) int {
	at, fenced := 0, false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if !fenced && strings.HasPrefix(line, "#") {
			return at
		}
		at += len(line)
	}
	return -1
}

// table gives the cells of a section's rows whose first cell is code.
func table(t *testing.T, heading string) [][]string {
	t.Helper()
	return rowsOf(section(t, heading))
}

func rowsOf(section string) [][]string {
	var rows [][]string
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

func unquoted(cell string) string { return strings.Trim(cell, "`") }

func quotedWords(cell string) []string {
	var words []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		words = append(words, match[1])
	}
	return words
}

func sameSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	sameList(t, what, got, want)
}

func sameList(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\nREADME %q\ncode   %q", what, got, want)
	}
}
