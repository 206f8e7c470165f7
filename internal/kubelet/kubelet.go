// Package kubelet reads from a Node what kube-apiserver would dial and what the
// kubelet there should show. It is pure, and the only room that knows a Node's
// fields.
//
// It follows kube-apiserver's pkg/kubelet/client (NodeConnectionInfo) and
// pkg/util/node (GetPreferredNodeAddress).
package kubelet

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// DefaultPort is where a kubelet serves unless its Node says otherwise.
const DefaultPort = 10250

// Options are the flags of kube-apiserver that choose the endpoint.
type Options struct {
	// PreferredAddressTypes is --kubelet-preferred-address-types.
	PreferredAddressTypes []corev1.NodeAddressType
	// Port is dialled where the Node reports none; 0 means DefaultPort.
	Port int32
}

// DefaultPreferredAddressTypes is kube-apiserver's own default.
func DefaultPreferredAddressTypes() []corev1.NodeAddressType {
	return AddressTypes(v1alpha1.AddressTypes())
}

// AddressTypes converts the API's words into Kubernetes' own.
func AddressTypes(types []v1alpha1.AddressType) []corev1.NodeAddressType {
	converted := make([]corev1.NodeAddressType, len(types))
	for i, t := range types {
		converted[i] = corev1.NodeAddressType(t)
	}
	return converted
}

// ParseAddressTypes checks a preference list. It refuses an empty list and
// names the first unknown entry.
func ParseAddressTypes(names []string) ([]corev1.NodeAddressType, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("is empty; it takes one or more of %s", knownTypes())
	}
	types := make([]corev1.NodeAddressType, 0, len(names))
	for _, name := range names {
		if !slices.Contains(v1alpha1.AddressTypes(), v1alpha1.AddressType(name)) {
			return nil, fmt.Errorf("unknown address type %q; it takes one or more of %s", name, knownTypes())
		}
		types = append(types, corev1.NodeAddressType(name))
	}
	return types, nil
}

func knownTypes() string {
	known := make([]string, 0, len(v1alpha1.AddressTypes()))
	for _, t := range v1alpha1.AddressTypes() {
		known = append(known, string(t))
	}
	return strings.Join(known, ",")
}

// EndpointOf is the place that kube-apiserver would dial for a Node: the first
// address of the first preferred type that has any, with no fallback, and the
// reported port if above zero. Host is empty where no preferred type has an
// address; a name beyond ASCII is in the form that net/http, through which
// kube-apiserver dials, resolves and verifies.
func EndpointOf(node *corev1.Node, opts Options) verdict.Endpoint {
	e := verdict.Endpoint{Port: opts.Port}
	if e.Port == 0 {
		e.Port = DefaultPort
	}
	if port := node.Status.DaemonEndpoints.KubeletEndpoint.Port; port > 0 {
		e.Port = port
	}
	for _, preferred := range opts.PreferredAddressTypes {
		for _, address := range node.Status.Addresses {
			if address.Type == preferred {
				e.AddressType, e.Host = string(preferred), asciiHost(address.Address)
				return e
			}
		}
	}
	return e
}

// asciiHost is what net/http makes of a URL's host (its idnaASCII): what cannot
// be converted stays.
func asciiHost(host string) string {
	if strings.IndexFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return host
	}
	if converted, err := idna.Lookup.ToASCII(host); err == nil {
		return converted
	}
	return host
}

// IdentityOf is the UID of a Node and all that EndpointOf reads of it.
func IdentityOf(node *corev1.Node) verdict.Identity {
	id := make([]byte, 0, 128)
	id = append(id, node.UID...)
	id = strconv.AppendInt(append(id, ' '), int64(node.Status.DaemonEndpoints.KubeletEndpoint.Port), 10)
	for _, address := range node.Status.Addresses {
		id = strconv.AppendQuote(id, string(address.Type))
		id = strconv.AppendQuote(id, address.Address)
	}
	return sha256.Sum256(id)
}

// ExpectationOf is what the kubelet of a Node should show.
func ExpectationOf(node *corev1.Node, opts Options) verdict.Expectation {
	return verdict.Expectation{
		NodeName: node.Name,
		Endpoint: EndpointOf(node, opts),
		Created:  node.CreationTimestamp.Time,
		NotReady: !ready(node),
	}
}

func ready(node *corev1.Node) bool {
	c := Condition(node, corev1.NodeReady)
	return c == nil || c.Status == corev1.ConditionTrue
}

// Condition returns a Node's condition of a type, or nil.
func Condition(node *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == conditionType {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// Stripped keeps what this project reads of a Node and drops the rest (images,
// annotations, managed fields, other conditions and their words), which is most
// of its bytes.
func Stripped(node *corev1.Node) *corev1.Node {
	s := &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
			Labels: node.Labels,
		},
		Status: corev1.NodeStatus{Addresses: node.Status.Addresses, DaemonEndpoints: node.Status.DaemonEndpoints},
	}
	for _, c := range node.Status.Conditions {
		//exhaustive:ignore
		switch c.Type {
		case corev1.NodeReady:
			s.Status.Conditions = append(s.Status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
		case v1alpha1.ConditionServingCertificateValid:
			s.Status.Conditions = append(s.Status.Conditions, c)
		}
	}
	return s
}
