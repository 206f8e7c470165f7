package cli_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// fileShows tells whether a file of the certificates shows all that matters of
// a defect: not whether the server holds the key, nor how it speaks TLS.
func fileShows(d certs.Defect) bool {
	return d.Captured() && d.KeyProven() || d.Name == "rsa-too-large"
}

func TestVerifyAgreesWithAProbe(t *testing.T) {
	c := newCluster(t)
	files := map[string]string{}
	for _, d := range certs.Defects() {
		if fileShows(d) {
			files[d.Name] = writeFile(t, c.dir, d.Name+".pem", c.add(d).CertificatePEM())
		}
	}
	for _, ca := range [][]string{{"--kubelet-certificate-authority", c.ca}, nil} {
		var live audit.Report
		parse(t, run(t, c.args(t, append(ca, "-o=json")...)...), json.Unmarshal, &live)
		if len(live.Nodes) != len(files) || len(files) < 20 {
			t.Fatalf("%d nodes, %d files", len(live.Nodes), len(files))
		}
		for _, want := range live.Nodes {
			t.Run(want.Name+strings.Join(ca, " "), func(t *testing.T) {
				var offline audit.Report
				r := run(t, append(ca, "verify", "--node", want.Name, "--address", want.Address, "--cert", files[want.Name],
					"--kubelet-port", strconv.Itoa(int(want.Port)), "-o=json")...)
				r.answers(t, map[string]int{"True": 0, "False": 1, "Unknown": 2}[want.Status])
				parse(t, r, json.Unmarshal, &offline)
				if len(offline.Nodes) != 1 {
					t.Fatalf("%d nodes", len(offline.Nodes))
				}
				if got, want := offline.Nodes[0], withoutTheConnection(want); !reflect.DeepEqual(got, want) {
					t.Errorf("verify says %+v\nthe probe says %+v", got, want)
				}
			})
		}
	}
}

// withoutTheConnection drops what a file cannot know.
func withoutTheConnection(n audit.Node) audit.Node {
	n.Message = strings.Replace(n.Message, "(dialled InternalIP ", "(dialled --address ", 1)
	n.AddressType, n.TLSVersion, n.DurationMilliseconds = "--address", "", 0
	return n
}

func TestVerifyJudgesTheFirstCertificateOfAFile(t *testing.T) {
	c := newCluster(t)
	id := certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("10.0.0.11")}
	good := c.world.CA.Issue(certs.Template(id))
	intermediate := c.world.Intermediate
	through := intermediate.Issue(certs.Template(id))
	text := []byte("subject=CN = system:node:n1\n")
	for name, f := range map[string]struct {
		parts [][]byte
		want  int
	}{
		"the certificate and its key, as kubelets keep them": {[][]byte{good.CertificatePEM(), good.KeyPEM()}, 0},
		"the key first":                     {[][]byte{good.KeyPEM(), good.CertificatePEM()}, 0},
		"text around it":                    {[][]byte{text, good.CertificatePEM(), text}, 0},
		"another node's after it":           {[][]byte{good.CertificatePEM(), c.world.Victim.CertificatePEM()}, 0},
		"another node's before it":          {[][]byte{c.world.Victim.CertificatePEM(), good.CertificatePEM()}, 1},
		"its intermediate after it":         {[][]byte{through.CertificatePEM(), intermediate.PEM()}, 0},
		"without its intermediate":          {[][]byte{through.CertificatePEM()}, 1},
		"its intermediate before it":        {[][]byte{intermediate.PEM(), through.CertificatePEM()}, 1},
		"a good one and one beyond parsing": {[][]byte{good.CertificatePEM(), certs.Served{Chain: [][]byte{{0x30, 0}}}.CertificatePEM()}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, "verify", "--node=n1", "--address=10.0.0.11", "--kubelet-certificate-authority", c.ca,
				"--cert", writeFile(t, c.dir, "cert.pem", bytes.Join(f.parts, nil)))
			if f.want == cli.ExitCannotRun {
				r.refuses(t, "certificate 2: ")
			} else {
				r.answers(t, f.want)
			}
		})
	}
}

func TestVerifyHonoursWhat(t *testing.T) {
	c := newCluster(t)
	bare := writeFile(t, c.dir, "bare.pem", c.add(defectOf(t, "bare-node-name")).CertificatePEM())
	for what, want := range map[string]int{"both": 1, "tls": 0, "cn": 1} {
		run(t, "verify", "--node=bare-node-name", "--address=127.1.0.1", "--cert", bare,
			"--kubelet-certificate-authority", c.ca, "--what", what).answers(t, want)
	}
}

func TestVerifyEscapesWhatACertificateSays(t *testing.T) {
	c := newCluster(t)
	template := certs.Template(certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("10.0.0.11")})
	template.Subject.CommonName = "system:node:n1\x1b[2J\r\nREADY"
	hostile := func(t *x509.Certificate) *x509.Certificate {
		t.Subject.Organization = []string{"\x1b]0;owned\a"}
		return t
	}
	file := writeFile(t, c.dir, "hostile.pem", c.world.CA.Issue(hostile(template)).CertificatePEM())
	for _, format := range []string{"table", "wide", "json", "yaml"} {
		r := run(t, "verify", "--node=n1", "--address=10.0.0.11\x1b", "--cert", file, "--kubelet-certificate-authority", c.ca, "-o", format)
		r.answers(t, cli.ExitNotReady)
		if strings.ContainsAny(r.out, "\x1b\a\r") || strings.Contains(r.out, "\nREADY") {
			t.Errorf("%s: %q", format, r.out)
		}
	}
	var report audit.Report
	parse(t, run(t, "verify", "--node=n1", "--address=10.0.0.11", "--cert", file, "-o=json"), json.Unmarshal, &report)
	if report.Readiness != verdict.ReadinessUnknown || report.Nodes[0].Certificate.CommonName != template.Subject.CommonName {
		t.Errorf("readiness %s, certificate %+v", report.Readiness, report.Nodes[0].Certificate)
	}
}
