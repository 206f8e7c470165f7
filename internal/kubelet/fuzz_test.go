package kubelet_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
)

var nodeSeeds = []string{
	`{"kind":"Node","metadata":{"name":"n1"},"status":{"addresses":[{"type":"Hostname","address":"n1"},{"type":"InternalIP","address":"10.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}`,
	`{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":""},{"type":"InternalIP","address":"fd00::1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":-1}}}}`,
	`{"kind":"Node","metadata":{"name":"n1"},"status":{"addresses":[{"type":"Hostname","address":"knöten.example"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":70000}}}}`,
	`{}`, `[]`, `null`,
}

// FuzzEndpointOf holds the choice to its sentence: the first address of the
// first preferred type that has any.
func FuzzEndpointOf(f *testing.F) {
	for _, seed := range nodeSeeds {
		f.Add([]byte(seed), "InternalIP,Hostname", int32(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, preferred string, port int32) {
		var node corev1.Node
		if json.Unmarshal(text, &node) != nil {
			return
		}
		var types []corev1.NodeAddressType
		for name := range strings.SplitSeq(preferred, ",") {
			types = append(types, corev1.NodeAddressType(name))
		}
		got := kubelet.EndpointOf(&node, kubelet.Options{PreferredAddressTypes: types, Port: port})
		want, ok := firstPreferred(node.Status.Addresses, types)
		switch {
		case !ok && got.Host+got.AddressType != "":
			t.Errorf("%+v, but there is no address", got)
		case ok && got.AddressType != string(want.Type):
			t.Errorf("%+v, want the type of %+v", got, want)
		case ok && isASCII(want.Address) && got.Host != want.Address:
			t.Errorf("%+v, want %+v", got, want)
		}
		if reported := node.Status.DaemonEndpoints.KubeletEndpoint.Port; reported > 0 && got.Port != reported {
			t.Errorf("port %d, reported %d", got.Port, reported)
		}
	})
}

// firstPreferred sorts, where EndpointOf searches.
func firstPreferred(addresses []corev1.NodeAddress, types []corev1.NodeAddressType) (corev1.NodeAddress, bool) {
	preferred := slices.DeleteFunc(slices.Clone(addresses), func(a corev1.NodeAddress) bool { return !slices.Contains(types, a.Type) })
	slices.SortStableFunc(preferred, func(a, b corev1.NodeAddress) int {
		return slices.Index(types, a.Type) - slices.Index(types, b.Type)
	})
	if len(preferred) == 0 {
		return corev1.NodeAddress{}, false
	}
	return preferred[0], true
}

func isASCII(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0 }
