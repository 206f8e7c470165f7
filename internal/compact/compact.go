// Package compact keeps very many texts that resemble each other in little
// memory: certificates of one issuer, or Nodes of one cluster.
package compact

import (
	"bytes"
	"compress/flate"
	"io"
	"slices"
	"strings"
	"sync"
)

// Shelf takes texts of one kind. The first one serves as the dictionary of all
// (RFC 1951 by compress/flate, with a preset dictionary), so that the others
// need room for what is their own. The zero Shelf is empty; it is safe for
// concurrent use, and must not be copied.
type Shelf struct {
	first      sync.Once
	dictionary []byte
	packers    sync.Pool // of *packer
	unpackers  sync.Pool // of *unpacker
}

type packer struct {
	out    bytes.Buffer
	writer *flate.Writer
}

type unpacker struct {
	in     strings.Reader
	reader io.ReadCloser
}

// The first byte of what is packed says how.
const (
	whole    = 'w'
	deflated = 'd'
)

// Pack a text.
func (s *Shelf) Pack(text []byte) string {
	s.first.Do(func() { s.dictionary = slices.Clone(text) })
	p, ok := s.packers.Get().(*packer)
	if !ok {
		p = &packer{}
		var err error
		if p.writer, err = flate.NewWriterDict(&p.out, flate.DefaultCompression, s.dictionary); err != nil {
			panic(err) // there is such a level
		}
	}
	defer s.packers.Put(p)
	p.out.Reset()
	p.out.WriteByte(deflated)
	p.writer.Reset(&p.out)
	_, _ = p.writer.Write(text) // a buffer takes all
	_ = p.writer.Close()
	// A writer that finds nothing to shorten may write the dictionary too
	// (https://github.com/golang/go/issues/80538): what does not come back as it
	// went in is kept whole.
	packed := p.out.String()
	if back, err := s.inflate(packed[1:]); err != nil || !bytes.Equal(back, text) {
		return string(whole) + string(text)
	}
	return packed
}

// Unpack what Pack of this Shelf has made.
func (s *Shelf) Unpack(packed string) []byte {
	if packed[0] == whole {
		return []byte(packed[1:])
	}
	text, err := s.inflate(packed[1:])
	if err != nil {
		panic(err) // Pack tried it
	}
	return text
}

func (s *Shelf) inflate(packed string) ([]byte, error) {
	u, ok := s.unpackers.Get().(*unpacker)
	if !ok {
		u = &unpacker{}
		u.reader = flate.NewReaderDict(&u.in, s.dictionary)
	}
	defer s.unpackers.Put(u)
	u.in.Reset(packed)
	if err := u.reader.(flate.Resetter).Reset(&u.in, s.dictionary); err != nil { //nolint:forcetypeassert // as its documentation says
		return nil, err
	}
	return io.ReadAll(u.reader)
}
