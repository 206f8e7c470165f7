package admission_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/admission"
)

var epoch = time.Date(2026, 1, 1, 12, 30, 0, 0, time.UTC)

// desk is a webhook, the API server behind it, and all that was said.
type desk struct {
	admission.Handler
	late   admission.Late
	cached *admission.Index
	spec   v1alpha1.AdmissionSpec
	// live objects by kind and name; unreadable, where set, is the answer to all.
	live       map[string]client.Object
	unreadable error
	reads      []string

	clock  *clocktesting.FakeClock
	counts []string
	events []string
	known  map[string]bool // Events that there are already, as in events
}

func newDesk(mode v1alpha1.AdmissionMode, live ...*corev1.Node) *desk {
	d := &desk{cached: cluster(), spec: v1alpha1.AdmissionSpec{Mode: mode}, live: map[string]client.Object{}, clock: clocktesting.NewFakeClock(epoch), known: map[string]bool{}}
	for _, n := range live {
		d.live["Node "+n.Name] = n
	}
	reviewer := &admission.Reviewer{
		Index: d.cached, Synced: func() bool { return true }, Cached: cache{reader{d}}, Live: reader{d},
		Reserved: func(context.Context) admission.Reserved { return reserved },
	}
	spec := func(context.Context) (v1alpha1.AdmissionSpec, error) { return d.spec, nil }
	d.Handler = admission.Handler{Reviewer: reviewer, Spec: spec, Counters: d, Recorder: d, Clock: d.clock}
	d.late = admission.Late{Reviewer: reviewer, Spec: spec, Counters: d, Recorder: d, Clock: d.clock}
	return d
}

type reader struct{ *desk }

func (r reader) Get(_ context.Context, key types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	name := strings.TrimPrefix(fmt.Sprintf("%T", into), "*v1.") + " " + key.Name
	r.reads = append(r.reads, name)
	if r.unreadable != nil {
		return r.unreadable
	}
	found, ok := r.live[name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// cache reads the same Nodes, at no cost.
type cache struct{ reader }

func (c cache) Get(ctx context.Context, key types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	return reader{&desk{live: c.live}}.Get(ctx, key, into)
}

func (reader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed")
}

func (d *desk) RequestReviewed(decision v1alpha1.ReviewDecision, reason v1alpha1.ReviewReason) {
	d.counts = append(d.counts, strings.TrimSpace(string(decision)+" "+string(reason)))
}

func (d *desk) ReviewTook(time.Duration) {}

func (d *desk) RequestDenied(regarding *corev1.ObjectReference, reason v1alpha1.ReviewReason, note string) {
	d.events = append(d.events, fmt.Sprintf("%s %s %s %s: %s", regarding.Kind, regarding.Name, regarding.UID, reason, note))
}

func (d *desk) RequestFound(_ context.Context, regarding *corev1.ObjectReference, requester string, reason v1alpha1.ReviewReason, note string, _ time.Time) (bool, error) {
	key := fmt.Sprintf("%s %s %s", regarding.Name, requester, reason)
	if d.known[key] {
		return false, nil
	}
	d.known[key] = true
	d.RequestDenied(regarding, reason, note)
	return true, nil
}

func object(r admission.Request, made time.Time) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "csr-uid", CreationTimestamp: metav1.NewTime(made)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: r.PEM, Usages: r.Usages, SignerName: certificatesv1.KubeletServingSignerName, Username: r.User, Groups: r.Groups,
		},
	}
}

// ask is the API server's question about a request.
func ask(r admission.Request, change func(*admissionv1.AdmissionRequest)) ctrladmission.Request {
	csr := object(r, epoch)
	csr.Spec.Username, csr.Spec.Groups = "of the body", nil // which does not count
	text, err := json.Marshal(csr)
	if err != nil {
		panic(err)
	}
	req := ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "review", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: text},
		UserInfo: authenticationv1.UserInfo{Username: r.User, Groups: r.Groups},
	}}
	if change != nil {
		change(&req.AdmissionRequest)
	}
	return req
}

