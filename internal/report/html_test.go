package report_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

const markup = `<script>document.title="owned"</script><img src=x onerror=alert(1)>"'><style>*{display:none}</style>{{.}}&amp;`

func TestMarkupOfAPeerIsText(t *testing.T) {
	got, benign := render(t, hostileCluster(markup).run(), report.HTML), render(t, hostileCluster(strings.Repeat("b", len(markup))).run(), report.HTML)
	tags := regexp.MustCompile(`<[a-zA-Z!/][^>]*>`)
	if a, b := len(tags.FindAllString(got, -1)), len(tags.FindAllString(benign, -1)); a != b {
		t.Errorf("%d tags, want the %d of a report without markup", a, b)
	}
	for _, word := range []string{"<img", `<script>document`, "<style>*"} {
		if strings.Contains(got, word) {
			t.Errorf("there is %s", word)
		}
	}
	if !strings.Contains(got, "&lt;script&gt;document.title") {
		t.Error("the markup is not shown")
	}
}

// The policy allows the style and the script that are there, and nothing else.
func TestPolicyIsStrict(t *testing.T) {
	got := render(t, newCluster().add("a", nil).run(), report.HTML)
	policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(got)
	if policy == nil {
		t.Fatal("there is no policy")
	}
	hash := func(tag string) string {
		text := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(got, -1)
		if len(text) != 1 {
			t.Fatalf("%d times <%s>", len(text), tag)
		}
		sum := sha256.Sum256([]byte(text[0][1]))
		return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	}
	unescaped := strings.NewReplacer("&#39;", "'", "&#43;", "+").Replace(policy[1])
	want := "default-src 'none'; style-src '" + hash("style") + "'; script-src '" + hash("script") + "'; base-uri 'none'; form-action 'none'"
	if unescaped != want {
		t.Errorf("policy %s\nwant   %s", unescaped, want)
	}
	if regexp.MustCompile(`(?i)\s(src|srcset|on\w+|style)=`).MatchString(got) {
		t.Error("something is loaded, or run inline")
	}
}

func TestPageSaysWhatTheTableSays(t *testing.T) {
	r := newCluster().add("worker-1", nil).add("worker-2", bare).add("worker-3", bare).mute("worker-4").run()
	got := strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&#43;", "+").Replace(render(t, r, report.HTML))
	for _, want := range []string{
		`<p class="answer NotReady">NOT READY</p>`,
		"NOT READY: of 4 nodes 1 are verified, 2 would break once the CN check is on, 0 are refused today, 1 are unknown.",
		`<li class="breaksWhenEnabled"><strong>2</strong>`, "BareNodeNames", "worker-2, worker-3",
		`<td class="number">2</td><td><a href="` + v1alpha1.ReasonCommonNameMismatch.Page() + `">CommonNameMismatch</a>`,
		`<tr class="unknown"><td>worker-4</td><td>Unknown</td><td>ProbeTimeout</td>`,
		`<tr class="verified"><td>worker-1</td><td>True</td><td>Verified</td><td>10.0.0.1:10250</td>`,
		`<dt>Common name</dt><dd>"system:node:worker-1"</dd>`, "Content-Security-Policy",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if n := strings.Count(got, "<tr class=\"breaksWhenEnabled\"><td>worker"); n != 2 {
		t.Errorf("%d rows of nodes that break", n)
	}
}

// Nobody is left without advice.
func TestEveryReasonHasARemedy(t *testing.T) {
	for _, reason := range v1alpha1.Reasons() {
		if reason == v1alpha1.ReasonVerified {
			continue
		}
		r := &audit.Report{Nodes: []audit.Node{{Name: "a", Reason: reason}}, Summary: newCluster().run().Summary}
		got := render(t, r, report.HTML)
		if !regexp.MustCompile(`<td><a href="[^"]+">` + string(reason) + `</a></td><td>\w+</td><td>[^<]{8,}</td>`).MatchString(got) {
			t.Errorf("%s has no remedy", reason)
		}
	}
}

type junitFile struct {
	XMLName xml.Name `xml:"testsuites"`
	Suite   struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func TestJUnit(t *testing.T) {
	three := func() *cluster { return newCluster().add("good", nil).add("bare", bare).mute("mute") }
	for name, c := range map[string]struct {
		cluster                 *cluster
		tests, failures, errors int
		bad                     []string
	}{
		"what would break is a failure": {three(), 3, 1, 1, []string{"bare failed", "mute has an error"}},
		"but not of --what tls": {
			three().with(func(o *audit.Options) { o.What = verdict.WhatTLS }), 3, 0, 1, []string{"mute has an error"},
		},
		"nobody there is no success": {newCluster(), 1, 0, 1, []string{"nodes has an error"}},
		"a name of markup":           {newCluster().add("<&\"\x00", nil), 1, 0, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text := render(t, c.cluster.run(), report.JUnit)
			var f junitFile
			if err := xml.Unmarshal([]byte(text), &f); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			var bad []string
			for _, n := range f.Suite.Cases {
				if n.Failure != nil {
					bad = append(bad, n.Name+" failed")
				}
				if n.Error != nil {
					bad = append(bad, n.Name+" has an error")
				}
			}
			if f.Suite.Tests != c.tests || f.Suite.Failures != c.failures || f.Suite.Errors != c.errors || !slices.Equal(bad, c.bad) {
				t.Errorf("%d tests, %d failures, %d errors, %q\n%s", f.Suite.Tests, f.Suite.Failures, f.Suite.Errors, bad, text)
			}
		})
	}
}
