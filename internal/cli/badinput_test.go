package cli_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// A flag that does not fit is refused before anything is read or dialled.
func TestBadFlags(t *testing.T) {
	dir := t.TempDir()
	nodes := writeFile(t, dir, "nodes.json", []byte(`{"kind":"NodeList","items":[]}`))
	audit := func(args ...string) []string { return append([]string{"audit", "-f", nodes}, args...) }
	verify := func(args ...string) []string {
		return append([]string{"verify", "--node=n1", "--address=10.0.0.1", "--cert=unread.pem"}, args...)
	}
	manager := func(args ...string) []string { return append([]string{"manager"}, args...) }
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"unknown address type":           {audit("--kubelet-preferred-address-types=Hostname,Foo"), []string{"--kubelet-preferred-address-types", `"Foo"`, "Hostname,InternalDNS"}},
		"address type with a space":      {audit("--kubelet-preferred-address-types=Hostname, InternalIP"), []string{`" InternalIP"`}},
		"address type in lower case":     {audit("--kubelet-preferred-address-types=hostname"), []string{`"hostname"`}},
		"empty preference list":          {audit("--kubelet-preferred-address-types="), []string{`--kubelet-preferred-address-types=""`, "is empty"}},
		"preference list of a comma":     {audit("--kubelet-preferred-address-types=,"), []string{`--kubelet-preferred-address-types=","`}},
		"preference list with a quote":   {audit(`--kubelet-preferred-address-types="a`), []string{"--kubelet-preferred-address-types", `"\"a"`}},
		"port 0":                         {audit("--kubelet-port=0"), []string{"--kubelet-port=0: must be 1 to 65535"}},
		"port 70000":                     {audit("--kubelet-port=70000"), []string{"--kubelet-port=70000"}},
		"negative port":                  {audit("--kubelet-port=-1"), []string{"--kubelet-port=-1"}},
		"port abc":                       {audit("--kubelet-port=abc"), []string{"--kubelet-port", `"abc"`}},
		"port beyond 32 bits":            {audit("--kubelet-port=4294977546"), []string{"--kubelet-port", `"4294977546"`}},
		"timeout 0":                      {audit("--timeout=0"), []string{"--timeout=0s: must be above zero"}},
		"negative timeout":               {audit("--timeout=-1s"), []string{"--timeout=-1s"}},
		"timeout without a unit":         {audit("--timeout=5"), []string{"--timeout", `"5"`}},
		"concurrency 0":                  {audit("--concurrency=0"), []string{"--concurrency=0: must be at least 1"}},
		"negative concurrency":           {audit("--concurrency=-3"), []string{"--concurrency=-3"}},
		"unknown output":                 {audit("-o", "xml"), []string{`--output="xml"`, "table, wide, json, yaml"}},
		"empty output":                   {audit("--output="), []string{`--output=""`}},
		"unknown what":                   {audit("--what=all"), []string{`--what="all"`, "both, tls or cn"}},
		"a selector that does not parse": {audit("--selector=a in"), []string{`--selector="a in"`}},
		"an empty file name":             {[]string{"audit", "--filename="}, []string{`--filename=""`, "must not be empty"}},
		"a file name is missing":         {[]string{"audit", "-f"}, []string{"-f"}},
		"unknown flag":                   {audit("--frob"), []string{"--frob"}},
		"unknown short flag":             {audit("-x"), []string{"-x"}},
		"unexpected argument":            {audit("nodes"), []string{`"nodes"`, "audit"}},
		"a negative request timeout":     {[]string{"audit", "--request-timeout=-1s"}, []string{`--request-timeout="-1s"`}},
		"a request timeout abc":          {[]string{"cleanup", "--request-timeout=abc"}, []string{`--request-timeout="abc"`}},

		"unknown command":           {[]string{"frob"}, []string{`"frob"`}},
		"a command mistyped":        {[]string{"audits"}, []string{`"audits"`}},
		"unknown flag of the root":  {[]string{"--frob"}, []string{"--frob"}},
		"help on an unknown topic":  {[]string{"help", "frob"}, []string{`"frob"`}},
		"an argument of version":    {[]string{"version", "now"}, []string{`"now"`}},
		"an argument of cleanup":    {[]string{"cleanup", "all"}, []string{`"all"`}},
		"a namespace for audit":     {audit("--namespace=x"), []string{"--namespace"}},
		"a namespace for cleanup":   {[]string{"cleanup", "-n", "x"}, []string{"-n"}},
		"a cache for audit":         {audit("--cache-dir=x"), []string{"--cache-dir"}},
		"verify: port 0":            {verify("--kubelet-port=0"), []string{"--kubelet-port=0"}},
		"verify: unknown what":      {verify("--what=x"), []string{`--what="x"`}},
		"verify: unknown output":    {verify("-o=x"), []string{`--output="x"`}},
		"verify: no node":           {verify("--node="), []string{`--node=""`}},
		"verify: no address":        {verify("--address="), []string{`--address=""`}},
		"verify: no certificate":    {verify("--cert="), []string{`--cert=""`}},
		"verify: an argument":       {verify("x"), []string{`"x"`}},
		"verify: no kubeconfig":     {verify("--kubeconfig=x"), []string{"--kubeconfig"}},
		"manager: concurrency 0":    {manager("--concurrency=0"), []string{"--concurrency=0"}},
		"manager: burst 0":          {manager("--kube-api-burst=0"), []string{"--kube-api-burst=0"}},
		"manager: QPS 0":            {manager("--kube-api-qps=0"), []string{"--kube-api-qps=0"}},
		"manager: QPS NaN":          {manager("--kube-api-qps=NaN"), []string{"--kube-api-qps=NaN"}},
		"manager: infinite QPS":     {manager("--kube-api-qps=+Inf"), []string{"--kube-api-qps=+Inf"}},
		"manager: QPS abc":          {manager("--kube-api-qps=abc"), []string{"--kube-api-qps", `"abc"`}},
		"manager: series below 0":   {manager("--max-failing-series=-1"), []string{"--max-failing-series=-1"}},
		"manager: bad namespace":    {manager("-n", "A_b"), []string{`--namespace="A_b"`}},
		"manager: metrics address":  {manager("--metrics-bind-address=8443"), []string{`--metrics-bind-address="8443"`}},
		"manager: no metrics":       {manager("--metrics-bind-address="), []string{`--metrics-bind-address=""`}},
		"manager: metrics port":     {manager("--metrics-bind-address=:70000"), []string{`--metrics-bind-address=":70000"`}},
		"manager: webhook address":  {manager("--webhook-bind-address=9443"), []string{`--webhook-bind-address="9443"`}},
		"manager: no webhook dir":   {manager("--webhook-cert-dir="), []string{`--webhook-cert-dir=""`}},
		"manager: webhook by whom":  {manager("--webhook-self-signed=maybe"), []string{"--webhook-self-signed", `"maybe"`}},
		"manager: health address":   {manager("--health-probe-bind-address=x"), []string{`--health-probe-bind-address="x"`}},
		"manager: log level":        {manager("--zap-log-level=x"), []string{"--zap-log-level", `"x"`}},
		"manager: log encoder":      {manager("--zap-encoder=x"), []string{"--zap-encoder", `"x"`}},
		"manager: an argument":      {manager("x"), []string{`"x"`}},
		"manager: no such file":     {manager("--kubeconfig=" + filepath.Join(dir, "none")), []string{filepath.Join(dir, "none")}},
		"manager: unusable CA file": {manager("--kubeconfig="+kubeconfig(t, "https://127.0.0.1:1"), "--certificate-authority="+nodes), []string{"connect to the cluster"}},
	} {
		t.Run(name, func(t *testing.T) { run(t, c.args...).refuses(t, c.want...) })
	}
}