func withUID(n *corev1.Node, uid types.UID) *corev1.Node {
	n.UID, n.CreationTimestamp = uid, metav1.NewTime(epoch.Add(-time.Hour))
	return n
}

var (
	nodeA = withUID(node("node-a", nil, "10.0.0.11", "node-a"), "uid-a")
	nodeB = withUID(node("node-b", nil, "10.0.0.12", "node-b"), "uid-b")
)

// foreign is node-a's, and asks for node-b's address.
func foreignRequest() admission.Request { return request(addresses("10.0.0.12")) }

func (d *desk) expect(t *testing.T, counts, events string) {
	t.Helper()
	if got := strings.Join(d.counts, ", "); got != counts {
		t.Errorf("counted %q, want %q", got, counts)
	}
	if got := strings.Join(d.events, "\n"); got != events {
		t.Errorf("events:\n%s\nwant:\n%s", got, events)
	}
}

func TestHandlerWarnsAndDenies(t *testing.T) {
	const said = `request "csr-1" of "system:node:node-a": ForeignAddress: node "node-b" reports "10.0.0.12", which it asks for`
	for _, c := range []struct {
		name           string
		mode           v1alpha1.AdmissionMode
		request        admission.Request
		change         func(*admissionv1.AdmissionRequest)
		denied, warned string
		counts, events string
	}{
		{"all is well", v1alpha1.AdmissionEnforce, request(nil), nil, "", "", "allowed", ""},
		{"off", v1alpha1.AdmissionOff, foreignRequest(), nil, "", "", "", ""},
		{"warn", v1alpha1.AdmissionWarn, foreignRequest(), nil, "", "kubelet-cert-auditor: ForeignAddress: node \"node-b\" reports \"10.0.0.12\"", "warned ForeignAddress", ""},
		{"enforce", v1alpha1.AdmissionEnforce, foreignRequest(), nil, "ForeignAddress: node \"node-b\" reports", "", "denied ForeignAddress",
			"Node node-a uid-a ForeignAddress: denied: " + said + "\nNode node-b uid-b ForeignAddress: denied: " + said},
		{"a dry run makes no Event", v1alpha1.AdmissionEnforce, foreignRequest(), func(r *admissionv1.AdmissionRequest) { dry := true; r.DryRun = &dry },
			"ForeignAddress", "", "denied ForeignAddress", ""},
		{"another signer", v1alpha1.AdmissionEnforce, foreignRequest(), func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = []byte(strings.Replace(string(r.Object.Raw), "kubernetes.io/kubelet-serving", "example.com/other", 1))
		}, "", "", "", ""},
		{"an update", v1alpha1.AdmissionEnforce, foreignRequest(), func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }, "", "", "", ""},
		{"an approval", v1alpha1.AdmissionEnforce, foreignRequest(), func(r *admissionv1.AdmissionRequest) { r.SubResource = "approval" }, "", "", "", ""},
		{"no request at all", v1alpha1.AdmissionEnforce, foreignRequest(), func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte("text") }, "", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(c.mode, nodeA, nodeB)
			d.cached.Set(nodeA)
			d.cached.Set(nodeB)
			r := d.Handle(t.Context(), ask(c.request, c.change))
			if r.Allowed != (c.denied == "") || !strings.Contains(r.Result.Message, c.denied) || c.denied != "" && r.Result.Code != 403 {
				t.Errorf("%+v", r.Result)
			}
			if warned := strings.Join(r.Warnings, "\n"); (warned == "") != (c.warned == "") || !strings.Contains(warned, c.warned) {
				t.Errorf("%q", warned)
			}
			d.expect(t, c.counts, c.events)
		})
	}
}

