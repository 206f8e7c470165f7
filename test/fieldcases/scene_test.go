package fieldcases

import (
	"bytes"
	"crypto/x509"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/report"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// What a node is.
const (
	verified     = "True Verified"
	wrongAddress = "False AddressMismatch"
	unknownCA    = "False UnknownAuthority"
	wrongName    = "False CommonNameMismatch"
)

// scene is a small cluster whose kubelets serve real TLS on loopback.
type scene struct {
	*testing.T
	world  *certs.World
	fleet  *fleet.Fleet
	nodes  []*corev1.Node
	bundle []byte // PEM; nil where there is none
	port   int32  // where a Node reports none
	prefer []corev1.NodeAddressType
	// prober is one for the whole scene, as in the manager: what it kept of a
	// connection would show.
	prober *probe.Prober
	// timeout of a probe; shorter where a peer is silent.
	timeout time.Duration
	grace   time.Duration
	result  *audit.Report
	// requests that nodes have made.
	requests kubelet.Requests
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
	return &scene{
		T: t, world: w, fleet: f, bundle: w.CA.PEM(), prefer: []corev1.NodeAddressType{corev1.NodeInternalIP},
		prober: &probe.Prober{AllowLocalAddresses: true}, timeout: 20 * time.Second,
	}
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
	template := s.template(id)
	if change != nil {
		change(template)
	}
	return s.serve(id, fleet.Behaviour{Served: ca.Issue(template).With(served...)})
}

// template is that of a good certificate of a year.
func (s *scene) template(id certs.Identity) *x509.Certificate {
	template := certs.Template(id)
	template.NotBefore, template.NotAfter = s.world.Now.Add(-time.Hour), s.world.Now.Add(365*24*time.Hour)
	return template
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

// asks makes a node's request, which is answered with a certificate, if that is
// not nil.
func (s *scene) asks(node, name string, issued []byte) {
	csr := &certificatesv1.CertificateSigningRequest{}
	csr.Name, csr.CreationTimestamp = name, metav1.Now()
	csr.Spec.SignerName, csr.Spec.Username, csr.Spec.Groups = certificatesv1.KubeletServingSignerName, "system:node:"+node, []string{"system:nodes"}
	if issued != nil {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
		csr.Status.Certificate = issued
	}
	s.requests.Set(csr)
}

// again makes the next question sweep anew.
func (s *scene) again() { s.result = nil }

// report sweeps once.
func (s *scene) report() *audit.Report {
	s.Helper()
	if s.result == nil {
		s.result = s.sweep(verdict.WhatBoth)
	}
	return s.result
}

func (s *scene) sweep(what verdict.What) *audit.Report {
	s.Helper()
	return audit.Run(s.Context(), s.nodes, audit.Options{
		Prober: s.prober, Endpoints: kubelet.Options{PreferredAddressTypes: s.prefer, Port: s.port},
		Policy: verdict.Policy{Bundle: s.parsed(), NewNodeGrace: s.grace}, Requests: &s.requests,
		Timeout: s.timeout, Concurrency: 64, What: what, Clock: clock.RealClock{},
	})
}

func (s *scene) parsed() verdict.Bundle {
	s.Helper()
	if s.bundle == nil {
		return verdict.Bundle{}
	}
	bundle, err := trust.Parse("the test's", s.bundle)
	if err != nil {
		s.Fatal(err)
	}
	return bundle
}

// of is the answer for a node.
func (s *scene) of(name string) audit.Node {
	s.Helper()
	for _, n := range s.report().Nodes {
		if n.Name == name {
			return n
		}
	}
	s.Fatalf("there is no node %s", name)
	return audit.Node{}
}

// is compares a node's answer; its message must hold the texts, and a client
// that verifies as kube-apiserver does must come to the same.
func (s *scene) is(name, want string, texts ...string) {
	s.Helper()
	n := s.of(name)
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
	s.agrees(n)
}

// fails compares the checks of a node that fail.
func (s *scene) fails(name string, want ...string) {
	s.Helper()
	var got []string
	for _, c := range s.of(name).Checks {
		if c.Result == "Fail" {
			got = append(got, string(c.Name))
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("%s fails %q, want %q", name, got, want)
	}
}

// hints compares the end of what is said of a node.
func (s *scene) hints(name, text string) {
	s.Helper()
	if hint := s.of(name).Hint; text == "" && hint != "" || !strings.Contains(hint, text) {
		s.Errorf("%s: the hint is %q, want %q", name, hint, text)
	}
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
		if got := s.sweep(what).Answer; got != want {
			s.Errorf("--what %s: %s, want %s", what, got, want)
		}
	}
}

// rendered is the report in one format.
func (s *scene) rendered(format report.Format) string {
	s.Helper()
	var b bytes.Buffer
	if err := report.Render(&b, s.report(), format); err != nil {
		s.Fatal(err)
	}
	return b.String()
}

// trusts makes the bundle of these CAs, in this order.
func (s *scene) trusts(cas ...*certs.CA) {
	var b bytes.Buffer
	for _, ca := range cas {
		b.Write(ca.PEM())
	}
	s.bundle = b.Bytes()
	s.again()
}

// undialled says that nobody was dialled.
func (s *scene) undialled() {
	s.Helper()
	if n := s.fleet.Total().Connections; n != 0 {
		s.Errorf("%d connections were made", n)
	}
}

// settled is what arrived at an address once all of it has ended: a server
// finishes a handshake after its client.
func (s *scene) settled(ip netip.Addr) fleet.Counts {
	s.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); runtime.Gosched() {
		if c := s.fleet.Counts(ip); c.Open == 0 {
			return c
		}
	}
	s.Fatal("connections stay open")
	return fleet.Counts{}
}

// judged is the verdict about an address that loopback cannot stand for: the
// certificate is as issued, the handshake is taken as done.
func (s *scene) judged(node *corev1.Node, template *x509.Certificate) verdict.Verdict {
	s.Helper()
	exp := kubelet.ExpectationOf(node, kubelet.Options{PreferredAddressTypes: s.prefer})
	obs := verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: []*x509.Certificate{s.world.CA.Issue(template).Leaf()}}
	return verdict.Judge(exp, obs, verdict.Policy{Bundle: s.parsed()}, s.world.Now)
}

func internalIP(address string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
}

func hostname(address string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeHostName, Address: address}
}
