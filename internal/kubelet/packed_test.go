package kubelet_test

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
)

var _ client.Object = &kubelet.Packed{} // or the controller would not see it

func TestPackedIsTheStrippedNode(t *testing.T) {
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	full := nodeAt(1234, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"})
	created := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local))
	full.ObjectMeta = metav1.ObjectMeta{
		Name: "n1", UID: "u1", ResourceVersion: "7", CreationTimestamp: created, DeletionTimestamp: &created,
		Labels:      map[string]string{"b": "", "a": "x", "topology.kubernetes.io/zone": "z-1", "node-role.kubernetes.io/control-plane": ""},
		Annotations: map[string]string{"big": "one"},
	}
	full.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	full.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse},
		{Type: v1alpha1.ConditionServingCertificateValid, Status: corev1.ConditionTrue, Reason: "r", Message: "m", LastHeartbeatTime: created, LastTransitionTime: created},
	}
	one := full.DeepCopy()
	one.Labels = map[string]string{"a": "b"}
	for name, node := range map[string]*corev1.Node{"bare": bare, "full": full, "one label": one} {
		packed, err := kubelet.Pack(node)
		if err != nil {
			t.Fatal(err)
		}
		want := kubelet.Stripped(node)
		for how, got := range map[string]any{
			"Node": packed.Node(), "a copy": packed.DeepCopyObject(), "Unpacked": kubelet.Unpacked(packed), "Unpacked, again": kubelet.Unpacked(packed.Node()),
		} {
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s:\n%+v\nwant\n%+v", name, how, got, want)
			}
		}
		if packed.GetName() != node.Name || packed.GetUID() != node.UID || packed.GetResourceVersion() != node.ResourceVersion || !reflect.DeepEqual(packed.GetLabels(), node.Labels) {
			t.Errorf("%s: its own %+v", name, packed)
		}
		if key, err := toolscache.MetaNamespaceKeyFunc(packed); err != nil || key != "n1" {
			t.Errorf("%s: key %q, %v", name, key, err)
		}
	}
	if kubelet.Unpacked(&corev1.Pod{}) != nil || kubelet.Unpacked(nil) != nil {
		t.Error("what is no Node is none")
	}
}
