package oracle

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/probe"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// parallel is the number of combinations under way at a time.
const parallel = 8

// combination is the option taken of each dimension, from 1; 0 is the base.
type combination []int

func (c combination) String() string {
	var parts []string
	for d, o := range c {
		if o > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s", dimensions[d].name, dimensions[d].options[o-1].name))
		}
	}
	if parts == nil {
		return "the base"
	}
	return strings.Join(parts, "; ")
}

// generate gives the n-th combination of a seed, and the group it belongs to.
// The first ones take each option alone, so that every seed has them all.
func generate(seed uint64, n int) (combination, int) {
	c := make(combination, len(dimensions))
	left := n
	for d := range dimensions {
		if left < len(dimensions[d].options) {
			c[d] = left + 1
			return c, n % len(groups)
		}
		left -= len(dimensions[d].options)
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	for range r.IntN(5) {
		d := r.IntN(len(dimensions))
		c[d] = 1 + r.IntN(len(dimensions[d].options))
	}
	return c, r.IntN(len(groups))
}

// prepared is a combination with its certificates made.
type prepared struct {
	number int
	combination
	plan   *plan
	served certs.Served
}

var _ = Describe("The verdict is kube-apiserver's own", Ordered, ContinueOnFailure, func() {
	var (
		now     time.Time
		a       *authorities
		dns     *dnsStub
		sim     *fleet.Fleet
		numbers atomic.Int64 // of addresses and names, each used once
		total   = tally{}
		differ  int
	)

	BeforeAll(func(ctx SpecContext) {
		// In whole seconds, as certificates are.
		now = time.Now().Truncate(time.Second)
		a = newAuthorities(now)
		var err error
		dns, err = startDNS(ctx)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(dns.close()).To(Succeed()) })
		var listeners []net.Listener
		for _, port := range []int{defaultPort, secondPort} {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
			Expect(err).NotTo(HaveOccurred())
			listeners = append(listeners, l)
		}
		sim, err = fleet.Serve(listeners...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(sim.Close()).To(Succeed()) })
		for _, ip := range []string{elsewhere, elsewhere2} {
			sim.Set(netip.MustParseAddr(ip), fleet.Behaviour{Wire: certs.WireCloseAfterHello})
		}
	})

	AfterAll(func() {
		fmt.Printf("oracle: %d combinations, %d disagreements (kube-apiserver %s, seed %d)\n%s", total.sum(), differ, version, *seed, total)
	})

	prepare := func(c combination, g *group, number int) prepared {
		p := newPlan(a, g, int(numbers.Add(1)), now)
		for d, o := range c {
			if o > 0 {
				dimensions[d].options[o-1].apply(p)
			}
		}
		return prepared{number: number, combination: c, plan: p, served: p.served()}
	}

	for i, g := range groups {
		It("where the API server has "+g.name, func(ctx SpecContext) {
			var all []prepared
			for n := range *combinations {
				if c, of := generate(*seed, n); of == i && (*only < 0 || n == *only) {
					all = append(all, prepare(c, g, n))
				}
			}
			if len(all) == 0 {
				Skip("no combination here")
			}
			text := bundleOf(a, g, all)
			bundle, err := trust.Parse("the test's", text)
			Expect(err).NotTo(HaveOccurred())
			client := startAPIServer(ctx, g, text)
			judge := &judge{bundle: bundle, group: g, client: client, sim: sim, dns: dns}

			disagreements := judge.all(ctx, all, total)
			differ += len(disagreements)
			for n, d := range disagreements {
				if n < 5 {
					d = judge.shrink(ctx, d, func(c combination) prepared { return prepare(c, g, d.number) })
				}
				fmt.Println(d)
			}
			Expect(disagreements).To(BeEmpty())
		}, NodeTimeout(30*time.Minute))
	}
})

// version of the API server that was asked.
var version string

// bundleOf is what kube-apiserver is given, with the leaves that are pinned.
func bundleOf(a *authorities, g *group, all []prepared) []byte {
	var b bytes.Buffer
	if g.noise {
		b.WriteString("subject=CN = noise\n")
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: []byte("no certificate")})
		_ = pem.Encode(&b, &pem.Block{Type: "PUBLIC KEY", Bytes: a.root.certificate.RawSubjectPublicKeyInfo})
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"Of": "unknown"}, Bytes: a.unknown.certificate.Raw})
	}
	for _, ca := range g.anchors(a) {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: ca.certificate.Raw})
	}
	for _, p := range all {
		if p.plan.pinned {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: p.served.Chain[0]})
		}
	}
	return b.Bytes()
}

func startAPIServer(ctx context.Context, g *group, bundle []byte) kubernetes.Interface {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
		return path
	}
	clientCA := certs.NewCA("kubelet-client", time.Now())
	identity := clientCA.Issue(clientTemplate())
	types := make([]string, len(g.preferred))
	for i, t := range g.preferred {
		types[i] = string(t)
	}
	cp, err := controlplane.Start(ctx, controlplane.Options{APIServerArgs: []string{
		"--kubelet-certificate-authority=" + write("kubelet-ca.crt", bundle),
		"--kubelet-client-certificate=" + write("kubelet-client.crt", identity.CertificatePEM()),
		"--kubelet-client-key=" + write("kubelet-client.key", identity.KeyPEM()),
		"--kubelet-preferred-address-types=" + strings.Join(types, ","),
		"--advertise-address=192.0.2.10", // there is no other device to take one from
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(cp.Stop()).To(Succeed()) })
	cfg := cp.Config()
	cfg.WarningHandler = rest.NoWarnings{} // about the names of Pods
	client, err := kubernetes.NewForConfig(cfg)
	Expect(err).NotTo(HaveOccurred())
	info, err := client.Discovery().ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	version = info.GitVersion + ", built with " + info.GoVersion
	return client
}

