package kubelet

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
)

// Packed is a Stripped Node in a fraction of its memory, for a cache of very many.
// It stands for the Node in the cache only: a copy of it, which is what a reader
// of the cache gets, is a Node again.
type Packed struct {
	*metav1.ObjectMeta // empty, and the same for all: what is not declared below is not asked for

	name, version string
	// rest is the Node without its version, in protobuf, on the shelf.
	rest string
}

var (
	noMeta = &metav1.ObjectMeta{}
	shelf  compact.Shelf
)

// Pack a Node. It errs on a Node that has no form in protobuf.
func Pack(node *corev1.Node) (*Packed, error) {
	s := Stripped(node)
	p := &Packed{ObjectMeta: noMeta, name: s.Name, version: s.ResourceVersion}
	s.ResourceVersion = ""
	rest, err := s.Marshal()
	if err != nil {
		return nil, err
	}
	p.rest = shelf.Pack(rest)
	return p, nil
}

// Node is what was packed.
func (p *Packed) Node() *corev1.Node {
	node := &corev1.Node{}
	if err := node.Unmarshal(shelf.Unpack(p.rest)); err != nil {
		panic(err) // it was marshalled here
	}
	node.Name, node.ResourceVersion = p.name, p.version
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