func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string { return writeFile(t, dir, name, []byte(content)) }
	garbage := make([]byte, 3000)
	_, _ = rand.Read(garbage)
	garbage[0] = 0 // never the beginning of a text
	node := `{"kind":"Node","metadata":{"name":"n1"}}`
	nodes := write("nodes.json", `{"kind":"NodeList","items":[`+node+`]}`)
	good := certs.NewWorld(time.Now()).Victim
	hostileDir := filepath.Join(dir, "a\n\x1b[2J")
	if err := os.Mkdir(hostileDir, 0o700); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"missing": filepath.Join(dir, "none"), "directory": dir, "empty": write("empty", ""), "garbage": write("garbage", string(garbage)),
		"key": write("key.pem", string(good.KeyPEM())), "broken": write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		"hostile name": hostileDir + "none", "hostile directory": hostileDir,
		"truncated": write("truncated.json", `{"kind":"NodeList","items":[`+node+`,{"kind":"No`), "truncated PEM": write("truncated.pem", string(good.CertificatePEM()[:200])),
		"pods":  write("pods.json", `{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"p"}}]}`),
		"twice": write("twice.json", `{"kind":"List","items":[`+node+`,`+node+`]}`), "text": write("text", "n1 n2 n3\n"),
	}
	readers := map[string]struct {
		flag string
		args []string
		want map[string]string
	}{
		"nodes": {"--filename", []string{"audit"}, map[string]string{
			"missing": "no such file", "directory": "is a directory", "empty": "it is empty", "garbage": "neither JSON nor YAML",
			"truncated": "cut off after", "pods": `item 1 is a "Pod", not a Node`, "twice": `node "n1" is there twice`, "text": "neither a Node nor a list",
			"hostile name": "no such file", "hostile directory": "is a directory",
		}},
		"the CA of audit": {"--kubelet-certificate-authority", []string{"audit", "-f", nodes}, map[string]string{
			"missing": "no such file", "directory": "is a directory", "empty": "it is empty", "garbage": "no PEM block", "text": "no PEM block",
			"key": `a PEM block "PRIVATE KEY"`, "broken": "none of its certificates can be parsed", "truncated PEM": "no PEM block",
			"hostile name": "no such file", "hostile directory": "is a directory",
		}},
		"the CA of verify": {"--kubelet-certificate-authority", []string{"verify", "--node=n1", "--address=10.0.0.1",
			"--cert", write("good.pem", string(good.CertificatePEM()))}, map[string]string{"missing": "no such file", "empty": "it is empty", "key": "PRIVATE KEY"}},
		"the certificate": {"--cert", []string{"verify", "--node=n1", "--address=10.0.0.1"}, map[string]string{
			"missing": "no such file", "directory": "is a directory", "empty": "no PEM certificate", "garbage": "no PEM certificate", "key": "no PEM certificate",
			"broken": "certificate 1: x509: ", "truncated PEM": "no PEM certificate", "hostile name": "no such file",
		}},
	}
	for reader, r := range readers {
		for file, want := range r.want {
			t.Run(reader+", "+file, func(t *testing.T) {
				run(t, append(r.args, r.flag, files[file])...).refuses(t, r.flag+"="+strconv.Quote(files[file])+": ", want)
			})
		}
	}
	runWith(t.Context(), strings.NewReader(" \n"), "audit", "-f", "-").refuses(t, `--filename="-": it is empty`)
	run(t, "audit", "-f", nodes, "--kubelet-certificate-authority=").refuses(t, `--kubelet-certificate-authority="": `)
}