// A warning that is cut by kube-apiserver would lose its end.
func TestWarningsAreShort(t *testing.T) {
	var many []string
	for i := range 50 {
		many = append(many, strings.Repeat("x", 60)+fmt.Sprint(i))
	}
	d := newDesk(v1alpha1.AdmissionWarn, nodeA)
	for _, warning := range d.Handle(t.Context(), ask(request(names(many...)), nil)).Warnings {
		if len(warning) > 256 {
			t.Errorf("%d bytes", len(warning))
		}
	}
}

// What the cache holds against a request, the Nodes say themselves.
func TestNodesAreReadLive(t *testing.T) {
	moved := withUID(node("node-b", nil, "10.0.0.13"), "uid-b")
	grown := withUID(node("node-a", nil, "10.0.0.11", "10.0.0.99"), "uid-a")
	heir := withUID(node("node-c", nil, "10.0.0.12"), "uid-c")
	for _, c := range []struct {
		name    string
		live    []*corev1.Node
		cached  []*corev1.Node
		request admission.Request
		denied  string
		reads   string
	}{
		{"nothing is held against it", nil, nil, request(nil), "", ""},
		{"not about Nodes", nil, nil, organization("system:masters"), "OrganizationInvalid", ""},
		{"it holds", []*corev1.Node{nodeA, nodeB}, nil, foreignRequest(), "ForeignAddress", "Node node-a, Node node-b"},
		{"the other one has moved", []*corev1.Node{grown, moved}, nil, request(addresses("10.0.0.11", "10.0.0.12")), "AddressNotReported", "Node node-a, Node node-b"},
		{"the other one is gone", []*corev1.Node{withUID(node("node-a", nil, "10.0.0.12"), "uid-a")}, nil, foreignRequest(), "", "Node node-a, Node node-b"},
		{"its own address is new", []*corev1.Node{grown, nodeB}, nil, request(addresses("10.0.0.99")), "", "Node node-a"},
		{"one of two owners has moved", []*corev1.Node{nodeA, moved, heir}, []*corev1.Node{heir}, foreignRequest(), `ForeignAddress: node "node-c"`, "Node node-a, Node node-b, Node node-c"},
		{"its own Node is of the control plane since a moment", []*corev1.Node{node("node-a", map[string]string{"node-role.kubernetes.io/control-plane": ""}, "10.0.0.2")}, nil,
			request(addresses("10.0.0.2")), "", "Node node-a"},
		{"its own Node is gone", []*corev1.Node{nodeB}, nil, request(addresses("10.0.0.99")), "", "Node node-a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(v1alpha1.AdmissionEnforce, c.live...)
			for _, n := range c.cached {
				d.cached.Set(n)
			}
			r := d.Handle(t.Context(), ask(c.request, nil))
			if r.Allowed != (c.denied == "") || !strings.HasPrefix(r.Result.Message, c.denied) {
				t.Errorf("%+v", r.Result)
			}
			if got := strings.Join(d.reads, ", "); got != c.reads {
				t.Errorf("read %q, want %q", got, c.reads)
			}
		})
	}
}

// A Node that has its addresses by now is not warned that it has none.
func TestAddressesOfAMomentAgo(t *testing.T) {
	d := newDesk(v1alpha1.AdmissionWarn, node("young", nil, "10.0.0.77"))
	young := as("system:node:young", "system:nodes").of(request(func(c *x509.CertificateRequest) {
		c.Subject.CommonName, c.DNSNames, c.IPAddresses = "system:node:young", nil, ips("10.0.0.77")
	}))
	if r := d.Handle(t.Context(), ask(young, nil)); !r.Allowed || r.Warnings != nil {
		t.Errorf("%+v", r)
	}
}

