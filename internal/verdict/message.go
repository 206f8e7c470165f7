package verdict

import (
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

const (
	// maxMessage is the longest message in bytes; the note of an Event allows
	// no more than 1,024.
	maxMessage = 1024
	// maxQuoted is how much of a peer's string is shown, in bytes.
	maxQuoted = 160
	// maxNames is how many SANs are listed.
	maxNames = 4
)

// message puts the dialled endpoint, the answer, every failing check, the hint
// and the reason's page into one bounded line.
func message(exp Expectation, reason v1alpha1.Reason, headline string, findings []Finding, hint string) string {
	var b strings.Builder
	b.WriteString(headline)
	if exp.Endpoint.Host != "" {
		fmt.Fprintf(&b, " (dialled %s %s port %d)", exp.Endpoint.AddressType, Quote(exp.Endpoint.Host), exp.Endpoint.Port)
	}
	b.WriteByte('.')
	for _, f := range findings {
		fmt.Fprintf(&b, " %s: %s.", f.Check, f.Message)
	}
	tail := ""
	if hint != "" {
		tail = " Hint: " + hint + "."
	}
	// What to do is worth more than the end of a long list of names.
	page := seePage(reason)
	tail = Cut(tail, maxMessage/2-len(page)) + page
	return Cut(b.String(), maxMessage-len(tail)) + tail
}

// seePage ends the message of every reason that asks for something.
func seePage(reason v1alpha1.Reason) string {
	if reason == v1alpha1.ReasonVerified {
		return ""
	}
	return " See " + reason.Page()
}

// WithoutPage is a verdict's message without the address of its reason's page,
// for where many messages stand below each other.
func WithoutPage(message string, reason v1alpha1.Reason) string {
	return strings.TrimSuffix(message, seePage(reason))
}

// Quote makes hostile input safe to show: escaped, and bounded.
func Quote(s string) string {
	return strconv.Quote(Cut(s, maxQuoted))
}

// Bounded cuts a message to what the note of an Event allows.
func Bounded(s string) string { return Cut(s, maxMessage) }

// Cut shortens to limit bytes, on a rune boundary, and marks the cut.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("...")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// sanList shows the names that a certificate is for.
func sanList(c *x509.Certificate) string {
	names := make([]string, 0, maxNames)
	add := func(s string) {
		if len(names) < maxNames {
			names = append(names, s)
		}
	}
	for _, ip := range c.IPAddresses {
		add(ip.String())
	}
	for _, dns := range c.DNSNames {
		add(Quote(dns))
	}
	total := len(c.IPAddresses) + len(c.DNSNames)
	switch {
	case total == 0:
		return "no address at all (it has no DNS or IP SAN)"
	case total > maxNames:
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), total-maxNames)
	}
	return strings.Join(names, ", ")
}

// Count writes a number and its noun, such as "1 node" or "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
