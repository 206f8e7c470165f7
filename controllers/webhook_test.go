package controllers_test

import (
	"context"
	"crypto/tls"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/cli"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

const (
	webhookName   = "kubelet-cert-auditor"
	webhookSecret = "kubelet-cert-auditor-webhook"
)

// withWebhook makes a manager serve the webhook at a port of its own, with the
// Secret mounted, and says where.
func withWebhook(ctx context.Context, port *string) func(*cli.ManagerOptions) {
	GinkgoHelper()
	free, err := controlplane.FreePort(ctx)
	Expect(err).NotTo(HaveOccurred())
	*port = strconv.Itoa(free)
	dir := GinkgoT().TempDir()
	unmount, err := cp.MountSecret(namespace, webhookSecret, dir)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(unmount)
	return func(o *cli.ManagerOptions) {
		o.Webhook.BindAddress, o.Webhook.CertDir = "127.0.0.1:"+*port, dir
	}
}

// installWebhook gives back what another spec has left changed.
func installWebhook(ctx context.Context) {
	GinkgoHelper()
	kubectl(ctx, "delete", "--ignore-not-found", "-f", "../config/webhook/webhook.yaml", "-f", "../config/webhook/secret.yaml")
	kubectl(ctx, "apply", "-f", "../config/webhook/webhook.yaml", "-f", "../config/webhook/secret.yaml")
}

// reach makes the API server call the manager at a port, once it can.
func reach(ctx context.Context, port string) {
	GinkgoHelper()
	url := "https://localhost:" + port + "/review-kubelet-serving"
	Expect(cp.ReachWebhook(ctx, webhookName, url)).To(Succeed())
	Expect(cp.WebhookReady(ctx, webhookName)).To(Succeed())
	// The API server reads its configurations from a cache of its own.
	user := requester(software)
	Eventually(ctx, func(g Gomega) {
		before := reviews("")
		_, err := user.request(ctx, certs.Request("probe", "node-probe"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(reviews("")).To(BeNumerically(">", before))
	}).Should(Succeed())
}

// failOpen is how often the API server went on without the webhook.
func failOpen(ctx context.Context) float64 {
	GinkgoHelper()
	_, n, err := cp.WebhookCounts(ctx, "kubelet-serving.kubeletcert.dev")
	Expect(err).NotTo(HaveOccurred())
	return n
}

// calls are those of the API server to the webhook.
func calls(ctx context.Context) float64 {
	GinkgoHelper()
	n, _, err := cp.WebhookCounts(ctx, "kubelet-serving.kubeletcert.dev")
	Expect(err).NotTo(HaveOccurred())
	return n
}

// reviews are those with a decision, "decision=<word>,reason=<word>" or a part of
// it, by the managers of this process; but those of requests found.
func reviews(part string) float64 {
	GinkgoHelper()
	sum := 0.0
	for labels, n := range series("csr_reviews_total") {
		if strings.Contains(labels, part) && !strings.Contains(labels, "decision=found") {
			sum += n
		}
	}
	return sum
}

// found are the requests that exist and ask for another node's address.
func found() float64 {
	GinkgoHelper()
	return series("csr_reviews_total")["decision=found,reason=ForeignAddress"]
}

// requester asks for certificates, and hears warnings.
type requesterClient struct {
	kubernetes.Interface
	mu       sync.Mutex
	warnings []string
}

func (r *requesterClient) HandleWarningHeader(_ int, _ string, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, text)
}

func (r *requesterClient) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := r.warnings
	r.warnings = nil
	return heard
}

const software = "system:serviceaccount:minio:minio-operator"

// requester is a node or some software; each may make requests.
func requester(user string) *requesterClient {
	GinkgoHelper()
	cfg := cp.UserConfig("system:node:"+user, "system:nodes")
	if user == software {
		cfg = cp.UserConfig(user, "system:masters") // the admin's rights, and no node
	}
	r := &requesterClient{}
	cfg.WarningHandler = r
	c, err := kubernetes.NewForConfig(cfg)
	Expect(err).NotTo(HaveOccurred())
	r.Interface = c
	return r
}

func (r *requesterClient) request(ctx context.Context, pem []byte) (*certificatesv1.CertificateSigningRequest, error) {
	return r.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem, SignerName: certificatesv1.KubeletServingSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}, metav1.CreateOptions{})
}

func setMode(ctx context.Context, mode v1alpha1.AdmissionMode, denyNonNodes bool) {
	GinkgoHelper()
	editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) {
		s.Admission = v1alpha1.AdmissionSpec{Mode: mode, DenyNonNodes: denyNonNodes}
	})
}

