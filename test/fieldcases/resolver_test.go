package fieldcases

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// broken is what a name resolves to whose servers do not work.
var broken netip.Addr

// resolver knows these names, in lower case, and says of any other that there
// is none.
func resolver(names map[string]netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe() // no packets, so it is spoken to as over TCP
		go answerNames(server, names)
		return client, nil
	}}
}

func answerNames(conn net.Conn, names map[string]netip.Addr) {
	defer func() { _ = conn.Close() }()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer, err := answerTo(query, names)
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

func answerTo(query []byte, names map[string]netip.Addr) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	question := m.Questions[0]
	ip, known := names[strings.TrimSuffix(strings.ToLower(question.Name.String()), ".")]
	switch {
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case ip == broken:
		m.RCode = dnsmessage.RCodeServerFailure
	case question.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: ip.As4()},
		}}
	}
	return m.Pack()
}
