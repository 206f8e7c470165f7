package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

func TestExitCodeOfAnAudit(t *testing.T) {
	for name, c := range map[string]struct {
		nodes []string
		args  []string
		want  int
	}{
		"all nodes are good":                       {[]string{"good", "good-tls12", "served-intermediate"}, nil, 0},
		"one breaks once the check is on":          {[]string{"good", "bare-node-name"}, nil, 1},
		"one is refused today":                     {[]string{"good", "expired"}, nil, 1},
		"one has no certificate":                   {[]string{"good", "no-certificate"}, nil, 1},
		"nobody listens on one":                    {[]string{"good", "refused"}, nil, 2},
		"one is silent":                            {[]string{"silent"}, []string{"--timeout=200ms"}, 2},
		"a failure outweighs missing evidence":     {[]string{"refused", "other-node", "good"}, nil, 1},
		"no node at all":                           {nil, nil, 2},
		"tls: the common name does not count":      {[]string{"good", "bare-node-name"}, []string{"--what=tls"}, 0},
		"tls: what is refused today does":          {[]string{"good", "bare-and-wrong-address"}, []string{"--what=tls"}, 1},
		"tls: missing evidence does":               {[]string{"bare-node-name", "refused"}, []string{"--what=tls"}, 2},
		"tls: no node at all":                      {nil, []string{"--what=tls"}, 2},
		"cn: the common name is right":             {[]string{"good", "dns-san-only"}, []string{"--what=cn"}, 0},
		"cn: the common name is wrong":             {[]string{"good", "bare-node-name"}, []string{"--what=cn"}, 1},
		"cn: right, but anybody may have said so":  {[]string{"good", "unknown-ca"}, []string{"--what=cn"}, 2},
		"cn: right, of a CA with the trusted name": {[]string{"twin-ca"}, []string{"--what=cn"}, 2},
		"cn: wrong, and anybody may have said so":  {[]string{"good", "self-signed-named"}, []string{"--what=cn"}, 1},
		"cn: right, but the key was not proven":    {[]string{"stolen-wrong-signature-tls13"}, []string{"--what=cn"}, 2},
		"cn: no certificate was seen":              {[]string{"good", "no-certificate"}, []string{"--what=cn"}, 2},
		"cn: no node at all":                       {nil, []string{"--what=cn"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			newCluster(t, c.nodes...).audit(t, c.args...).answers(t, c.want)
		})
	}
}

func TestTheOutputSaysWhatWasNotAskedFor(t *testing.T) {
	c := newCluster(t, "bare-node-name")
	for what, want := range map[string]string{
		"--what=tls": "NOT READY: of 1 node 0 are verified, 1 would break once the CN check is on, 0 are refused today, 0 are unknown.\n" +
			"Without the common name (--what tls) the answer is Ready",
		"--what=cn": "By the common name alone (--what cn) the answer is NotReady",
	} {
		if r := c.audit(t, what); !strings.Contains(r.out, want) {
			t.Errorf("%s: no %q in\n%s", what, want, r.out)
		}
	}
}

func TestWithoutACANothingIsReady(t *testing.T) {
	for _, what := range []string{"both", "tls", "cn"} {
		r := run(t, newCluster(t, "good", "good-tls12", "client-certificate-required").args(t, "--what", what)...)
		r.answers(t, cli.ExitUnknown)
		if !strings.Contains(r.out, "No CA was given") || !strings.Contains(r.out, "NoTrustBundle") {
			t.Errorf("--what %s:\n%s", what, r.out)
		}
		run(t, newCluster(t, "expired").args(t, "--what", what)...).answers(t, map[string]int{"both": 1, "tls": 1, "cn": 2}[what])
	}
}

func TestLocalAddressesNeedTheFlag(t *testing.T) {
	c := newCluster(t, "good")
	r := c.audit(t, "--allow-local-addresses=false")
	r.answers(t, cli.ExitUnknown)
	if !strings.Contains(r.out, "AddressNotAllowed") || c.counts(0).Connections != 0 {
		t.Errorf("%d connections\n%s", c.counts(0).Connections, r.out)
	}
}

func TestSelectorAnswersForTheSelection(t *testing.T) {
	c := newCluster(t, "good", "bare-node-name")
	c.list.Items[0].Labels["pool"] = "a"
	c.list.Items[1].Labels["pool"] = "b"
	for selector, want := range map[string]int{"pool=a": 0, "pool=b": 1, "pool in (a,b)": 1, "pool=c": 2, "": 1, "pool!=b": 0} {
		r := c.audit(t, "-l", selector)
		r.answers(t, want)
		first, _, _ := strings.Cut(r.out, "\n")
		if strings.HasPrefix(first, "Only the nodes that match "+selector+"; ") != (selector != "") {
			t.Errorf("-l %q: the first line is %q", selector, first)
		}
	}
	var report audit.Report
	parse(t, c.audit(t, "--selector=pool=a", "-o=json"), json.Unmarshal, &report)
	if report.Selector != "pool=a" || report.Summary.Excluded != 1 || report.Summary.Total != 1 || c.counts(1).Connections != 3 {
		t.Errorf("selector %q, summary %+v, %d connections to the other node", report.Selector, report.Summary, c.counts(1).Connections)
	}
}