// However many own what is asked for, a few Nodes are read.
func TestFewNodesAreRead(t *testing.T) {
	d := newDesk(v1alpha1.AdmissionEnforce, nodeA)
	var asked []string
	for i := range 200 {
		owner := withUID(node(fmt.Sprintf("owner-%03d", i), nil, fmt.Sprintf("10.7.0.%d", i)), "uid")
		d.cached.Set(owner)
		if i >= 20 {
			d.live["Node "+owner.Name] = owner
		}
		asked = append(asked, owner.Status.Addresses[0].Address)
	}
	if r := d.Handle(t.Context(), ask(request(addresses(asked...)), nil)); r.Allowed {
		t.Errorf("%+v", r)
	}
	if len(d.events) > 5 {
		t.Errorf("%d Events", len(d.events))
	}
	if len(d.reads) > 32 || !slices.Contains(d.reads, "Node owner-020") {
		t.Errorf("%d: %v", len(d.reads), d.reads)
	}
}

// What cannot be confirmed is no ground to deny; the rest is.
func TestUnreadableNodes(t *testing.T) {
	d := newDesk(v1alpha1.AdmissionEnforce)
	d.unreadable = errors.New("no API server")
	r := d.Handle(t.Context(), ask(foreignRequest(), nil))
	if !r.Allowed || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "ForeignAddress") {
		t.Errorf("%+v", r)
	}
	both := foreignRequest()
	both.Usages = nil
	if r := d.Handle(t.Context(), ask(both, nil)); r.Allowed || !strings.HasPrefix(r.Result.Message, "UsagesInvalid") {
		t.Errorf("%+v", r)
	}
	d.expect(t, "warned ForeignAddress, denied UsagesInvalid", "")
}

func TestUnreadableSpecLetsThrough(t *testing.T) {
	d := newDesk(v1alpha1.AdmissionEnforce, nodeA, nodeB)
	d.Spec = func(context.Context) (v1alpha1.AdmissionSpec, error) {
		return v1alpha1.AdmissionSpec{}, errors.New("no cache")
	}
	if r := d.Handle(t.Context(), ask(foreignRequest(), nil)); !r.Allowed || r.Warnings != nil {
		t.Errorf("%+v", r)
	}
	if err := d.late.ReviewRequest(t.Context(), object(foreignRequest(), epoch)); err != nil {
		t.Error(err)
	}
}

func TestLateReview(t *testing.T) {
	const said = `request "csr-1" of "system:node:node-a": ForeignAddress: node "node-b" reports "10.0.0.12", which it asks for`
	onBoth := "Node node-a uid-a ForeignAddress: " + said + "\nNode node-b uid-b ForeignAddress: " + said
	d := newDesk(v1alpha1.AdmissionWarn, nodeA, nodeB)
	d.cached.Set(nodeA)
	d.cached.Set(nodeB)
	review := func(r admission.Request, made time.Time) {
		t.Helper()
		if err := d.late.ReviewRequest(t.Context(), object(r, made)); err != nil {
			t.Fatal(err)
		}
	}
	review(request(nil), epoch.Add(time.Minute))
	d.expect(t, "", "")
	review(foreignRequest(), epoch.Add(time.Minute))
	d.expect(t, "found ForeignAddress", onBoth)
	review(foreignRequest(), epoch.Add(2*time.Minute))
	d.expect(t, "found ForeignAddress, found ForeignAddress", onBoth)
	review(foreignRequest(), epoch.Add(-time.Minute)) // another process has seen it
	d.expect(t, "found ForeignAddress, found ForeignAddress", onBoth)
	d.known = map[string]bool{}
	review(foreignRequest(), epoch.Add(-time.Minute)) // nobody has
	if len(d.counts) != 3 || len(d.events) != 4 {
		t.Errorf("%v\n%v", d.counts, d.events)
	}

	d.counts, d.events = nil, nil
	review(as("somebody").of(request(nil)), epoch.Add(time.Minute))
	if len(d.events) == 0 || !strings.HasPrefix(d.events[0], "CertificateSigningRequest csr-1 csr-uid RequesterNotNode: ") {
		t.Errorf("%v", d.events)
	}

	d.counts, d.events, d.spec.Mode = nil, nil, v1alpha1.AdmissionOff
	review(foreignRequest(), epoch.Add(time.Minute))
	d.expect(t, "", "")

	d.spec.Mode, d.unreadable = v1alpha1.AdmissionWarn, errors.New("no API server")
	if err := d.late.ReviewRequest(t.Context(), object(foreignRequest(), epoch)); !errors.Is(err, d.unreadable) {
		t.Errorf("to be tried again: %v", err)
	}
	d.expect(t, "", "")
}

