package kubelet_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
)

var stripped *corev1.Node // so that the compiler leaves nothing out

// What each event of a Node costs before anything is probed.
func BenchmarkNode(b *testing.B) {
	node := nodeAt(10250,
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.11"},
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.11"},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "ip-10-0-0-11.eu-central-1.compute.internal"})
	opts := kubelet.Options{PreferredAddressTypes: kubelet.DefaultPreferredAddressTypes()}
	b.Run("EndpointOf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			kubelet.EndpointOf(node, opts)
		}
	})
	b.Run("IdentityOf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			kubelet.IdentityOf(node)
		}
	})
	b.Run("Stripped", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			stripped = kubelet.Stripped(node)
		}
	})
}