// servedCertificate is the signature of the certificate at a port.
func servedCertificate(ctx context.Context, port string) string {
	GinkgoHelper()
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:"+port)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = conn.Close() }()
	return string(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Signature)
}

func containText(texts ...string) OmegaMatcher {
	var all []OmegaMatcher
	for _, text := range texts {
		all = append(all, ContainSubstring(text))
	}
	return ContainElement(And(all...))
}

var _ = Describe("The admission webhook", func() {
	var port string
	var m *manager
	var opened float64 // the API server's count before the spec

	BeforeEach(func(ctx SpecContext) {
		installWebhook(ctx)
		createAudit(ctx, nil)
		m = start(ctx, withWebhook(ctx, &port))
		reach(ctx, port)
		opened = failOpen(ctx)
	}, NodeTimeout(time.Minute))

	It("warns, and in Enforce denies, a node that asks for another one's address; the mode changes live", func(ctx SpecContext) {
		a, b := join(ctx, "node-a", "good"), join(ctx, "node-b", "good")
		attacker := requester("node-a")
		request := func() error {
			_, err := attacker.request(ctx, certs.Request("node-a", "node-a", b.ip.String()))
			return err
		}
		ok := func() error {
			_, err := attacker.request(ctx, certs.Request("node-a", "node-a", a.ip.String()))
			return err
		}

		By("warning")
		warned, late := reviews("decision=warned,reason=ForeignAddress"), found()
		Expect(request()).To(Succeed())
		Expect(attacker.heard()).To(containText("kubelet-cert-auditor: ForeignAddress", `node "node-b"`, b.ip.String()))
		Expect(reviews("decision=warned,reason=ForeignAddress")).To(Equal(warned + 1))
		Eventually(ctx, a.events).Should(ContainElement("Warning ForeignAddress"))
		Eventually(ctx, b.events).Should(ContainElement("Warning ForeignAddress"))
		Eventually(found).Should(Equal(late + 1))
		Expect(ok()).To(Succeed())
		Expect(attacker.heard()).To(BeEmpty())

		By("denying")
		setMode(ctx, v1alpha1.AdmissionEnforce, false)
		var err error
		Eventually(ctx, func() error { err = request(); return err }).Should(MatchError(apierrors.IsForbidden, "forbidden"))
		Expect(err).To(MatchError(And(ContainSubstring("ForeignAddress"), ContainSubstring(`node "node-b"`))))
		Expect(reviews("decision=denied,reason=ForeignAddress")).To(BeNumerically(">", 0))
		for _, node := range []member{a, b} {
			Eventually(ctx, func() []string { return notes(ctx, node) }).Should(containText("denied: ", `of "system:node:node-a"`, `node "node-b"`))
		}
		attacker.heard()
		Expect(ok()).To(Succeed())
		Expect(attacker.heard()).To(BeEmpty())

		By("doing nothing")
		setMode(ctx, v1alpha1.AdmissionOff, false)
		Eventually(ctx, request).Should(Succeed())
		before, called := reviews(""), calls(ctx)
		attacker.heard()
		Expect(request()).To(Succeed())
		Expect(attacker.heard()).To(BeEmpty())
		Expect(reviews("")).To(Equal(before))
		Expect(calls(ctx)).To(Equal(called + 1))
		Expect(failOpen(ctx)).To(Equal(opened))
	}, limit)

	It("only warns software that is no node, unless it is to deny that too", func(ctx SpecContext) {
		setMode(ctx, v1alpha1.AdmissionEnforce, false)
		minio := requester(software)
		request := func() error {
			_, err := minio.request(ctx, certs.Request("*.minio-hl.tenant.svc.cluster.local", "minio.tenant.svc"))
			return err
		}
		warned := reviews("decision=warned,reason=RequesterNotNode")
		Expect(request()).To(Succeed())
		Expect(minio.heard()).To(containText("RequesterNotNode", software))
		Expect(reviews("decision=warned,reason=RequesterNotNode")).To(Equal(warned + 1))
		setMode(ctx, v1alpha1.AdmissionEnforce, true)
		Eventually(ctx, request).Should(MatchError(And(ContainSubstring("denied the request"), ContainSubstring("RequesterNotNode"))))
		Expect(failOpen(ctx)).To(Equal(opened))
	}, limit)

	It("takes a control-plane node's own address for its own, though it is an endpoint of the API server", func(ctx SpecContext) {
		setMode(ctx, v1alpha1.AdmissionEnforce, false)
		plane, worker := newMember("plane"), newMember("worker")
		for _, node := range []member{plane, worker} {
			object := node.serve("good").node()
			if node.name == plane.name {
				object.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
			}
			object.Status.Addresses = append(object.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.1"})
			Expect(kube.Create(ctx, object)).To(Succeed())
		}
		endpoints := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.1"}}},
		}
		Expect(kube.Create(ctx, endpoints)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(kube.Delete(ctx, endpoints)).To(Succeed()) })
		m.stop() // it has read the endpoints, which hold for a minute
		// Before the next one starts: it ends where its Secret goes as it reads it.
		installWebhook(ctx)
		m = start(ctx, withWebhook(ctx, &port))
		reach(ctx, port)
		opened = failOpen(ctx)

		own := requester(plane.name)
		_, err := own.request(ctx, certs.Request(plane.name, plane.name, plane.ip.String(), "203.0.113.1"))
		Expect(err).To(MatchError(ContainSubstring("ForeignAddress")), "the worker reports it too")
		worker.delete(ctx)
		Eventually(ctx, func() error {
			_, err := own.request(ctx, certs.Request(plane.name, plane.name, plane.ip.String(), "203.0.113.1"))
			return err
		}).Should(Succeed())
		Expect(own.heard()).To(BeEmpty())

		other := worker.register(ctx)
		_, err = requester(other.name).request(ctx, certs.Request(other.name, "203.0.113.1"))
		Expect(err).To(MatchError(ContainSubstring("ReservedAddress")), "a worker's it is not")
		Expect(failOpen(ctx)).To(Equal(opened))
	}, limit)

	It("is asked about new requests for its signer alone", func(ctx SpecContext) {
		a := join(ctx, "node-a", "good")
		kubelet := requester("node-a")
		before, opened := calls(ctx), failOpen(ctx)
		serving, err := kubelet.request(ctx, certs.Request("node-a", a.ip.String()))
		Expect(err).NotTo(HaveOccurred())
		Expect(calls(ctx)).To(Equal(before + 1))

		By("approving, signing and deleting it")
		requests := requester(software).CertificatesV1().CertificateSigningRequests()
		serving.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
		serving, err = requests.UpdateApproval(ctx, serving.Name, serving, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		serving.Status.Certificate = world.CA.Issue(certs.Template(a.identity())).CertificatePEM()
		serving, err = requests.UpdateStatus(ctx, serving, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		serving.Labels = map[string]string{"a": "b"}
		_, err = requests.Update(ctx, serving, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(requests.Delete(ctx, serving.Name, metav1.DeleteOptions{})).To(Succeed())

		By("asking other signers")
		for signer, usage := range map[string]certificatesv1.KeyUsage{
			certificatesv1.KubeAPIServerClientKubeletSignerName: certificatesv1.UsageClientAuth,
			certificatesv1.KubeAPIServerClientSignerName:        certificatesv1.UsageClientAuth,
			"example.com/other":                                 certificatesv1.UsageServerAuth,
		} {
			_, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					Request: certs.Request("node-b", "*"), SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
				},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred(), signer)
		}
		Expect(calls(ctx)).To(Equal(before + 1))
		Expect(failOpen(ctx)).To(Equal(opened))
	}, limit)

	It("that is away keeps nobody waiting, and the request is reviewed when it is back", func(ctx SpecContext) {
		a, b := join(ctx, "node-a", "good"), join(ctx, "node-b", "good")
		setMode(ctx, v1alpha1.AdmissionEnforce, false)
		m.stop()
		asked := time.Now()
		csr, err := requester("node-a").request(ctx, certs.Request("node-a", b.ip.String()))
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Since(asked)).To(BeNumerically("<", 10*time.Second), "the API server's time-out is three seconds")
		Expect(failOpen(ctx)).To(Equal(opened + 1))
		m = start(ctx, nil)
		for _, node := range []member{a, b} {
			Eventually(ctx, func() []string { return notes(ctx, node) }).Should(containText(csr.Name, "ForeignAddress", `node "node-b"`))
		}
		Eventually(found).Should(Equal(1.0))

		By("not saying so again after another start")
		m.stop()
		m = start(ctx, nil)
		next, err := requester("node-b").request(ctx, certs.Request("node-b", a.ip.String()))
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() []string { return notes(ctx, b) }).Should(containText(next.Name))
		Expect(slices.DeleteFunc(notes(ctx, b), func(note string) bool { return !strings.Contains(note, csr.Name) })).To(HaveLen(1))
		Eventually(found).Should(Equal(1.0), "of this process, the one that is new")
	}, limit)

	It("is served by every replica", func(ctx SpecContext) {
		var second string
		mount := withWebhook(ctx, &second)
		registry := prometheus.NewRegistry()
		follower := start(ctx, func(o *cli.ManagerOptions) {
			mount(o)
			o.Registerer = registry
		})
		Eventually(ctx, func() []string { return follower.lines(`"logger":"webhook","msg":"serving"`) }).Should(HaveLen(1))
		installWebhook(ctx)
		Expect(cp.ReachWebhook(ctx, webhookName, "https://localhost:"+second+"/review-kubelet-serving")).To(Succeed())
		Expect(cp.WebhookReady(ctx, webhookName)).To(Succeed())
		user := requester(software)
		Eventually(ctx, func() map[string]float64 {
			_, err := user.request(ctx, certs.Request("any", "any"))
			Expect(err).NotTo(HaveOccurred())
			return seriesIn(registry, "csr_reviews_total")
		}).Should(HaveKey(HavePrefix("decision=warned,")))
		Expect(follower.lines("uccessfully acquired lease")).To(BeEmpty())
		Expect(m.lines("uccessfully acquired lease")).To(HaveLen(1))
	}, limit)
})

