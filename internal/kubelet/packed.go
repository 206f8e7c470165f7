package kubelet

import (
	"maps"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Packed is a Stripped Node in a third of its memory, for a cache of very many.
// It stands for the Node in the cache only: a copy of it, which is what a reader
// of the cache gets, is a Node again.
type Packed struct {
	metav1.Object // empty, and the same for all: what is not declared below is not asked for

	name, version string
	// keys of the labels in order, which many Nodes have alike, and their values.
	keys   unique.Handle[string]
	values string
	// rest is the Node without name, version and labels, in protobuf.
	rest string
}

var noMeta = &metav1.ObjectMeta{}

// separator of labels: neither a key nor a value may hold it
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/).
const separator = "\n"

// Pack a Node. It errs on a Node that has no form in protobuf.
func Pack(node *corev1.Node) (*Packed, error) {
	s := Stripped(node)
	keys := slices.Sorted(maps.Keys(node.Labels))
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = node.Labels[key]
	}
	p := &Packed{
		Object: noMeta, name: s.Name, version: s.ResourceVersion,
		keys: unique.Make(strings.Join(keys, separator)), values: strings.Join(values, separator),
	}
	s.Name, s.ResourceVersion, s.Labels = "", "", nil
	rest, err := s.Marshal()
	p.rest = string(rest)
	return p, err
}

// Node is what was packed.
func (p *Packed) Node() *corev1.Node {
	node := &corev1.Node{}
	if err := node.Unmarshal([]byte(p.rest)); err != nil {
		panic(err) // it was marshalled here
	}
	node.Name, node.ResourceVersion = p.name, p.version
	if keys := p.keys.Value(); keys != "" {
		values := strings.Split(p.values, separator)
		node.Labels = make(map[string]string, len(values))
		for i, key := range strings.Split(keys, separator) {
			node.Labels[key] = values[i]
		}
	}
	return node
}

// GetName implements metav1.Object.
func (p *Packed) GetName() string { return p.name }

// GetResourceVersion implements metav1.Object.
func (p *Packed) GetResourceVersion() string { return p.version }

// GetUID implements metav1.Object.
func (p *Packed) GetUID() types.UID { return p.Node().UID }

// GetLabels implements metav1.Object.
func (p *Packed) GetLabels() map[string]string { return p.Node().Labels }

// GetObjectKind implements runtime.Object.
func (*Packed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object: the copy is a Node.
func (p *Packed) DeepCopyObject() runtime.Object { return p.Node() }

// Unpacked is a Node of the cache or of anywhere else; nil where it is none.
func Unpacked(object any) *corev1.Node {
	switch o := object.(type) {
	case *corev1.Node:
		return o
	case *Packed:
		return o.Node()
	}
	return nil
}
