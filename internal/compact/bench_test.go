package compact_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// BenchmarkShelf packs what a manager keeps of each node: after one of its kind,
// another one.
func BenchmarkShelf(b *testing.B) {
	now := time.Now()
	world := certs.NewWorld(now)
	name := func(i int) string { return fmt.Sprintf("ip-10-0-0-%d.eu-central-1.compute.internal", i) }
	for kind, text := range map[string]func(i int) []byte{
		"certificate": func(i int) []byte {
			return world.CA.Issue(certs.Template(certs.Identity{NodeName: name(i), IP: fleet.Address(i)})).Leaf().Raw
		},
		"node": func(i int) []byte {
			node := fleet.Node(name(i), fleet.Address(i), 10250)
			node.UID, node.CreationTimestamp = uuid.NewUUID(), metav1.NewTime(now.Add(-time.Duration(i)*time.Hour))
			for l := range 20 {
				node.Labels[fmt.Sprintf("topology.example.com/label-%d", l)] = fmt.Sprintf("value-%d-of-a-label", l)
			}
			node.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: v1alpha1.ConditionServingCertificateValid, Status: corev1.ConditionTrue, Reason: string(v1alpha1.ReasonVerified),
					Message: fmt.Sprintf("%s:10250 serves a certificate of %s", fleet.Address(i), name(i))},
			}
			text, err := kubelet.Stripped(node).Marshal()
			if err != nil {
				b.Fatal(err)
			}
			return text
		},
	} {
		var s compact.Shelf
		s.Pack(text(1))
		whole := text(200)
		packed := s.Pack(whole)
		b.Run(kind+"/Pack", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Pack(whole)
			}
			b.ReportMetric(float64(len(whole)), "bytes-whole")
			b.ReportMetric(float64(len(packed)), "bytes-packed")
		})
		b.Run(kind+"/Unpack", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Unpack(packed)
			}
		})
	}
}
