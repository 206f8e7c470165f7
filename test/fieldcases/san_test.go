package fieldcases

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

var sanTests = map[string]func(*scene){
	"san-01": func(s *scene) {
		n := s.node("n1", noIPs)
		ip := n.Status.Addresses[1].Address
		s.is("n1", wrongAddress, fmt.Sprintf("dialled InternalIP %q", ip), `the certificate is for "n1"`)
		s.fails("n1", "Address")
		s.hints("n1", "no IP SANs")
		s.answers(verdict.NotReady, verdict.NotReady, verdict.Ready)
	},
	"san-03": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses, c.ExtKeyUsage = nil, nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		})
		s.is("n1", wrongAddress, "KeyUsage: the extended key usages lack server authentication")
		s.fails("n1", "Address", "KeyUsage")
		s.hints("n1", "no DNS or IP SAN at all, as a client certificate has not")
	},
	"san-04": func(s *scene) {
		s.node("n1", func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, c.IPAddresses[0].String()); noIPs(c) })
		s.is("n1", wrongAddress)
		s.fails("n1", "Address")
		s.hints("n1", "the IP address stands in a DNS SAN")
	},
	"san-05": func(s *scene) {
		n := s.node("n1", func(c *x509.Certificate) {
			c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(203, 0, 113, 7)}
		})
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.7"})
		s.prefer = append(s.prefer, corev1.NodeExternalIP)
		s.is("n1", wrongAddress, `the certificate is for 127.0.0.1, 203.0.113.7`, fmt.Sprintf("not %q", n.Status.Addresses[1].Address))
		s.fails("n1", "Address")
	},
	"san-06": floatingAddress,
	"san-08": func(s *scene) {
		first, second := s.node("n1", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(192, 168, 1, 14)} }), s.node("n2", nil)
		second.Status.Addresses = first.Status.Addresses
		s.is("n1", wrongAddress)
		s.is("n2", wrongAddress)
		s.fails("n2", "Address", "CommonName")
		if f := s.finds(audit.FindingSharedAddress, "n1", "n2"); !strings.Contains(f.Message, first.Status.Addresses[1].Address) {
			s.Error(f.Message)
		}
	},
	"san-09": func(s *scene) {
		master := s.id("master1")
		template := s.template(master)
		template.DNSNames = []string{"kubernetes", "kubernetes.default.svc", "master1", "localhost"}
		template.IPAddresses = append(template.IPAddresses, net.IPv4(10, 233, 0, 1), net.IPv4(127, 0, 0, 1))
		served := s.world.CA.Issue(template)
		s.serve(master, fleet.Behaviour{Served: served})
		s.serve(s.id("worker3"), fleet.Behaviour{Served: served})
		s.is("master1", verified)
		s.is("worker3", wrongAddress, `CommonName: the common name is "system:node:master1"`)
		s.fails("worker3", "Address", "CommonName")
		s.finds(audit.FindingSharedCertificate, "master1", "worker3")
		s.finds(audit.FindingOtherIdentity, "master1", "worker3")
		s.answers(verdict.NotReady, verdict.NotReady, verdict.NotReady)
	},
	"san-11": func(s *scene) {
		s.prefer = []corev1.NodeAddressType{corev1.NodeHostName}
		n := s.node("node-a", noIPs)
		s.prober.Resolver = resolver(map[string]netip.Addr{"node-a": netip.MustParseAddr(n.Status.Addresses[1].Address)})
		n.Status.Addresses[0].Address = "NODE-A"
		s.is("node-a", verified, `dialled Hostname "NODE-A"`)
		s.answers(verdict.Ready, verdict.Ready, verdict.Ready)
	},
	"san-15": func(s *scene) {
		for i, form := range []string{"::ffff:%s", "::FFFF:%s", "0:0:0:0:0:ffff:%s", "%s"} {
			n := s.node(fmt.Sprintf("n%d", i), nil) // whose certificate has the four bytes
			n.Status.Addresses[1].Address = fmt.Sprintf(form, n.Status.Addresses[1].Address)
			s.again()
			s.is(n.Name, verified)
		}
		template := s.template(s.id("n1"))
		template.IPAddresses = []net.IP{net.ParseIP("2001:db8::11")}
		for _, form := range []string{"2001:db8:0:0:0:0:0:11", "2001:DB8::11", "2001:db8::0011"} {
			node := fleet.Node("n1", netip.MustParseAddr("10.0.0.11"), 10250)
			node.Status.Addresses = []corev1.NodeAddress{internalIP(form)}
			if v := s.judged(node, template); v.Status != verdict.True {
				s.Error(v.Message)
			}
		}
	},
	"san-16": func(s *scene) {
		n := s.node("n1", nil)
		address := "::ffff:" + n.Status.Addresses[1].Address // colons, and yet IPv4 will do to reach it
		n.Status.Addresses = []corev1.NodeAddress{internalIP(address), hostname("n1")}
		s.is("n1", verified, fmt.Sprintf("%q port", address))
		if got, want := kubelet.EndpointOf(n, kubelet.Options{PreferredAddressTypes: s.prefer}).HostPort(), fmt.Sprintf("[%s]:%d", address, s.fleet.Port()); got != want {
			s.Errorf("%s, want %s", got, want)
		}
	},
	"san-18": func(s *scene) {
		n := s.node("n1", nil)
		old := n.Status.Addresses[1].Address
		added := s.id("n1")
		s.fleet.Set(added.IP, fleet.Behaviour{Served: s.world.CA.Issue(s.templateFor("n1", old))})
		n.Status.Addresses = []corev1.NodeAddress{internalIP(added.IP.String()), internalIP(old), hostname("n1")}
		s.is("n1", wrongAddress, fmt.Sprintf("dialled InternalIP %q", added.IP))
		s.fails("n1", "Address")
		if s.fleet.Counts(netip.MustParseAddr(old)).Connections != 0 {
			s.Error("the second address was tried")
		}
		s.asks("n1", "csr-1", nil)
		s.again()
		s.is("n1", wrongAddress)
		s.hints("n1", "kubectl certificate approve csr-1")
		s.fleet.Set(added.IP, fleet.Behaviour{Served: s.world.CA.Issue(s.templateFor("n1", added.IP.String(), old))})
		s.again()
		s.is("n1", verified)
	},
	"san-19": func(s *scene) {
		n := s.node("n1", func(c *x509.Certificate) {
			c.IPAddresses = nil
			for i := range 250 {
				c.IPAddresses = append(c.IPAddresses, net.IPv4(10, 10, 1, byte(i)))
			}
		})
		for i := range 250 {
			n.Status.Addresses = append(n.Status.Addresses, internalIP(fmt.Sprintf("10.10.1.%d", i)))
		}
		s.is("n1", wrongAddress, "10.10.1.3 and 247 more")
		if strings.Contains(s.of("n1").Message, "10.10.1.4") {
			s.Error(s.of("n1").Message)
		}
	},
	"san-20": func(s *scene) {
		s.prefer = []corev1.NodeAddressType{corev1.NodeHostName}
		n := s.node("n1", func(c *x509.Certificate) { c.Subject.CommonName, c.DNSNames, c.IPAddresses = "n1", nil, nil })
		s.prober.Resolver = resolver(map[string]netip.Addr{"n1": netip.MustParseAddr(n.Status.Addresses[1].Address)})
		s.is("n1", wrongAddress)
		s.fails("n1", "Address", "CommonName")
		s.hints("n1", "in the common name alone")
		if err := s.dial(s.of("n1")); err == nil || !strings.Contains(err.Error(), "legacy Common Name field") {
			s.Errorf("crypto/tls says %v", err)
		}
	},
}

