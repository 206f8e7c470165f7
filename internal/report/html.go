package report

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

//go:embed page
var pageFiles embed.FS

var (
	pageStyle  = pageFile("style.css")
	pageScript = pageFile("filter.js")
	// The page may load nothing, from anywhere, and run this one script, which
	// it can do without.
	pagePolicy = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'",
		sourceHash(pageStyle), sourceHash(pageScript))
	pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
		"address": address, "plain": plain, "quote": verdict.Quote, "date": date, "short": short, "group": groupName, "list": quotedList,
		"duration": func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() },
	}).Parse(pageFile("page.html")))
)

func pageFile(name string) string {
	text, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// sourceHash is how a Content-Security-Policy names a script or style.
func sourceHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

type pageData struct {
	*audit.Report
	Policy   string
	Style    template.CSS
	Script   template.JS
	Headline string
	Head     []string
	Groups   []pageGroup
	Checks   []pageCheck
	Remedies []pageRemedy
}

type pageGroup struct {
	Name, Meaning string
	Count         int
}

type pageCheck struct {
	Name v1alpha1.CheckName
	*audit.CheckSummary
}

type pageRemedy struct {
	Reason v1alpha1.Reason
	Group  string
	Count  int
	Text   string
	Page   string
}

// page is a report to look at: one file that needs nothing else.
func page(w io.Writer, r *audit.Report) error {
	s := r.Summary
	d := pageData{
		Report: r, Policy: pagePolicy, Style: template.CSS(pageStyle), Script: template.JS(pageScript), //nolint:gosec // both are embedded
		Headline: headline(r), Head: head(r),
		Groups: []pageGroup{
			{groupName(verdict.GroupVerified), "accepted, also with the CN check on", s.Verified},
			{groupName(verdict.GroupBreaksWhenEnabled), "accepted today, refused once the CN check is on", s.BreaksWhenEnabled},
			{groupName(verdict.GroupRejectedToday), "refused by any kube-apiserver that verifies kubelets", s.RejectedToday},
			{groupName(verdict.GroupUnknown), "no evidence; never counted as good", s.Unknown},
		},
	}
	for _, name := range v1alpha1.CheckNames() {
		d.Checks = append(d.Checks, pageCheck{name, s.Checks[name]})
	}
	d.Remedies = pageRemedies(r.Nodes)
	return pageTemplate.Execute(w, d)
}

// pageRemedies has an entry for each reason that is there, the most frequent
// first within what is worse.
func pageRemedies(nodes []audit.Node) []pageRemedy {
	var all []pageRemedy
	for _, n := range nodes { // worst first
		i := slices.IndexFunc(all, func(p pageRemedy) bool { return p.Reason == n.Reason && p.Group == groupName(n.Group) })
		if i < 0 {
			if n.Reason == v1alpha1.ReasonVerified {
				continue
			}
			i = len(all)
			all = append(all, pageRemedy{Reason: n.Reason, Group: groupName(n.Group), Text: remedies[n.Reason], Page: n.Reason.Page()})
		}
		all[i].Count++
	}
	return all
}

// groupName is also a class of the page's style.
func groupName(g verdict.Group) string {
	switch g {
	case verdict.GroupVerified:
		return "verified"
	case verdict.GroupBreaksWhenEnabled:
		return "breaksWhenEnabled"
	case verdict.GroupRejectedToday:
		return "rejectedToday"
	case verdict.GroupUnknown:
	}
	return "unknown"
}

func short(n audit.Node) string { return verdict.WithoutPage(n.Message, n.Reason) }

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

func quotedList(words []string) string {
	text := ""
	for i, w := range words {
		if i > 0 {
			text += ", "
		}
		text += verdict.Quote(w)
	}
	return text
}

// remedies say what to do, in a sentence; the reason's page has the rest.
var remedies = map[v1alpha1.Reason]string{
	v1alpha1.ReasonVerified:               "Nothing.",
	v1alpha1.ReasonCommonNameMismatch:     "Have the certificate issued by the kubernetes.io/kubelet-serving signer; leave the check off until then.",
	v1alpha1.ReasonUnknownAuthority:       "Have the certificate issued by a CA of the trust bundle, have the intermediates served, or correct the bundle.",
	v1alpha1.ReasonAddressMismatch:        "Reissue the certificate with the address dialled as a SAN, or correct the preferred address types.",
	v1alpha1.ReasonCertificateExpired:     "Renew it, and look why the kubelet's rotation did not.",
	v1alpha1.ReasonCertificateNotYetValid: "Check the clocks of the node, of the signer and of the machine that ran this.",
	v1alpha1.ReasonKeyUsageMismatch:       "Reissue it with the extended key usage serverAuth.",
	v1alpha1.ReasonCertificateInvalid:     "Read the message, and reissue the certificate.",
	v1alpha1.ReasonNoServingCertificate:   "Approve the kubelet's pending request.",
	v1alpha1.ReasonNotTLS:                 "Check address and port: is this the kubelet?",
	v1alpha1.ReasonHandshakeFailed:        "Compare the kubelet's TLS settings; if it did not prove to hold the key, find out who answers there.",
	v1alpha1.ReasonNoAddress:              "Correct the preferred address types, or look why the Node has no address.",
	v1alpha1.ReasonAddressNotAllowed:      "Correct the Node's address.",
	v1alpha1.ReasonNameResolutionFailed:   "Look from where kube-apiserver runs, or correct the preferred address types.",
	v1alpha1.ReasonConnectionFailed:       "Is the kubelet up? Look at routes, firewalls and NetworkPolicies.",
	v1alpha1.ReasonConnectionClosed:       "Look for a proxy or load balancer in between, and into the kubelet's log.",
	v1alpha1.ReasonProbeTimeout:           "Is the kubelet up? Look at routes and firewalls, or raise the time limit.",
	v1alpha1.ReasonNoTrustBundle:          "Pass the CA that kube-apiserver has for kubelets.",
	v1alpha1.ReasonNotProbedYet:           "Look again.",
}
