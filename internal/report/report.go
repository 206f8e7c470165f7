// Package report renders an audit's Report.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Format of a rendered report.
type Format string

// The formats.
const (
	Table Format = "table"
	Wide  Format = "wide"
	JSON  Format = "json"
	YAML  Format = "yaml"
	HTML  Format = "html"
	JUnit Format = "junit"
)

// Formats lists the formats.
func Formats() []string {
	return []string{string(Table), string(Wide), string(JSON), string(YAML), string(HTML), string(JUnit)}
}

// Render writes a report. Table, wide, HTML and JUnit quote whatever peers and
// Nodes say; JSON and YAML hold it as it is, with escapes where a terminal would
// obey it.
func Render(w io.Writer, r *audit.Report, format Format) error {
	switch format {
	case JSON:
		text, err := encode(r)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	case YAML:
		text, err := encode(r)
		if err != nil {
			return err
		}
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	case Table, Wide:
		return table(w, r, format == Wide)
	case HTML:
		return page(w, r)
	case JUnit:
		return junit(w, r)
	}
	return fmt.Errorf("unknown format %q", format)
}

// encode gives JSON without raw characters that are not printable: encoding/json
// leaves some that a terminal obeys, and at which YAML readers give up. Those
// beyond 16 bits stay; they are harmless, and YAML has no surrogate pairs.
func encode(r *audit.Report) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return nil, err
	}
	text := make([]byte, 0, b.Len())
	for _, c := range b.String() {
		if c != '\n' && c <= 0xFFFF && !unicode.IsPrint(c) {
			text = fmt.Appendf(text, `\u%04x`, c)
			continue
		}
		text = utf8.AppendRune(text, c)
	}
	return text, nil
}

func table(w io.Writer, r *audit.Report, wide bool) error {
	lines := head(r)
	for _, f := range r.Findings {
		lines = append(lines, finding(f))
	}
	if len(r.Nodes) > 0 {
		if r.Summary.Verified < r.Summary.Total {
			lines = append(lines, "What to do, by reason: "+v1alpha1.Runbooks+"REASON.md")
		}
		lines = append(lines, "")
	}
	for _, line := range lines {
		if _, err := io.WriteString(w, line+"\n"); err != nil {
			return err
		}
	}
	tab := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	rows(tab, r, wide)
	return tab.Flush()
}

func finding(f audit.Finding) string {
	if len(f.Nodes) == 0 {
		return fmt.Sprintf("Finding %s: %s", f.Kind, f.Message)
	}
	return fmt.Sprintf("Finding %s: %s (%s)", f.Kind, f.Message, names(f.Nodes))
}

// head is the answer and what it rests on, in lines.
func head(r *audit.Report) []string {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	s := r.Summary
	if r.Selector != "" {
		line("Only the nodes that match %s; %d others were left out, but kube-apiserver's switch is for all.", plain(r.Selector), s.Excluded)
	}
	if r.Interrupted {
		line("Interrupted: this is what was known by then.")
	}
	tally := verdict.Tally{Verified: s.Verified, BreaksWhenEnabled: s.BreaksWhenEnabled, RejectedToday: s.RejectedToday, Unknown: s.Unknown}
	line("%s: %s.", headline(r), tally.Sentence())
	switch r.What {
	case verdict.WhatTLS:
		line("Without the common name (--what tls) the answer is %s: this is about today, not about turning the check on.", r.Answer)
	case verdict.WhatCN:
		line("By the common name alone (--what cn) the answer is %s.", r.Answer)
	case verdict.WhatBoth:
	}
	if r.TrustBundle.Certificates == 0 {
		line("No CA was given, so no chain was verified: pass --kubelet-certificate-authority.")
		return lines
	}
	line("Trust bundle: %s, %s, sha256 %.16s.", plain(r.TrustBundle.Source), verdict.Count(r.TrustBundle.Certificates, "certificate"), r.TrustBundle.SHA256)
	if r.ClusterCA {
		line("This is the cluster CA: the API server's own --kubelet-certificate-authority was not read.")
	}
	for _, warning := range r.TrustBundle.Warnings {
		line("Warning: trust bundle: %s", warning)
	}
	return lines
}

func headline(r *audit.Report) string {
	switch r.Readiness {
	case verdict.Ready:
		return "READY"
	case verdict.NotReady:
		return "NOT READY"
	case verdict.ReadinessUnknown:
	}
	return "UNKNOWN"
}

func rows(w io.Writer, r *audit.Report, wide bool) {
	if len(r.Nodes) == 0 {
		return
	}
	header := []string{"NAME", "STATUS", "REASON", "ADDRESS"}
	if wide {
		header = append(header, "COMMON NAME", "ISSUER", "NOT AFTER", "TLS", "TIME")
	}
	row(w, append(header, "MESSAGE"))
	for _, n := range r.Nodes {
		cells := []string{plain(n.Name), n.Status, string(n.Reason), address(n)}
		if wide {
			cells = append(cells, certificate(n.Certificate)...)
			cells = append(cells, dash(n.TLSVersion), (time.Duration(n.DurationMilliseconds) * time.Millisecond).String())
		}
		row(w, append(cells, verdict.WithoutPage(n.Message, n.Reason)))
	}
}

func row(w io.Writer, cells []string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) }

func address(n audit.Node) string {
	if n.Address == "" {
		return "-"
	}
	return plain(n.Address) + ":" + strconv.Itoa(int(n.Port))
}

func certificate(c *audit.Certificate) []string {
	if c == nil {
		return []string{"-", "-", "-"}
	}
	return []string{verdict.Quote(c.CommonName), verdict.Quote(c.Issuer), c.NotAfter.Format(time.RFC3339)}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// plain leaves ordinary words as they are and escapes everything else, which
// would break the table or the terminal.
func plain(s string) string {
	if quoted := verdict.Quote(s); quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

// maxListed nodes of a finding; the JSON has all.
const maxListed = 5

func names(nodes []string) string {
	list := make([]string, 0, maxListed)
	for _, n := range nodes[:min(len(nodes), maxListed)] {
		list = append(list, plain(n))
	}
	if len(nodes) > maxListed {
		return fmt.Sprintf("%d nodes: %s, ...", len(nodes), strings.Join(list, ", "))
	}
	return strings.Join(list, ", ")
}