func parse(t *testing.T, r result, unmarshal func([]byte, any) error, into any) {
	t.Helper()
	if err := unmarshal([]byte(r.out), into); err != nil {
		t.Fatalf("%v (exit code %d, error %v)\n%s", err, r.code, r.err, r.out)
	}
}

func TestOutputFormats(t *testing.T) {
	c := newCluster(t, "good", "bare-node-name", "refused")
	for _, args := range [][]string{nil, {"-o", "table"}, {"--output=wide"}} {
		r := c.audit(t, args...)
		r.answers(t, cli.ExitNotReady)
		if strings.Contains(r.out, "COMMON NAME") != (len(args) == 1) || !strings.Contains(r.out, "CommonNameMismatch") {
			t.Errorf("%v:\n%s", args, r.out)
		}
	}
	asJSON, asYAML := c.audit(t, "-o", "json"), c.audit(t, "-o", "yaml")
	asJSON.answers(t, cli.ExitNotReady)
	asYAML.answers(t, cli.ExitNotReady)
	var fromJSON, fromYAML audit.Report
	parse(t, asJSON, json.Unmarshal, &fromJSON)
	parse(t, asYAML, func(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) }, &fromYAML)
	for _, r := range []*audit.Report{&fromJSON, &fromYAML} {
		r.Time = time.Time{} // two runs differ in their times alone
		for i := range r.Nodes {
			r.Nodes[i].DurationMilliseconds = 0
		}
	}
	if fromJSON.Readiness != verdict.NotReady || len(fromJSON.Nodes) != 3 || !reflect.DeepEqual(fromJSON, fromYAML) {
		t.Errorf("JSON gave %+v\nYAML gave %+v", fromJSON, fromYAML)
	}
}

func TestNodesFromStandardInput(t *testing.T) {
	c := newCluster(t, "good", "good-tls12")
	asYAML, err := yaml.Marshal(c.list)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(asYAML)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range [][]byte{asJSON, asYAML} {
		runWith(t.Context(), strings.NewReader(string(text)), "audit", "-f-", "--allow-local-addresses",
			"--kubelet-preferred-address-types=ExternalIP,InternalIP", "--kubelet-certificate-authority", c.ca).answers(t, cli.ExitReady)
	}
}

func TestAnAnswerThatCannotBeWrittenIsNone(t *testing.T) {
	c := newCluster(t, "good")
	for _, format := range []string{"table", "wide", "json", "yaml"} {
		code, err := cli.Run(t.Context(), c.args(t, "--kubelet-certificate-authority", c.ca, "-o", format),
			cli.Streams{In: strings.NewReader(""), Out: full{}, Err: io.Discard})
		if code != cli.ExitCannotRun || !errors.Is(err, errFull) {
			t.Errorf("%s: exit code %d, %v", format, code, err)
		}
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestAnInterruptedAuditSaysWhatIsKnown(t *testing.T) {
	for first, want := range map[string]int{"good": cli.ExitUnknown, "expired": cli.ExitNotReady} {
		t.Run(first, func(t *testing.T) {
			c := newInterruptible(t, first, "good-tls12")
			ctx, cancel := context.WithTimeout(t.Context(), quick)
			defer cancel()
			go func() {
				c.stuck(t)
				cancel()
			}()
			r := runWith(ctx, nil, c.args(t, "--timeout=1h", "--concurrency=1", "--kubelet-certificate-authority", c.ca)...)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Error("it was not interrupted, or did not end")
			}
			r.answers(t, want)
			for _, text := range []string{"Interrupted: ", first + " ", "NotProbedYet", "17 are unknown"} {
				if !strings.Contains(r.out, text) {
					t.Errorf("no %q in\n%s", text, r.out)
				}
			}
			if n := c.counts(1 + probe.MostOpen).Connections; n != 0 {
				t.Errorf("%d more connections were made", n)
			}
		})
	}
}

// nodeStream is a list of n Nodes of 20 kB, as images and annotations make
// them, made as it is read. It looks at the heap before the first and after the
// last one.
type nodeStream struct {
	n, given      int
	text          string
	before, after uint64
}

func (s *nodeStream) Read(p []byte) (int, error) {
	if s.text == "" {
		switch {
		case s.given == 0:
			s.before = heap()
			s.text = `{"kind":"NodeList","items":[`
		case s.given <= s.n:
			s.text = fmt.Sprintf(`{"metadata":{"name":"n%d","annotations":{"a":%q}}},`, s.given, strings.Repeat("x", 20_000))
			if s.given == s.n {
				s.after = heap()
				s.text = strings.TrimSuffix(s.text, ",") + "]}"
			}
		default:
			return 0, io.EOF
		}
		s.given++
	}
	n := copy(p, s.text)
	s.text = s.text[n:]
	return n, nil
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestMemoryDoesNotGrowWithTheInput(t *testing.T) {
	in := &nodeStream{n: 500}
	r := runWith(t.Context(), in, "audit", "-f", "-")
	r.answers(t, cli.ExitUnknown) // these nodes have no address
	if strings.Count(r.out, "NoAddress")+strings.Count(r.out, "NoTrustBundle") != in.n {
		t.Errorf("not all nodes are there:\n%.500s", r.out)
	}
	if in.after > in.before+(2<<20) {
		t.Errorf("%d of 10 MB are held", in.after-in.before)
	}
}
