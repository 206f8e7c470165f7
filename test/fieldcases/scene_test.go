package fieldcases

import (
	"bytes"
	"crypto/x509"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// scene is a small cluster whose kubelets serve real TLS on loopback.
type scene struct {
	*testing.T
	world  *certs.World
	fleet  *fleet.Fleet
	nodes  []*corev1.Node
	bundle []byte
	prefer []corev1.NodeAddressType
	remote bool // loopback is not allowed
	// timeout of a probe; shorter where a peer is silent.
	timeout time.Duration
	result  *audit.Report
}

var addresses atomic.Int64

func newScene(t *testing.T) *scene {
	t.Helper()
	f, err := fleet.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	w := certs.NewWorld(time.Now())
	return &scene{T: t, world: w, fleet: f, bundle: w.CA.PEM(), prefer: []corev1.NodeAddressType{corev1.NodeInternalIP}, timeout: 20 * time.Second}
}

func (s *scene) id(name string) certs.Identity {
	return certs.Identity{NodeName: name, IP: fleet.Address(int(addresses.Add(1)))}
}

// node has a kubelet with a good certificate but for the change, issued by the
// bundle's CA.
func (s *scene) node(name string, change func(*x509.Certificate)) *corev1.Node {
	s.Helper()
	return s.issued(name, s.world.CA, change)
}

func (s *scene) issued(name string, ca *certs.CA, change func(*x509.Certificate), served ...*certs.CA) *corev1.Node {
	s.Helper()
	id := s.id(name)
	template := certs.Template(id)
	template.NotBefore, template.NotAfter = s.world.Now.Add(-time.Hour), s.world.Now.Add(365*24*time.Hour)
	if change != nil {
		change(template)
	}
	return s.serve(id, fleet.Behaviour{Served: ca.Issue(template).With(served...)})
}

// defect is a node of the list of defects.
func (s *scene) defect(name, defect string) *corev1.Node {
	s.Helper()
	i := slices.IndexFunc(certs.Defects(), func(d certs.Defect) bool { return d.Name == defect })
	id := s.id(name)
	return s.serve(id, fleet.BehaviourOf(s.world, certs.Defects()[i], id))
}

func (s *scene) serve(id certs.Identity, b fleet.Behaviour) *corev1.Node {
	s.fleet.Set(id.IP, b)
	node := fleet.Node(id.NodeName, id.IP, s.fleet.PortOf(id.IP))
	s.nodes = append(s.nodes, node)
	return node
}

// report sweeps once.
func (s *scene) report() *audit.Report {
	s.Helper()
	if s.result != nil {
		return s.result
	}
	var bundle verdict.Bundle
	if s.bundle != nil {
		var err error
		if bundle, err = trust.Parse("the test's", s.bundle); err != nil {
			s.Fatal(err)
		}
	}
	s.result = audit.Run(s.Context(), s.nodes, audit.Options{
		Prober: &probe.Prober{AllowLocalAddresses: !s.remote}, Endpoints: kubelet.Options{PreferredAddressTypes: s.prefer},
		Policy: verdict.Policy{Bundle: bundle}, Timeout: s.timeout, Concurrency: 64, What: verdict.WhatBoth, Clock: clock.RealClock{},
	})
	return s.result
}

// is compares a node's answer; its message must hold the texts.
func (s *scene) is(name, want string, texts ...string) {
	s.Helper()
	for _, n := range s.report().Nodes {
		if n.Name != name {
			continue
		}
		if got := n.Status + " " + string(n.Reason); got != want {
			s.Errorf("%s is %s, want %s: %s", name, got, want, n.Message)
		}
		for _, text := range texts {
			if !strings.Contains(n.Message, text) {
				s.Errorf("%s: no %q in %q", name, text, n.Message)
			}
		}
		if len(n.Message) > 1024 {
			s.Errorf("%s: a message of %d bytes", name, len(n.Message))
		}
		return
	}
	s.Errorf("there is no node %s", name)
}

// finds looks for a finding about exactly these nodes.
func (s *scene) finds(kind string, nodes ...string) audit.Finding {
	s.Helper()
	for _, f := range s.report().Findings {
		if f.Kind == kind && slices.Equal(slices.Sorted(slices.Values(f.Nodes)), slices.Sorted(slices.Values(nodes))) {
			return f
		}
	}
	s.Errorf("no finding %s about %q in %+v", kind, nodes, s.report().Findings)
	return audit.Finding{}
}

// answers compares the readiness for each choice of checks.
func (s *scene) answers(both, tls, cn verdict.Readiness) {
	s.Helper()
	for what, want := range map[verdict.What]verdict.Readiness{verdict.WhatBoth: both, verdict.WhatTLS: tls, verdict.WhatCN: cn} {
		s.result = nil
		before := s.nodes
		opts := s.options(what)
		if got := audit.Run(s.Context(), before, opts).Answer; got != want {
			s.Errorf("--what %s: %s, want %s", what, got, want)
		}
	}
}

func (s *scene) options(what verdict.What) audit.Options {
	s.Helper()
	bundle, err := trust.Parse("the test's", s.bundle)
	if err != nil {
		s.Fatal(err)
	}
	return audit.Options{
		Prober: &probe.Prober{AllowLocalAddresses: true}, Endpoints: kubelet.Options{PreferredAddressTypes: s.prefer},
		Policy: verdict.Policy{Bundle: bundle}, Timeout: s.timeout, Concurrency: 64, What: what, Clock: clock.RealClock{},
	}
}

// trusts makes the bundle of these CAs, in this order.
func (s *scene) trusts(cas ...*certs.CA) {
	var b bytes.Buffer
	for _, ca := range cas {
		b.Write(ca.PEM())
	}
	s.bundle, s.result = b.Bytes(), nil
}

// judged is the verdict about a host that loopback cannot stand for, such as a
// name: the certificate is as issued, the handshake is taken as done.
func (s *scene) judged(node *corev1.Node, template *x509.Certificate) verdict.Verdict {
	s.Helper()
	bundle, err := trust.Parse("the test's", s.bundle)
	if err != nil {
		s.Fatal(err)
	}
	exp := kubelet.ExpectationOf(node, kubelet.Options{PreferredAddressTypes: s.prefer})
	obs := verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: []*x509.Certificate{s.world.CA.Issue(template).Leaf()}}
	return verdict.Judge(exp, obs, verdict.Policy{Bundle: bundle}, s.world.Now)
}

func nodeAt(name string, addresses ...corev1.NodeAddress) *corev1.Node {
	n := fleet.Node(name, netip.MustParseAddr("10.0.0.11"), 10250)
	n.Status.Addresses = addresses
	return n
}

func internalIP(address string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
}

func hostname(address string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeHostName, Address: address}
}