// floatingAddress: of two nodes, the one that holds it fails.
func floatingAddress(s *scene) {
	n1, n2 := s.node("n1", nil), s.node("n2", nil)
	floating := s.id("floating")
	own := map[*corev1.Node]string{n1: n1.Status.Addresses[1].Address, n2: n2.Status.Addresses[1].Address}
	move := func(to, from *corev1.Node) {
		s.fleet.Set(floating.IP, fleet.Behaviour{Served: s.world.CA.Issue(s.templateFor(to.Name, own[to]))})
		to.Status.Addresses[1].Address, from.Status.Addresses[1].Address = floating.IP.String(), own[from]
		s.again()
	}
	move(n1, n2)
	before := kubelet.IdentityOf(n1)
	s.is("n1", wrongAddress)
	s.fails("n1", "Address")
	s.is("n2", verified)
	move(n2, n1)
	s.is("n1", verified)
	s.is("n2", wrongAddress)
	if kubelet.IdentityOf(n1) == before {
		s.Error("a verdict about the other address would still count")
	}
	if s.report().Summary.Checks[v1alpha1.CheckCommonName].Pass != 2 {
		s.Error("the common names are right")
	}
}

// templateFor is a good certificate for these addresses.
func (s *scene) templateFor(name string, addresses ...string) *x509.Certificate {
	template := s.template(s.id(name))
	template.IPAddresses = nil
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(a))
	}
	return template
}