// notes of the Events on a Node.
func notes(ctx context.Context, m member) []string {
	GinkgoHelper()
	var texts []string
	for _, e := range eventsOn(ctx, m.get(ctx).UID) {
		texts = append(texts, e.Note)
	}
	return texts
}

var _ = Describe("The webhook's certificate", func() {
	It("is renewed without a request that goes unreviewed", func(ctx SpecContext) {
		const life, renewBefore = time.Hour, time.Hour - 4*time.Second
		installWebhook(ctx)
		createAudit(ctx, nil)
		var port string
		mount := withWebhook(ctx, &port)
		start(ctx, func(o *cli.ManagerOptions) {
			mount(o)
			o.Webhook.Life, o.Webhook.RenewBefore, o.Webhook.Check = life, renewBefore, 500*time.Millisecond
		})
		reach(ctx, port)
		opened, user := failOpen(ctx), requester(software)
		served := map[string]bool{}
		requests := 0.0
		before := reviews("")
		Eventually(ctx, func(g Gomega) {
			_, err := user.request(ctx, certs.Request("any", "any"))
			Expect(err).NotTo(HaveOccurred())
			requests++
			served[servedCertificate(ctx, port)] = true
			g.Expect(len(served)).To(BeNumerically(">=", 4))
		}).WithTimeout(time.Minute).Should(Succeed())
		Expect(failOpen(ctx)).To(Equal(opened))
		Expect(reviews("")).To(Equal(before + requests))
		Expect(requests).To(BeNumerically(">", 10))
	}, limit)
})

