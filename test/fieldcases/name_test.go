package fieldcases

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

var nameTests = map[string]func(*scene){
	"cn-01": func(s *scene) {
		s.defect("n1", "self-signed-named")
		s.is("n1", unknownCA)
		s.fails("n1", "Chain", "CommonName")
		s.hints("n1", "the kubelet's self-signed fallback; set serverTLSBootstrap: true")
	},
	"cn-02": func(s *scene) {
		s.ownSigned("win1", func(c *x509.Certificate) { c.Subject.CommonName = "win1@1715"; noIPs(c) })
		s.node("linux1", nil)
		s.is("win1", wrongAddress, "Chain: no path", `CommonName: the common name is "win1@1715"`)
		s.fails("win1", "Chain", "Address", "CommonName")
		s.hints("win1", "self-signed fallback")
		s.is("linux1", verified)
	},
	"cn-03": func(s *scene) {
		for _, n := range []string{"n1", "n2"} {
			s.node(n, func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: n} })
		}
		s.is("n1", wrongName)
		s.fails("n1", "CommonName")
		s.hints("n1", "a bare node name is what k3s, RKE2 and kops issue")
		s.is("n2", wrongName)
		s.finds(audit.FindingBareNodeNames, "n1", "n2")
		s.answers(verdict.NotReady, verdict.Ready, verdict.NotReady)
	},
	"cn-04": func(s *scene) {
		for _, old := range []string{"old-0", "old-1"} {
			s.ownSigned(old, func(c *x509.Certificate) { c.NotAfter = s.world.Now.Add(20 * 365 * 24 * time.Hour) })
		}
		s.node("new", nil)
		s.is("old-0", unknownCA)
		s.fails("old-0", "Chain", "CommonName")
		s.hints("old-0", "signed by its own key")
		s.is("new", verified)
		s.finds(audit.FindingSelfSigned, "old-0", "old-1")
		s.answers(verdict.NotReady, verdict.NotReady, verdict.NotReady)
	},
	"cn-05": func(s *scene) {
		s.node("n1", called("kubelet"))
		s.is("n1", wrongName, `the common name is "kubelet", not "system:node:n1"`)
		s.fails("n1", "CommonName")
		s.answers(verdict.NotReady, verdict.Ready, verdict.NotReady)
	},
	"cn-06": func(s *scene) {
		s.node("test00000a", func(c *x509.Certificate) {
			c.Subject.CommonName, c.DNSNames = "system:node:test00000A", []string{"test00000A"}
		})
		s.is("test00000a", wrongName)
		s.fails("test00000a", "CommonName")
		s.hints("test00000a", "it differs in case only")
		s.answers(verdict.NotReady, verdict.Ready, verdict.NotReady)
	},
	"cn-07": func(s *scene) {
		const node = "ip-192-168-6-91.eu-central-1.compute.internal"
		s.node(node, called("system:node:ip-192-168-6-91"))
		s.is(node, wrongName, `"system:node:ip-192-168-6-91", not "system:node:`+node+`"`)
		s.fails(node, "CommonName")
		s.hints(node, "no part of a name will do")
		s.answers(verdict.NotReady, verdict.Ready, verdict.NotReady)
	},
	"cn-09": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) { c.Subject = pkix.Name{} })
		s.is("n1", wrongName)
		s.fails("n1", "CommonName")
		s.hints("n1", "the certificate has no common name")
		s.answers(verdict.NotReady, verdict.Ready, verdict.NotReady)
	},
	"cn-11": func(s *scene) {
		long, cut := strings.Repeat("n", 60), strings.Repeat("m", 60)
		s.node(long, nil)
		s.answers(verdict.Ready, verdict.Ready, verdict.Ready)
		s.node(cut, called(("system:node:" + cut)[:64]))
		s.is(long, verified)
		s.is(cut, wrongName)
		s.hints(cut, "cut off at 64 characters")
		s.finds(audit.FindingLongNodeNames, long, cut)
	},
	"cn-14": func(s *scene) {
		old := s.node("old-node", nil)
		s.node("new-node", func(c *x509.Certificate) {
			c.Subject.CommonName, c.DNSNames = "system:node:old-node", []string{"old-node"}
		})
		s.is("new-node", wrongName)
		s.fails("new-node", "CommonName")
		s.hints("new-node", `the identity of another node, "old-node"`)
		s.finds(audit.FindingOtherIdentity, "new-node", "old-node")
		s.answers(verdict.NotReady, verdict.Ready, verdict.NotReady)
		s.nodes = s.nodes[1:] // the old Node is deleted
		s.again()
		s.is("new-node", wrongName)
		s.finds(audit.FindingAbsentIdentity, "new-node")
		if old.Name == s.nodes[0].Name {
			s.Error("the wrong one was deleted")
		}
	},
	"cn-15": func(s *scene) {
		s.node("worker-0", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		})
		s.is("worker-0", verified)
		s.answers(verdict.Ready, verdict.Ready, verdict.Ready)
	},
	"cn-16": func(s *scene) {
		s.node("n1", called("n1"))
		s.is("n1", wrongName, "Works today, refused once the CN check is on")
		for _, format := range []report.Format{report.Table, report.Wide} {
			text := s.rendered(format)
			if !strings.Contains(text, "1 would break once the CN check is on") || strings.Contains(text, "failing") {
				s.Errorf("%s:\n%s", format, text)
			}
		}
	},
}

// ownSigned is a node whose certificate is signed by its own key; it has the
// node's bare name unless it is changed.
func (s *scene) ownSigned(name string, change func(*x509.Certificate)) {
	s.Helper()
	id := s.id(name)
	template := s.template(id)
	template.Subject = pkix.Name{CommonName: name}
	if change != nil {
		change(template)
	}
	s.serve(id, fleet.Behaviour{Served: s.selfSigned(template, s.world.UnknownCA.Key)})
}
