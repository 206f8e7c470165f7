package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// The JUnit format as CI systems read it: one test case for each node. A node
// that would be refused is a failure, one without evidence an error, both by
// what decides the exit code. Where that is not 0 because of something else, that
// is a test case too.
type (
	testSuites struct {
		XMLName xml.Name    `xml:"testsuites"`
		Suites  []testSuite `xml:"testsuite"`
	}
	testSuite struct {
		Name       string     `xml:"name,attr"`
		Timestamp  string     `xml:"timestamp,attr"`
		Tests      int        `xml:"tests,attr"`
		Failures   int        `xml:"failures,attr"`
		Errors     int        `xml:"errors,attr"`
		Skipped    int        `xml:"skipped,attr"`
		Time       string     `xml:"time,attr"`
		Properties []property `xml:"properties>property"`
		Cases      []testCase `xml:"testcase"`
		Out        string     `xml:"system-out"`
	}
	property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	testCase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Time    string   `xml:"time,attr"`
		Failure *problem `xml:"failure"`
		Error   *problem `xml:"error"`
		Out     string   `xml:"system-out,omitempty"`
	}
	problem struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func junit(w io.Writer, r *audit.Report) error {
	suite := testSuite{
		Name: "kubelet serving certificates", Timestamp: r.Time.Format("2006-01-02T15:04:05"), Tests: len(r.Nodes),
		Properties: []property{
			{"readiness", string(r.Readiness)}, {"what", string(r.What)}, {"selector", plain(r.Selector)},
			{"trustBundle", plain(r.TrustBundle.Source)}, {"trustBundleSHA256", r.TrustBundle.SHA256},
		},
	}
	for _, line := range head(r) {
		suite.Out += line + "\n"
	}
	for _, f := range r.Findings {
		suite.Out += finding(f) + "\n"
	}
	total := 0.0
	for _, n := range r.Nodes {
		seconds := float64(n.DurationMilliseconds) / 1000
		total += seconds
		c := testCase{Name: plain(n.Name), Class: "kubelet", Time: fmt.Sprintf("%.3f", seconds)}
		p := &problem{Type: string(n.Reason), Message: n.Message, Text: n.Message}
		switch n.Answer {
		case verdict.False:
			c.Failure = p
			suite.Failures++
		case verdict.Unknown:
			c.Error = p
			suite.Errors++
		case verdict.True:
			c.Out = string(n.Reason) + ": " + n.Message
		}
		suite.Cases = append(suite.Cases, c)
	}
	if suite.Failures+suite.Errors == 0 && r.Answer != verdict.Ready {
		c := testCase{Name: "nodes", Class: "kubelet", Time: "0.000"}
		p := &problem{Type: "NoNodes", Message: "there is no node"}
		if len(r.Nodes) > 0 {
			c.Name, c.Class = "flags", "kube-apiserver"
			p = &problem{Type: "Flags", Message: aboutAPIServers(r)}
		}
		if r.Answer == verdict.NotReady {
			c.Failure = p
			suite.Failures++
		} else {
			c.Error = p
			suite.Errors++
		}
		suite.Tests++
		suite.Cases = append(suite.Cases, c)
	}
	suite.Time = fmt.Sprintf("%.3f", total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(testSuites{Suites: []testSuite{suite}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// aboutAPIServers are the findings that are about no node.
func aboutAPIServers(r *audit.Report) string {
	var messages []string
	for _, f := range r.Findings {
		if len(f.Nodes) == 0 {
			messages = append(messages, f.Message)
		}
	}
	return strings.Join(messages, "; ")
}