func TestProblemsAreReportedTogetherAndInOrder(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verify"}, "--node=\"\": must not be empty\n--address=\"\": must not be empty\n--cert=\"\": must not be empty"},
		{[]string{"audit", "--concurrency=0", "--timeout=0", "--kubelet-port=0"},
			"--kubelet-port=0: must be 1 to 65535\n--timeout=0s: must be above zero\n--concurrency=0: must be at least 1"},
	} {
		for range 3 {
			if r := run(t, c.args...); r.code != 3 || r.err == nil || r.err.Error() != c.want || r.out != "" {
				t.Errorf("%v: exit code %d, %v", c.args, r.code, r.err)
			}
		}
	}
}

func TestBadKubeconfigs(t *testing.T) {
	dir, closed := t.TempDir(), closedPort(t)
	garbage := writeFile(t, dir, "garbage", []byte("\x00\x01\x02\xff"))
	text := writeFile(t, dir, "text", []byte("hello: [\n"))
	good := kubeconfig(t, "https://"+closed)
	for _, command := range []string{"audit", "cleanup", "manager"} {
		for name, c := range map[string]struct {
			args []string
			want string
		}{
			"missing":             {[]string{"--kubeconfig", filepath.Join(dir, "none")}, filepath.Join(dir, "none")},
			"a directory":         {[]string{"--kubeconfig", dir}, dir},
			"garbage":             {[]string{"--kubeconfig", garbage}, garbage},
			"no YAML":             {[]string{"--kubeconfig", text}, text},
			"without the context": {[]string{"--kubeconfig", good, "--context", "there"}, `"there"`},
			"with no such CA":     {[]string{"--kubeconfig", good, "--certificate-authority", filepath.Join(dir, "none")}, filepath.Join(dir, "none")},
		} {
			t.Run(command+", "+name, func(t *testing.T) {
				run(t, append([]string{command}, c.args...)...).refuses(t, "connect to the cluster: ", c.want)
			})
		}
	}
	run(t, "audit", "--kubeconfig", good, "--certificate-authority", text).refuses(t, text, "no PEM block")
}

func TestTheAPIServerIsDown(t *testing.T) {
	closed := closedPort(t)
	for _, command := range []string{"audit", "cleanup"} {
		start := time.Now()
		run(t, command, "--kubeconfig", kubeconfig(t, "https://"+closed)).refuses(t, "nodes: ", closed, "connection refused")
		if took := time.Since(start); took > quick {
			t.Errorf("%s took %s", command, took)
		}
	}
}
