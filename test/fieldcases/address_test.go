package fieldcases

import (
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

var addressTests = map[string]func(*scene){
	"addr-01": func(s *scene) {
		n := s.node("n1", nil)
		addresses := n.Status.Addresses
		n.Status.Addresses = nil
		s.is("n1", "Unknown NoAddress")
		s.answers(verdict.ReadinessUnknown, verdict.ReadinessUnknown, verdict.ReadinessUnknown)
		s.undialled()
		n.Status.Addresses = addresses
		s.again()
		s.is("n1", verified)
	},
	"addr-03": func(s *scene) {
		none, other := s.node("n1", nil), s.node("n2", nil)
		other.Status.DaemonEndpoints.KubeletEndpoint.Port = s.fleet.RefusedPort()
		for _, port := range []int32{0, -1} {
			none.Status.DaemonEndpoints.KubeletEndpoint.Port = port
			if got := kubelet.EndpointOf(none, kubelet.Options{PreferredAddressTypes: s.prefer}).Port; got != 10250 {
				s.Errorf("port %d, want 10250", got)
			}
			s.port = s.fleet.Port() // as 10250 is taken to be elsewhere
			s.again()
			s.is("n1", verified, fmt.Sprintf("port %d", s.fleet.Port()))
			s.is("n2", "Unknown ConnectionFailed", fmt.Sprintf("port %d", s.fleet.RefusedPort()))
		}
	},
	"addr-04": func(s *scene) {
		n := s.node("edge", nil) // its port is any but 10250
		if n.Status.DaemonEndpoints.KubeletEndpoint.Port == kubelet.DefaultPort {
			s.Fatal("the test needs another port")
		}
		s.is("edge", verified, fmt.Sprintf("port %d", s.fleet.Port()))
	},
	"addr-05": func(s *scene) {
		m1 := s.node("m1", nil)
		w1 := s.node("w1", nil)
		w1.Status.Addresses = m1.Status.Addresses
		s.is("m1", verified)
		s.is("w1", wrongName)
		s.fails("w1", "CommonName")
		s.hints("w1", `the identity of another node, "m1"`)
		s.finds(audit.FindingOtherIdentity, "w1", "m1")
		s.finds(audit.FindingSharedAddress, "w1", "m1")
		s.answers(verdict.NotReady, verdict.Ready, verdict.NotReady)
	},
	"addr-07": func(s *scene) {
		s.prober.AllowLocalAddresses = false
		s.node("n1", nil)
		for i, local := range []string{"169.254.169.254", "::1", "0.0.0.0", "fe80::1", "224.0.0.1"} {
			n := s.node(fmt.Sprintf("local-%d", i), nil)
			n.Status.Addresses = []corev1.NodeAddress{internalIP(local)}
			s.again()
			s.is(n.Name, "Unknown AddressNotAllowed")
		}
		s.is("n1", "Unknown AddressNotAllowed")
		s.answers(verdict.ReadinessUnknown, verdict.ReadinessUnknown, verdict.ReadinessUnknown)
		s.undialled()
	},
	"addr-08": func(s *scene) { unresolved(s, resolver(nil), "no such host") },
	"addr-09": func(s *scene) {
		unresolved(s, resolver(map[string]netip.Addr{"my-node-1": broken}), "the lookup")
		// The same node, seen with the resolver of the host.
		s.prober.Resolver = resolver(map[string]netip.Addr{"my-node-1": netip.MustParseAddr(s.nodes[0].Status.Addresses[1].Address)})
		s.again()
		s.is("my-node-1", verified)
	},
	"addr-11": func(s *scene) {
		s.prefer = []corev1.NodeAddressType{corev1.NodeHostName}
		id := s.id("")
		id.NodeName = id.IP.String()
		template := s.template(id)
		template.DNSNames = nil
		s.serve(id, fleet.Behaviour{Served: s.world.CA.Issue(template)})
		s.is(id.NodeName, verified, "dialled Hostname")
		s.answers(verdict.Ready, verdict.Ready, verdict.Ready)
	},
}

// unresolved: no other address is tried, however good it is.
func unresolved(s *scene, names *net.Resolver, detail string) {
	s.Helper()
	s.prefer = []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalIP}
	s.prober.Resolver = names
	s.node("my-node-1", nil)
	s.is("my-node-1", "Unknown NameResolutionFailed", detail)
	s.hints("my-node-1", "--kubelet-preferred-address-types")
	s.answers(verdict.ReadinessUnknown, verdict.ReadinessUnknown, verdict.ReadinessUnknown)
	s.undialled()
}