// judge puts the question to both.
type judge struct {
	bundle verdict.Bundle
	group  *group
	client kubernetes.Interface
	sim    *fleet.Fleet
	dns    *dnsStub
}

// tally counts what was asked by kube-apiserver's answer.
type tally map[string]int

func (t tally) add(d disagreement) {
	switch {
	case !d.answer.accepted:
		t["refused: "+string(d.answer.refusal)]++
	case d.verdict.Status == verdict.True:
		t["accepted, and the common name is right"]++
	default:
		t["accepted, but for the common name"]++
	}
}

func (t tally) sum() int {
	sum := 0
	for _, n := range t {
		sum += n
	}
	return sum
}

func (t tally) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprintf(&b, "%6d  %s\n", t[key], key)
	}
	return b.String()
}

// disagreement is a question to which the answers differ.
type disagreement struct {
	prepared
	shrunk  combination
	group   *group
	node    *corev1.Node
	answer  answer
	verdict verdict.Verdict
	what    string
}

func (d disagreement) String() string {
	return fmt.Sprintf("DISAGREEMENT: %s\n  seed %d, combination %d, where the API server has %s\n  generated: %s\n  shrunk to: %s\n  addresses: %q port %d\n"+
		"  kube-apiserver: accepted %t, %s: %q\n  the product: %s %s: %q",
		d.what, *seed, d.number, d.group.name, d.combination, d.shrunk, d.node.Status.Addresses, d.node.Status.DaemonEndpoints.KubeletEndpoint.Port,
		d.answer.accepted, d.answer.refusal, d.answer.words, d.verdict.Status, d.verdict.Reason, d.verdict.Message)
}

// all asks about many at a time.
func (j *judge) all(ctx context.Context, list []prepared, total tally) []disagreement {
	GinkgoHelper()
	var mu sync.Mutex
	var found []disagreement
	var failed []error
	var workers sync.WaitGroup
	work := make(chan prepared)
	for range parallel {
		workers.Go(func() {
			for p := range work {
				d, err := j.one(ctx, p)
				mu.Lock()
				if err != nil {
					failed = append(failed, fmt.Errorf("combination %d (%s): %w", p.number, p.combination, err))
				}
				total.add(d)
				if d.what != "" {
					found = append(found, d)
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range list {
		work <- p
	}
	close(work)
	workers.Wait()
	Expect(failed).To(BeEmpty(), "questions that could not be put")
	return found
}

// one asks about one combination; what is empty where the answers agree.
func (j *judge) one(ctx context.Context, p prepared) (disagreement, error) {
	if p.plan.ip.Is6() {
		if err := addAddress(p.plan.ip); err != nil {
			return disagreement{}, err
		}
	}
	for name, addresses := range p.plan.records {
		j.dns.set(name, addresses...)
	}
	j.sim.Set(p.plan.ip, p.plan.behaviour(p.served))
	d := disagreement{prepared: p, shrunk: p.combination, group: j.group, node: p.plan.node()}
	exp := kubelet.ExpectationOf(d.node, kubelet.Options{PreferredAddressTypes: j.group.preferred})
	var obs verdict.Observation
	if exp.Endpoint.Host != "" {
		var err error
		prober := &probe.Prober{AllowLocalAddresses: true}
		if obs, err = prober.Probe(ctx, exp.Endpoint, 20*time.Second); err != nil {
			return d, err
		}
	}
	d.verdict = verdict.Judge(exp, obs, verdict.Policy{Bundle: j.bundle}, time.Now())
	var err error
	if d.answer, err = ask(ctx, j.client, d.node); err != nil {
		return d, err
	}
	d.what = difference(d.answer, d.verdict, p.plan.commonName == "system:node:"+p.plan.name)
	return d, nil
}

// difference between the answers; right says whether the certificate has the
// common name that KEP-4872 demands.
func difference(a answer, v verdict.Verdict, right bool) string {
	accepted := v.Group() == verdict.GroupVerified || v.Group() == verdict.GroupBreaksWhenEnabled
	switch {
	case a.accepted != accepted:
		return "one accepts and the other refuses"
	case a.accepted:
		return differenceInAccepting(v, right)
	case a.refusal == "":
		return "kube-apiserver's words are not known"
	case a.refusal == v.Reason:
		return ""
	case a.refusal == v1alpha1.ReasonNoServingCertificate && v.Reason == v1alpha1.ReasonHandshakeFailed && v.Leaf != nil:
		return "" // the same alert, but kube-apiserver does not say that it came after a certificate
	}
	return "they refuse for different reasons"
}

func differenceInAccepting(v verdict.Verdict, right bool) string {
	for _, check := range v.Checks {
		want := verdict.Pass
		if check.Name == v1alpha1.CheckCommonName && !right {
			want = verdict.Fail
		}
		if check.Result != want {
			return fmt.Sprintf("kube-apiserver accepts, and the check %s is %s", check.Name, check.Result)
		}
	}
	if right != (v.Status == verdict.True) {
		return "the common name is judged against KEP-4872"
	}
	return ""
}

// shrink takes departures back as long as the answers still differ.
func (j *judge) shrink(ctx context.Context, d disagreement, prepare func(combination) prepared) disagreement {
	for dimension := range d.shrunk {
		if d.shrunk[dimension] == 0 {
			continue
		}
		smaller := append(combination(nil), d.shrunk...)
		smaller[dimension] = 0
		if next, err := j.one(ctx, prepare(smaller)); err == nil && next.what != "" {
			next.combination = d.combination
			d = next
		}
	}
	return d
}