// An address that came to another Node after the request is nobody's attack.
func TestLaterNodesHoldNothingAgainstARequest(t *testing.T) {
	heir := withUID(node("heir", nil, "10.0.0.77"), "uid-h")
	heir.CreationTimestamp = metav1.NewTime(epoch)
	for made, want := range map[time.Duration]string{
		-time.Minute: "found AddressNotReported",
		0:            "found ForeignAddress",
		time.Minute:  "found ForeignAddress",
	} {
		d := newDesk(v1alpha1.AdmissionWarn, nodeA, heir)
		d.cached.Set(heir)
		if err := d.late.ReviewRequest(t.Context(), object(request(addresses("10.0.0.77")), epoch.Add(made))); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(d.counts, ", "); got != want {
			t.Errorf("made %s after it: %q, want %q", made, got, want)
		}
	}
}

func TestWaitsForTheNodes(t *testing.T) {
	d := newDesk(v1alpha1.AdmissionWarn, nodeA, nodeB)
	synced := false
	d.late.Reviewer.Synced = func() bool { defer func() { synced = true }(); return synced }
	if err := d.late.ReviewRequest(t.Context(), object(foreignRequest(), epoch)); err != nil || !synced || len(d.counts) != 1 {
		t.Errorf("%v, %v", err, d.counts)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.late.Reviewer.Synced = func() bool { return false }
	if err := d.late.ReviewRequest(ctx, object(foreignRequest(), epoch)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAPIServerAddresses(t *testing.T) {
	d := newDesk(v1alpha1.AdmissionWarn)
	a := &admission.APIServerAddresses{Live: reader{d}, Clock: d.clock, AllowLocal: true}
	expect := func(services, endpoints string, reads int) {
		t.Helper()
		r := a.Reserved(t.Context())
		if got := fmt.Sprint(r.Services); got != services {
			t.Errorf("services %s, want %s", got, services)
		}
		if got := fmt.Sprint(r.Endpoints); got != endpoints {
			t.Errorf("endpoints %s, want %s", got, endpoints)
		}
		if len(d.reads) != reads || !r.AllowLocal {
			t.Errorf("%d reads, want %d", len(d.reads), reads)
		}
	}
	expect("[]", "[]", 2) // there are none
	expect("[]", "[]", 2)
	d.live["Service kubernetes"] = &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1", "fd00::1"}}}
	d.live["EndpointSlice kubernetes"] = &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}, {Addresses: []string{"::ffff:10.0.0.2", "no address"}}}}
	d.clock.Step(time.Minute + time.Second)
	expect("[10.96.0.1 fd00::1]", "[10.0.0.1 10.0.0.2]", 4)
	d.unreadable = errors.New("no API server")
	d.clock.Step(time.Minute + time.Second)
	expect("[10.96.0.1 fd00::1]", "[10.0.0.1 10.0.0.2]", 6)
	expect("[10.96.0.1 fd00::1]", "[10.0.0.1 10.0.0.2]", 6)
	d.unreadable = nil
	d.live["EndpointSlice kubernetes"] = &discoveryv1.EndpointSlice{}
	d.clock.Step(6 * time.Second) // it is tried again soon
	expect("[10.96.0.1 fd00::1]", "[]", 8)
	d.clock.Step(6 * time.Second)
	expect("[10.96.0.1 fd00::1]", "[]", 8)
}
