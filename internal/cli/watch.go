package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

func (o *auditOptions) validateWatch() []error {
	problems := validatePositive("--watch-interval", o.pause)
	if !o.watch {
		return problems
	}
	if format := report.Format(o.output); format != report.Table && format != report.Wide {
		problems = append(problems, fmt.Errorf("--output=%q: --watch takes %s or %s", o.output, report.Table, report.Wide))
	}
	if o.filename == "-" {
		problems = append(problems, fmt.Errorf("--filename=%q: --watch cannot read standard input again", o.filename))
	}
	return problems
}

// watchUntilReady looks until every node passes, or until it is interrupted,
// and then answers by its last look. What is wrong at the first look is an
// error; later on, an API server that is away is waited for.
func (o *auditOptions) watchUntilReady(ctx context.Context) error {
	var last *audit.Report
	for {
		result, err := o.sweep(ctx)
		switch {
		case err != nil && ctx.Err() == nil && last == nil:
			return err
		case err != nil && ctx.Err() == nil:
			_, _ = fmt.Fprintf(o.streams.Err, "no look: %s; the one above is of %s\n", verdict.Quote(err.Error()), last.Time.Format(time.TimeOnly))
		case err == nil && !result.Interrupted:
			last = result
			if err := o.paint(last); err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
		}
		if last != nil && last.Answer == verdict.Ready {
			return nil
		}
		select {
		case <-ctx.Done():
			if last == nil {
				return answerOf(verdict.ReadinessUnknown)
			}
			return answerOf(last.Answer)
		case <-time.After(o.pause):
		}
	}
}

// clearScreen moves to the upper left corner and clears from there.
const clearScreen = "\x1b[H\x1b[J"

// paint shows a report: over the last one and as far as it fits where there is a
// terminal, else below.
func (o *auditOptions) paint(r *audit.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, again in %s\n", r.Time.Format(time.DateTime+" MST"), o.pause)
	if err := report.Render(&b, r, report.Format(o.output)); err != nil {
		return err
	}
	text := b.String() + "\n"
	if file, ok := o.streams.Out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return err
		}
		text = clearScreen + fit(b.String(), width, height)
	}
	_, err := fmt.Fprint(o.streams.Out, text)
	return err
}

// fit cuts a text to a terminal's width and height, and says how much is left out.
func fit(text string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	rest := 0
	if room := max(height-2, 1); len(lines) > room { // a line for what is left out, one for the cursor
		lines, rest = lines[:room], len(lines)-room
	}
	for i, line := range lines {
		lines[i] = verdict.Cut(line, max(width, len("...")))
	}
	if rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d lines more", rest))
	}
	return strings.Join(lines, "\n") + "\n"
}
