package fleet

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

const (
	hostsPerNetwork = 254 // of a /24, without .0 and .255
	mostAddresses   = 255 * 256 * hostsPerNetwork
)

// Address gives the i-th node's loopback address, from 127.1.0.1 on, leaving
// out last octets 0 and 255. It panics beyond 127.255.255.254, the sixteenth
// million.
func Address(i int) netip.Addr {
	if i < 0 || i >= mostAddresses {
		panic(fmt.Sprintf("fleet: no loopback address number %d", i))
	}
	network, host := i/hostsPerNetwork, i%hostsPerNetwork+1
	return netip.AddrFrom4([4]byte{127, byte(1 + network/256), byte(network % 256), byte(host)})
}

// Node is the Kubernetes Node of a simulated kubelet, as its kubelet would
// report it.
func Node(name string, ip netip.Addr, port int32) *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: name},
				{Type: corev1.NodeInternalIP, Address: ip.String()},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
		},
	}
}

// Member is one node of a population.
type Member struct {
	Node   *corev1.Node
	Defect certs.Defect
	IP     netip.Addr
}

// Populate sets n nodes, at Address(0) and on, going round the defects. The
// first of a defect bears its name, the next ones are "<defect>-2" and so on.
func Populate(f *Fleet, w *certs.World, defects []certs.Defect, n int) []Member {
	members := make([]Member, 0, n)
	for i := range n {
		defect, ip := defects[i%len(defects)], Address(i)
		name := defect.Name
		if round := i / len(defects); round > 0 {
			name = fmt.Sprintf("%s-%d", name, round+1)
		}
		f.Set(ip, BehaviourOf(w, defect, certs.Identity{NodeName: name, IP: ip}))
		members = append(members, Member{Node: Node(name, ip, f.PortOf(ip)), Defect: defect, IP: ip})
	}
	return members
}

// BehaviourOf is that of the node id under the defect, with a fresh
// certificate where one is served.
func BehaviourOf(w *certs.World, defect certs.Defect, id certs.Identity) Behaviour {
	b := Behaviour{Wire: defect.Wire}
	if defect.Serve != nil {
		b.Served = defect.Serve(w, id)
	}
	return b
}
