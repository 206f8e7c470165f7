package fieldcases

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

var rolloutTests = map[string]func(*scene){
	"roll-01": func(s *scene) {
		for i := range 48 {
			s.node(fmt.Sprintf("good-%d", i), nil)
		}
		s.defect("bad-1", "self-signed-named")
		s.defect("bad-2", "self-signed-named")
		s.is("bad-1", unknownCA)
		s.hints("bad-2", "serverTLSBootstrap: true")
		s.finds(audit.FindingSelfSigned, "bad-1", "bad-2")
		s.answers(verdict.NotReady, verdict.NotReady, verdict.NotReady)
		var read audit.Report
		if err := json.Unmarshal([]byte(s.rendered(report.JSON)), &read); err != nil {
			s.Fatal(err)
		}
		if read.Readiness != verdict.NotReady || read.Nodes[0].Name != "bad-1" || read.Nodes[1].Name != "bad-2" || read.Summary.Verified != 48 {
			s.Errorf("%s, %s and %s first, %d verified", read.Readiness, read.Nodes[0].Name, read.Nodes[1].Name, read.Summary.Verified)
		}
		if code, text := s.audit(s.bundle); code != cli.ExitNotReady {
			s.Errorf("exit code %d: %s", code, text)
		}
	},
	"roll-05": func(s *scene) {
		n := s.node("n1", noIPs)
		s.is("n1", wrongAddress)
		s.fails("n1", "Address")
		s.hints("n1", "no IP SANs")
		id := certs.Identity{NodeName: "n1", IP: netip.MustParseAddr(n.Status.Addresses[1].Address)}
		template := s.template(id)
		template.NotBefore = time.Now()
		fresh := s.world.CA.Issue(template)
		s.asks("n1", "csr-1", fresh.CertificatePEM())
		s.again()
		s.is("n1", wrongAddress)
		s.hints("n1", "issued for its request csr-1, but the kubelet has not loaded it")
		s.fleet.Set(id.IP, fleet.Behaviour{Served: fresh}) // the kubelet loads it
		s.again()
		s.is("n1", verified)
	},
	"roll-06": func(s *scene) {
		s.node("good", nil)
		s.node("bare", called("bare"))
		s.node("no-ips", func(c *x509.Certificate) { noIPs(c) })
		s.answers(verdict.NotReady, verdict.NotReady, verdict.NotReady)
		for _, format := range report.Formats() {
			text := s.rendered(report.Format(format))
			for _, name := range []string{"enable-kubelet-cert-cn-validation", "KubeletCertCNValidation", "kube_apiserver_validation"} {
				if strings.Contains(text, name) {
					s.Errorf("%s names %s, which no release has:\n%s", format, name, text)
				}
			}
			if !strings.Contains(text, "once the CN check is on") {
				s.Errorf("%s:\n%s", format, text)
			}
		}
		s.nodes = s.nodes[:2]
		s.answers(verdict.NotReady, verdict.Ready, verdict.NotReady)
	},
}
