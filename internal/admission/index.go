package admission

import (
	"iter"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// controlPlaneLabel is one that NodeRestriction lets no kubelet set on itself.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Index knows which Node reports which address. What it costs to keep and to ask
// does not grow with the number of Nodes. The zero Index is empty; it is safe
// for concurrent use.
type Index struct {
	mu    sync.RWMutex
	nodes map[string]indexed
	// owner of a verdict.HostKey, and where there are more of them all others.
	owner  map[string]string
	others map[string][]string
}

// indexed is what is known of a Node. Most report their name as an address, which
// is known without an owner of that key.
type indexed struct {
	keys         string // the others, joined by separator
	ownName      bool
	controlPlane bool
}

// separator of keys, which are IP addresses and DNS names in their own form.
const separator = "\x00"

// SameToIndex says that two states of a Node are one to Set.
func SameToIndex(a, b *corev1.Node) bool {
	_, wasControlPlane := a.Labels[controlPlaneLabel]
	_, controlPlane := b.Labels[controlPlaneLabel]
	return wasControlPlane == controlPlane && slices.Equal(a.Status.Addresses, b.Status.Addresses)
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
	var n indexed
	if i, found := slices.BinarySearch(keys, node.Name); found {
		n.ownName, keys = true, slices.Delete(keys, i, i+1)
	}
	n.keys = strings.Join(keys, separator)
	_, n.controlPlane = node.Labels[controlPlaneLabel]

	x.mu.Lock()
	defer x.mu.Unlock()
	if x.nodes == nil {
		x.nodes, x.owner, x.others = map[string]indexed{}, map[string]string{}, map[string][]string{}
	}
	x.remove(node.Name)
	x.nodes[node.Name] = n
	for key := range n.each() {
		if _, taken := x.owner[key]; taken {
			x.others[key] = append(x.others[key], node.Name)
			continue
		}
		x.owner[key] = node.Name
	}
}

// each of the keys, which share the memory of one text.
func (n indexed) each() iter.Seq[string] {
	if n.keys == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(n.keys, separator)
}

// Delete takes a Node out.
func (x *Index) Delete(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(name)
	delete(x.nodes, name)
}

func (x *Index) remove(name string) {
	for key := range x.nodes[name].each() {
		left := slices.DeleteFunc(x.listed(key), func(owner string) bool { return owner == name })
		delete(x.owner, key)
		delete(x.others, key)
		if len(left) > 0 {
			x.owner[key] = left[0]
		}
		if len(left) > 1 {
			x.others[key] = left[1:]
		}
	}
}

// listed are the owners of a key whose name it is not, in a slice of their own.
func (x *Index) listed(key string) []string {
	first, ok := x.owner[key]
	if !ok {
		return nil
	}
	return append([]string{first}, x.others[key]...)
}

// Owners implements Nodes.
func (x *Index) Owners(key string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	owners := x.listed(key)
	if x.nodes[key].ownName {
		owners = append(owners, key)
	}
	slices.Sort(owners)
	return owners
}

// Reports implements Nodes.
func (x *Index) Reports(node string) (addresses, controlPlane bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.nodes[node]
	return n.ownName || n.keys != "", n.controlPlane
}
