package fleet

import (
	"encoding/binary"
	"io"
	"net"
)

// conn counts the bytes of one connection.
type conn struct {
	*net.TCPConn
	node *node

	// withhold makes Write drop the last TLS record of what it is given, and
	// everything after it.
	withhold, withheld bool
	unread             []byte // what Read gives first
}

func (c *conn) Read(p []byte) (int, error) {
	if len(c.unread) > 0 {
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}
	n, err := c.TCPConn.Read(p)
	c.node.bytesRead.Add(int64(n))
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if c.withheld {
		return len(p), nil
	}
	kept := p
	if c.withhold {
		c.withheld = true
		kept = withoutLastRecord(p)
	}
	n, err := c.TCPConn.Write(kept)
	c.node.bytesWritten.Add(int64(n))
	if err != nil {
		return n, err
	}
	return len(p), nil
}

// readRecord reads one whole TLS record, such as the ClientHello, so that
// closing afterwards is an orderly close: unread bytes would make it a reset.
// It reports false when the peer ended first. What is no TLS is read in part.
func (c *conn) readRecord() bool {
	var header [5]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return false
	}
	const handshake = 22
	if header[0] != handshake {
		return true
	}
	_, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint16(header[3:])))
	return err == nil
}

// finish tells the peer that nothing more comes, and reads until the peer says
// the same: a reset could overtake what was written before.
func (c *conn) finish() {
	if c.CloseWrite() == nil {
		c.drain()
	}
}

func (c *conn) drain() {
	_, _ = io.Copy(io.Discard, readerOnly{c})
}

// readerOnly hides TCPConn's WriteTo, which would bypass conn's Read.
type readerOnly struct{ io.Reader }

// withoutLastRecord cuts the last of a sequence of whole TLS records off.
func withoutLastRecord(records []byte) []byte {
	const header = 5
	last := 0
	for at := 0; at+header <= len(records); {
		last = at
		at += header + int(binary.BigEndian.Uint16(records[at+3:]))
	}
	return records[:last]
}
