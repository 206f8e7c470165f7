package verdict

import (
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
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

// message puts the dialled endpoint, the answer, every failing check and the
// hint into one bounded line.
func message(exp Expectation, headline string, findings []Finding, hint string) string {
	var b strings.Builder
	b.WriteString(headline)
	if exp.Endpoint.Host != "" {
		fmt.Fprintf(&b, " (dialled %s %s port %d)", exp.Endpoint.AddressType, Quote(exp.Endpoint.Host), exp.Endpoint.Port)
	}
	b.WriteByte('.')
	for _, f := range findings {
		fmt.Fprintf(&b, " %s: %s.", f.Check, f.Message)
	}
	if hint == "" {
		return Cut(b.String(), maxMessage)
	}
	// What to do is worth more than the end of a long list of names.
	tail := " Hint: " + hint + "."
	return Cut(Cut(b.String(), max(maxMessage-len(tail), maxMessage/2))+tail, maxMessage)
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
