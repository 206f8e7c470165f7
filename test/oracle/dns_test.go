package oracle

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// nameserver is the address of the stub, the only resolver in the namespace.
const nameserver = "127.0.0.53"

// dnsStub answers for the names that it was told, with NXDOMAIN for others.
type dnsStub struct {
	conn net.PacketConn
	done sync.WaitGroup

	mu      sync.Mutex // guards what follows
	records map[string][]netip.Addr
}

func startDNS(ctx context.Context) (*dnsStub, error) {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", net.JoinHostPort(nameserver, "53"))
	if err != nil {
		return nil, err
	}
	s := &dnsStub{conn: conn, records: map[string][]netip.Addr{}}
	s.done.Go(s.serve)
	return s, nil
}

func (s *dnsStub) close() error {
	err := s.conn.Close()
	s.done.Wait()
	return err
}

// set gives a name its addresses; none makes the server fail on it.
func (s *dnsStub) set(name string, addresses ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[canonical(name)] = addresses
}

func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) + "." }

func (s *dnsStub) serve() {
	buffer := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if answer := s.answer(buffer[:n]); answer != nil {
			_, _ = s.conn.WriteTo(answer, from)
		}
	}
}

// answer is nil where the query cannot be read.
func (s *dnsStub) answer(query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil
	}
	question := m.Questions[0]
	s.mu.Lock()
	addresses, known := s.records[strings.ToLower(question.Name.String())]
	s.mu.Unlock()
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: m.Questions,
	}
	switch {
	case !known:
		reply.RCode = dnsmessage.RCodeNameError
	case len(addresses) == 0:
		reply.RCode = dnsmessage.RCodeServerFailure
	}
	for _, ip := range addresses {
		if body := resource(question.Type, ip); body != nil {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   body,
			})
		}
	}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func resource(t dnsmessage.Type, ip netip.Addr) dnsmessage.ResourceBody {
	switch {
	case t == dnsmessage.TypeA && ip.Is4():
		return &dnsmessage.AResource{A: ip.As4()}
	case t == dnsmessage.TypeAAAA && ip.Is6():
		return &dnsmessage.AAAAResource{AAAA: ip.As16()}
	}
	return nil
}
