package admission

import (
	"iter"
	"slices"
	"strings"
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
	mu    sync.RWMutex
	nodes map[string]indexed
	// owner of a verdict.HostKey, and where there are more of them all others.
	owner  map[string]string
	others map[string][]string
}

type indexed struct {
	uid          types.UID
	created      int64  // in seconds, which is how precise the API is
	keys         string // joined by separator
	controlPlane bool
}

// separator of keys, which are IP addresses and DNS names in their own form.
const separator = "\x00"

// SameToIndex says that two states of a Node are one to Set.
func SameToIndex(a, b *corev1.Node) bool {
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

	n := indexed{node.UID, node.CreationTimestamp.Unix(), strings.Join(keys, separator), controlPlane}

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
		left := slices.DeleteFunc(x.all(key), func(owner string) bool { return owner == name })
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

// all owners of a key, in a slice of their own.
func (x *Index) all(key string) []string {
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
	owners := x.all(key)
	slices.Sort(owners)
	return owners
}

// Reports implements Nodes.
func (x *Index) Reports(node string) (addresses, controlPlane bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.nodes[node]
	return n.keys != "", n.controlPlane
}

// UID of a Node, and when it was created; "" where it is not there.
func (x *Index) UID(node string) (uid types.UID, created time.Time) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.nodes[node]
	if n.uid == "" {
		return "", time.Time{}
	}
	return n.uid, time.Unix(n.created, 0)
}
