package admission

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// controlPlaneLabel is one that NodeRestriction lets no kubelet set on itself.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Index knows which Node reports which address. What it costs to keep and to ask
// does not grow with the number of Nodes. The zero Index is empty; it is safe
// for concurrent use.
type Index struct {
	mu     sync.RWMutex
	nodes  map[string]indexed
	owners map[string][]string // by verdict.HostKey, in order
}

type indexed struct {
	uid          types.UID
	created      time.Time
	keys         []string
	controlPlane bool
}

// SameToIndex says that two states of a Node are one to Set.
func SameToIndex(before, after any) bool {
	a, ok := before.(*corev1.Node)
	b, isNode := after.(*corev1.Node)
	if !ok || !isNode {
		return false
	}
	_, wasControlPlane := a.Labels[controlPlaneLabel]
	_, controlPlane := b.Labels[controlPlaneLabel]
	return a.UID == b.UID && wasControlPlane == controlPlane && slices.Equal(a.Status.Addresses, b.Status.Addresses)
}

// Set puts a Node in, in place of what was known of it.
func (x *Index) Set(node *corev1.Node) {
	keys := make([]string, 0, len(node.Status.Addresses))
	for _, a := range node.Status.Addresses {
		if a.Address != "" {
			keys = append(keys, verdict.HostKey(a.Address))
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	_, controlPlane := node.Labels[controlPlaneLabel]

	x.mu.Lock()
	defer x.mu.Unlock()
	if x.nodes == nil {
		x.nodes, x.owners = map[string]indexed{}, map[string][]string{}
	}
	x.remove(node.Name)
	x.nodes[node.Name] = indexed{node.UID, node.CreationTimestamp.Time, keys, controlPlane}
	for _, key := range keys {
		at, _ := slices.BinarySearch(x.owners[key], node.Name)
		x.owners[key] = slices.Insert(x.owners[key], at, node.Name)
	}
}

// Delete takes a Node out.
func (x *Index) Delete(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(name)
	delete(x.nodes, name)
}

func (x *Index) remove(name string) {
	for _, key := range x.nodes[name].keys {
		left := slices.DeleteFunc(slices.Clone(x.owners[key]), func(owner string) bool { return owner == name })
		if len(left) == 0 {
			delete(x.owners, key)
			continue
		}
		x.owners[key] = left
	}
}

// Owners implements Nodes.
func (x *Index) Owners(key string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clone(x.owners[key])
}

// Reports implements Nodes.
func (x *Index) Reports(node string) (addresses, controlPlane bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.nodes[node]
	return len(n.keys) > 0, n.controlPlane
}

// UID of a Node, and when it was created; "" where it is not there.
func (x *Index) UID(node string) (uid types.UID, created time.Time) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.nodes[node]
	return n.uid, n.created
}
