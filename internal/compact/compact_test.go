package compact_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
)

// text is mostly what all have, and some of its own.
func text(i int) []byte {
	own := make([]byte, 100)
	_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(own)
	return fmt.Appendf(bytes.Repeat([]byte("what all of them have in common, "), 20), "and %d: %s", i, own)
}

func TestWhatIsPackedComesBack(t *testing.T) {
	random := make([]byte, 1<<17) // more than a window, and nothing in common
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	for _, first := range [][]byte{nil, {}, []byte("x"), text(0), random} {
		s := &compact.Shelf{}
		for _, text := range [][]byte{first, nil, []byte("x"), text(1), random, text(2)} {
			if got := s.Unpack(s.Pack(text)); !bytes.Equal(got, text) {
				t.Errorf("%d bytes after %d: got %d", len(text), len(first), len(got))
			}
		}
	}
	var s compact.Shelf
	s.Pack(text(0))
	if whole, packed := len(text(1)), len(s.Pack(text(1))); packed > 130 {
		t.Errorf("of %d bytes, a hundred of which no other has, %d are left", whole, packed)
	}
}

func TestManyAtATime(t *testing.T) {
	var s compact.Shelf
	var workers sync.WaitGroup
	for i := range 8 {
		workers.Go(func() {
			for j := range 50 {
				if text := text(i*1000 + j); !bytes.Equal(s.Unpack(s.Pack(text)), text) {
					t.Errorf("%d/%d came back as another one", i, j)
				}
			}
		})
	}
	workers.Wait()
}

// A dictionary that changes hands after it was given must not change.
func TestTheFirstTextIsACopy(t *testing.T) {
	var s compact.Shelf
	first := text(0)
	packed := s.Pack(first)
	clear(first)
	if !bytes.Equal(s.Unpack(packed), text(0)) {
		t.Error("the dictionary changed")
	}
}
