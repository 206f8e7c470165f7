package trust

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// maxSize bounds a bundle in bytes; the roots of the public web take a quarter
// of a MiB.
const maxSize = 8 << 20

// Source is a place of PEM text.
type Source interface {
	// Name in words; two sources of one name are the same source.
	Name() string
	// Read the text as it is now.
	Read(ctx context.Context) ([]byte, error)
}

// File is a Source: a path, read anew each time, so that the symlink swaps by
// which the kubelet updates mounted volumes are followed.
type File string

// Name implements Source.
func (f File) Name() string { return "file " + string(f) }

// Read implements Source.
func (f File) Read(context.Context) ([]byte, error) {
	file, err := os.Open(string(f))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if len(text) > maxSize {
		return nil, fmt.Errorf("%s holds more than %d bytes", string(f), maxSize)
	}
	return text, err
}

// Text is a Source that holds its PEM itself.
type Text struct {
	Label string
	PEM   []byte
}

// Name implements Source.
func (t Text) Name() string { return t.Label }

// Read implements Source.
func (t Text) Read(context.Context) ([]byte, error) { return t.PEM, nil }

// ConfigMap is a Source: a key of a ConfigMap.
type ConfigMap struct {
	Reader client.Reader
	Object types.NamespacedName
	Key    string
}

// Name implements Source.
func (c ConfigMap) Name() string { return "configmap " + c.Object.Name + "/" + c.Key }

// Read implements Source.
func (c ConfigMap) Read(ctx context.Context) ([]byte, error) {
	var m corev1.ConfigMap
	if err := c.Reader.Get(ctx, c.Object, &m); err != nil {
		return nil, err
	}
	if text, ok := m.Data[c.Key]; ok {
		return []byte(text), nil
	}
	if text, ok := m.BinaryData[c.Key]; ok {
		return text, nil
	}
	return nil, fmt.Errorf("configmap %s has no key %q", c.Object, c.Key)
}

// Load reads and parses a source once.
func Load(ctx context.Context, s Source) (verdict.Bundle, error) {
	text, err := s.Read(ctx)
	if err != nil {
		return verdict.Bundle{Source: s.Name()}, fmt.Errorf("read the trust bundle (%s): %w", s.Name(), err)
	}
	b, err := Parse(s.Name(), text)
	if err != nil {
		return b, fmt.Errorf("read the trust bundle (%s): %w", s.Name(), err)
	}
	return b, nil
}

// Store keeps the last good bundle of a source. The zero Store is empty; it is
// safe for concurrent use.
type Store struct {
	mu   sync.Mutex
	good verdict.Bundle
}

// Load reads a source. Where that fails it returns the last good bundle of the
// same source together with the error, or an empty bundle: never another
// source's, never the system's.
func (s *Store) Load(ctx context.Context, source Source) (verdict.Bundle, error) {
	b, err := Load(ctx, source)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if b.SHA256 == s.good.SHA256 && b.Source == s.good.Source {
			b.Roots = s.good.Roots // keep one pool alive, not one per read
		}
		s.good = b
		return b, nil
	}
	if s.good.Source == source.Name() {
		return s.good, err
	}
	return b, err
}
