package fleet

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

func TestAddress(t *testing.T) {
	for i, want := range map[int]string{
		0: "127.1.0.1", 253: "127.1.0.254", 254: "127.1.1.1", 255 * 254: "127.1.255.1", 256 * 254: "127.2.0.1",
		mostAddresses - 1: "127.255.255.254",
	} {
		if got := Address(i); got != netip.MustParseAddr(want) {
			t.Errorf("Address(%d) = %s, want %s", i, got, want)
		}
	}
}

func TestPopulate(t *testing.T) {
	f := start(t)
	defects := []certs.Defect{find(t, "good"), find(t, "refused")}
	members := Populate(f, world, defects, 5)
	names := []string{"good", "refused", "good-2", "refused-2", "good-3"}
	if len(members) != len(names) {
		t.Fatalf("%d members", len(members))
	}
	for i, m := range members {
		port := m.Node.Status.DaemonEndpoints.KubeletEndpoint.Port
		if m.Node.Name != names[i] || m.IP != Address(i) || port != f.PortOf(m.IP) {
			t.Errorf("member %d is %s at %s:%d", i, m.Node.Name, m.IP, port)
		}
		want := []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: names[i]},
			{Type: corev1.NodeInternalIP, Address: m.IP.String()},
		}
		if got := m.Node.Status.Addresses; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s: addresses %v", m.Node.Name, got)
		}
	}
}
