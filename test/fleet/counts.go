package fleet

import "sync/atomic"

// Counts tells what arrived at one address, or at all. What a client did inside
// TLS is counted before it can read the end of the connection. All is counted
// once Connections has grown and Open is zero.
type Counts struct {
	// Connections that were accepted.
	Connections int64
	// Open is the number of those that have not ended.
	Open int64
	// Handshakes that the server completed. A client of TLS 1.3 completes its
	// own half earlier.
	Handshakes int64
	// Requests of HTTP, whatever they asked for.
	Requests int64
	// ApplicationBytes were received inside TLS after the handshake.
	ApplicationBytes int64
	// ClientCertificates that were presented, proven or not.
	ClientCertificates int64
	// BytesRead and BytesWritten are those of the raw connection. The ones of a
	// connection that is reset at once are not read.
	BytesRead, BytesWritten int64
}

func (c Counts) plus(o Counts) Counts {
	return Counts{
		Connections:        c.Connections + o.Connections,
		Open:               c.Open + o.Open,
		Handshakes:         c.Handshakes + o.Handshakes,
		Requests:           c.Requests + o.Requests,
		ApplicationBytes:   c.ApplicationBytes + o.ApplicationBytes,
		ClientCertificates: c.ClientCertificates + o.ClientCertificates,
		BytesRead:          c.BytesRead + o.BytesRead,
		BytesWritten:       c.BytesWritten + o.BytesWritten,
	}
}

// counters are the running Counts of one address.
type counters struct {
	connections, open, handshakes, requests, applicationBytes, clientCertificates atomic.Int64
	bytesRead, bytesWritten                                                       atomic.Int64
}

func (c *counters) read() Counts {
	return Counts{
		Connections:        c.connections.Load(),
		Open:               c.open.Load(),
		Handshakes:         c.handshakes.Load(),
		Requests:           c.requests.Load(),
		ApplicationBytes:   c.applicationBytes.Load(),
		ClientCertificates: c.clientCertificates.Load(),
		BytesRead:          c.bytesRead.Load(),
		BytesWritten:       c.bytesWritten.Load(),
	}
}
