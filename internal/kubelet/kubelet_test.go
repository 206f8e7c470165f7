package kubelet_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

func nodeAt(port int32, addresses ...corev1.NodeAddress) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: corev1.NodeStatus{
			Addresses:       addresses,
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
		},
	}
}

func TestEndpointIsTheFirstAddressOfTheFirstPreferredTypeThatHasAny(t *testing.T) {
	host := corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"}
	internal := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}
	second := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}
	six := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00::1"}
	empty := corev1.NodeAddress{Type: corev1.NodeHostName}
	kubeadm := []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName}
	for name, c := range map[string]struct {
		addresses []corev1.NodeAddress
		preferred []corev1.NodeAddressType
		want      verdict.Endpoint
	}{
		"the default prefers the host name": {
			[]corev1.NodeAddress{internal, host}, kubelet.DefaultPreferredAddressTypes(),
			verdict.Endpoint{AddressType: "Hostname", Host: "n1", Port: 10250},
		},
		"kubeadm prefers the internal address": {
			[]corev1.NodeAddress{host, internal}, kubeadm,
			verdict.Endpoint{AddressType: "InternalIP", Host: "10.0.0.1", Port: 10250},
		},
		"the order within a type is the Node's": {
			[]corev1.NodeAddress{second, internal}, kubeadm,
			verdict.Endpoint{AddressType: "InternalIP", Host: "10.0.0.2", Port: 10250},
		},
		"a type without an address is passed over": {
			[]corev1.NodeAddress{host}, kubeadm,
			verdict.Endpoint{AddressType: "Hostname", Host: "n1", Port: 10250},
		},
		"an empty address of a preferred type is chosen, with no fallback": {
			[]corev1.NodeAddress{empty, host, internal}, kubelet.DefaultPreferredAddressTypes(),
			verdict.Endpoint{AddressType: "Hostname", Port: 10250},
		},
		"a name beyond ASCII as net/http dials it": {
			[]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "Knoten.B\u00fccher.example"}}, kubelet.DefaultPreferredAddressTypes(),
			verdict.Endpoint{AddressType: "Hostname", Host: "knoten.xn--bcher-kva.example", Port: 10250},
		},
		"one that has no such form as it comes": {
			[]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "-\u00fc..\u00fc"}}, kubelet.DefaultPreferredAddressTypes(),
			verdict.Endpoint{AddressType: "Hostname", Host: "-\u00fc..\u00fc", Port: 10250},
		},
		"ASCII as it comes": {
			[]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "Node_A.Example."}}, kubelet.DefaultPreferredAddressTypes(),
			verdict.Endpoint{AddressType: "Hostname", Host: "Node_A.Example.", Port: 10250},
		},
		"IPv6 as it comes": {
			[]corev1.NodeAddress{six}, kubeadm,
			verdict.Endpoint{AddressType: "InternalIP", Host: "fd00::1", Port: 10250},
		},
		"none of the preferred types": {
			[]corev1.NodeAddress{host}, []corev1.NodeAddressType{corev1.NodeExternalIP},
			verdict.Endpoint{Port: 10250},
		},
		"no address at all": {nil, kubeadm, verdict.Endpoint{Port: 10250}},
		"nothing preferred": {[]corev1.NodeAddress{host}, nil, verdict.Endpoint{Port: 10250}},
	} {
		if got := kubelet.EndpointOf(nodeAt(0, c.addresses...), kubelet.Options{PreferredAddressTypes: c.preferred}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestPortIsTheReportedOneIfAboveZero(t *testing.T) {
	for name, c := range map[string]struct{ reported, flag, want int32 }{
		"reported":                   {12345, 0, 12345},
		"reported wins":              {12345, 4321, 12345},
		"not reported":               {0, 0, 10250},
		"not reported, with a flag":  {0, 4321, 4321},
		"a negative one is none":     {-1, 0, 10250},
		"a negative one, and a flag": {-1, 4321, 4321},
	} {
		if got := kubelet.EndpointOf(nodeAt(c.reported), kubelet.Options{Port: c.flag}).Port; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestExpectation(t *testing.T) {
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		conditions []corev1.NodeCondition
		notReady   bool
	}{
		"without a Ready condition nothing is said": {nil, false},
		"Ready": {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, false},
		"not Ready": {[]corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse},
		}, true},
		"Ready is Unknown": {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}, true},
	} {
		node := nodeAt(0, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"})
		node.CreationTimestamp = metav1.NewTime(created)
		node.Status.Conditions = c.conditions
		opts := kubelet.Options{PreferredAddressTypes: kubelet.DefaultPreferredAddressTypes()}
		want := verdict.Expectation{NodeName: "n1", Endpoint: kubelet.EndpointOf(node, opts), Created: created, NotReady: c.notReady}
		if got := kubelet.ExpectationOf(node, opts); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestAddressTypesAreThoseOfKubeAPIServer(t *testing.T) {
	want := []corev1.NodeAddressType{
		corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeInternalIP, corev1.NodeExternalDNS, corev1.NodeExternalIP,
	}
	if got := kubelet.DefaultPreferredAddressTypes(); !slices.Equal(got, want) {
		t.Errorf("default %v, want %v", got, want)
	}
	got, err := kubelet.ParseAddressTypes([]string{"InternalIP", "Hostname"})
	if err != nil || !slices.Equal(got, []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeHostName}) {
		t.Errorf("%v, %v", got, err)
	}
	for name, c := range map[string]struct {
		names []string
		want  string
	}{
		"an empty list":      {nil, "is empty"},
		"an unknown type":    {[]string{"Hostname", "IP", "Foo"}, `unknown address type "IP"`},
		"another case":       {[]string{"hostname"}, `unknown address type "hostname"`},
		"an empty type":      {[]string{"Hostname", ""}, `unknown address type ""`},
		"space around it":    {[]string{" Hostname"}, `unknown address type " Hostname"`},
		"a hostile type":     {[]string{"\x1b[2J"}, `unknown address type "\x1b[2J"`},
		"what would be good": {[]string{"x"}, "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"},
	} {
		if _, err := kubelet.ParseAddressTypes(c.names); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestStrippedKeepsWhatIsRead(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	ours := corev1.NodeCondition{Type: v1alpha1.ConditionServingCertificateValid, Status: corev1.ConditionTrue, Message: "m"}
	full := nodeAt(1234, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"})
	full.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	full.ObjectMeta = metav1.ObjectMeta{
		Name: "n1", UID: "u1", ResourceVersion: "7", CreationTimestamp: now, DeletionTimestamp: &now,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"big": "one"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
	}
	full.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	full.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: corev1.ConditionFalse}, ours,
	}
	s := kubelet.Stripped(full)

	opts := kubelet.Options{PreferredAddressTypes: kubelet.DefaultPreferredAddressTypes()}
	if got, want := kubelet.ExpectationOf(s, opts), kubelet.ExpectationOf(full, opts); got != want {
		t.Errorf("expectation %+v, want %+v", got, want)
	}
	if c := kubelet.Condition(s, v1alpha1.ConditionServingCertificateValid); c == nil || *c != ours {
		t.Errorf("our condition: %+v", c)
	}
	if s.Kind != "Node" || s.UID != "u1" || s.ResourceVersion != "7" || s.Labels["a"] != "b" || s.DeletionTimestamp == nil {
		t.Errorf("metadata: %+v", s.ObjectMeta)
	}
	if s.Annotations != nil || s.ManagedFields != nil || s.Status.Images != nil || len(s.Status.Conditions) != 2 {
		t.Errorf("kept too much: %+v", s)
	}
	if !reflect.DeepEqual(kubelet.Stripped(s), s) {
		t.Error("stripping twice differs from stripping once")
	}
	if kubelet.Condition(s, corev1.NodeDiskPressure) != nil {
		t.Error("found a condition that is not there")
	}
}

// Whatever moves the endpoint under some spec moves the identity.
func TestIdentityOf(t *testing.T) {
	base := func() *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "n"}}
		n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
		return n
	}
	for name, c := range map[string]struct {
		change func(*corev1.Node)
		same   bool
	}{
		"a heartbeat": {func(n *corev1.Node) {
			n.ResourceVersion = "7"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
		}, true},
		"a label":    {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, true},
		"the UID":    {func(n *corev1.Node) { n.UID = "v" }, false},
		"the port":   {func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10251 }, false},
		"an address": {func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.2" }, false},
		"a type":     {func(n *corev1.Node) { n.Status.Addresses[0].Type = corev1.NodeExternalIP }, false},
		"the order":  {func(n *corev1.Node) { slices.Reverse(n.Status.Addresses) }, false},
		"one less":   {func(n *corev1.Node) { n.Status.Addresses = n.Status.Addresses[:1] }, false},
		"the borders": {func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: "InternalIP", Address: `10.0.0.1""Hostname""n`}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := base()
			c.change(n)
			if same := kubelet.IdentityOf(n) == kubelet.IdentityOf(base()); same != c.same {
				t.Errorf("same identity: %t, want %t", same, c.same)
			}
		})
	}
}