var _ = Describe("A Node whose kubelet has no certificate", func() {
	It("is told its request: to approve, denied, issued, and again", func(ctx SpecContext) {
		createAudit(ctx, nil)
		start(ctx, nil)
		a := join(ctx, "node-a", "no-certificate")
		kubelet, admin := requester("node-a"), requester(software).CertificatesV1().CertificateSigningRequests()
		message := func() string { return conditionMessage(a.get(ctx)) }
		Eventually(ctx, message).Should(ContainSubstring("look for its pending request"))

		csr, err := kubelet.request(ctx, certs.Request("node-a", a.ip.String()))
		Expect(err).NotTo(HaveOccurred())
		connections := a.connections()
		Eventually(ctx, message).Should(ContainSubstring("kubectl certificate approve " + csr.Name))
		Expect(a.connections()-connections).To(BeNumerically("<=", 1), "a probe for each word")

		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
		_, err = admin.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, message).Should(ContainSubstring(csr.Name + " was denied"))

		By("a later one that is issued")
		Eventually(ctx, func() int64 { return time.Now().Unix() }).Should(BeNumerically(">", csr.CreationTimestamp.Unix()))
		csr, err = kubelet.request(ctx, certs.Request("node-a", a.ip.String()))
		Expect(err).NotTo(HaveOccurred())
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
		csr, err = admin.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, message).Should(ContainSubstring(csr.Name + " is approved but not signed"))
		csr.Status.Certificate = world.CA.Issue(certs.Template(a.identity())).CertificatePEM()
		csr, err = admin.UpdateStatus(ctx, csr, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, message).Should(ContainSubstring("issued for its request " + csr.Name + ", but the kubelet has not loaded it"))
		Expect(a.condition(ctx)).To(Equal("False NoServingCertificate"))
		Expect(a.events(ctx)).To(HaveLen(1), "the verdict was the same all the time")

		By("none any more")
		Expect(kube.DeleteAllOf(ctx, &certificatesv1.CertificateSigningRequest{})).To(Succeed())
		Eventually(ctx, message).Should(ContainSubstring("look for its pending request"))
	}, limit)
})

func conditionMessage(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.ConditionServingCertificateValid {
			return c.Message
		}
	}
	return ""
}
