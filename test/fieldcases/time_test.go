package fieldcases

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

var timeTests = map[string]func(*scene){
	"time-01": func(s *scene) {
		id := s.id("n1")
		fresh := s.world.CA.Issue(s.template(id)).TLS()
		template := s.template(id)
		template.NotAfter = s.world.Now.Add(-time.Minute)
		n := s.serve(id, fleet.Behaviour{Served: s.world.CA.Issue(template), Configure: func(c *tls.Config) {
			old := c.Certificates[0]
			c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				if hello.ServerName == "" {
					return &old, nil
				}
				return &fresh, nil
			}
		}})
		s.is("n1", "False CertificateExpired")
		s.fails("n1", "Validity")
		// The same kubelet, dialled by its name.
		s.prefer = []corev1.NodeAddressType{corev1.NodeHostName}
		s.prober.Resolver = resolver(map[string]netip.Addr{"n1": netip.MustParseAddr(n.Status.Addresses[1].Address)})
		s.again()
		s.is("n1", verified)
	},
	"time-02": func(s *scene) {
		begin := s.world.Now.Add(10 * time.Minute)
		n := s.node("n1", func(c *x509.Certificate) { c.NotBefore = begin })
		s.is("n1", "False CertificateNotYetValid")
		s.fails("n1", "Validity")
		template := s.template(s.id("n1"))
		template.NotBefore = begin
		if v := s.judged(n, template); v.Reason != v1alpha1.ReasonCertificateNotYetValid || !v.NextLook.Equal(begin) {
			s.Errorf("%s, the next look is at %s, not at %s", v.Reason, v.NextLook, begin)
		}
	},
	"time-04": func(s *scene) {
		const nodes = 200
		for i := range nodes {
			s.node(fmt.Sprintf("n%d", i), func(c *x509.Certificate) {
				c.NotBefore, c.NotAfter = s.world.Now.Add(-20*time.Hour), s.world.Now.Add(-time.Hour)
			})
		}
		s.is("n0", "False CertificateExpired")
		s.fails("n0", "Validity")
		if c := s.report().Summary; c.RejectedToday != nodes || c.Checks[v1alpha1.CheckCommonName].Pass != nodes {
			s.Errorf("%+v", c)
		}
		s.answers(verdict.NotReady, verdict.NotReady, verdict.Ready)
		for i := range nodes / 2 { // as their requests are approved
			id := s.id(fmt.Sprintf("n%d", i))
			id.IP = netip.MustParseAddr(s.nodes[i].Status.Addresses[1].Address)
			s.fleet.Set(id.IP, fleet.Behaviour{Served: s.world.CA.Issue(s.template(id))})
		}
		s.again()
		if c := s.report().Summary; c.RejectedToday != nodes/2 || c.Verified != nodes/2 {
			s.Errorf("%+v", c)
		}
	},
	"time-05": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) {
			const day = 24 * time.Hour
			c.NotBefore, c.NotAfter = s.world.Now.Add(-38*day), s.world.Now.Add(7*day)
		})
		s.is("n1", verified)
		s.hints("n1", "")
		if len(s.report().Findings) != 0 {
			s.Errorf("%+v", s.report().Findings)
		}
	},
	"time-06": func(s *scene) {
		id := s.id("n1")
		var resumed, handshakes atomic.Int64
		serve := func(change func(*x509.Certificate)) fleet.Behaviour {
			template := s.template(id)
			change(template)
			return fleet.Behaviour{Served: s.world.CA.Issue(template), Configure: func(c *tls.Config) {
				// TLS 1.2 hands the ticket over within the handshake, and a kubelet
				// that loads another certificate keeps its ticket keys.
				c.SessionTicketsDisabled, c.MaxVersion = false, tls.VersionTLS12
				c.SetSessionTicketKeys([][32]byte{{1}})
				c.VerifyConnection = func(state tls.ConnectionState) error {
					handshakes.Add(1)
					if state.DidResume {
						resumed.Add(1)
					}
					return nil
				}
			}}
		}
		s.serve(id, serve(called("system:node:n1")))
		first := s.of("n1")
		s.fleet.Set(id.IP, serve(called("other")))
		s.again()
		second := s.of("n1")
		if n := s.settled(id.IP).Connections; n != 2 {
			s.Errorf("%d connections for two probes", n)
		}
		if first.Status != "True" || second.Status != "False" || handshakes.Load() != 2 || resumed.Load() != 0 {
			s.Errorf("%s, then %s; %d handshakes, %d of them resumed", first.Status, second.Status, handshakes.Load(), resumed.Load())
		}
		s.is("n1", wrongName)
	},
}
