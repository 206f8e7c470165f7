package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"time"
)

// Identity is a node as the API server sees it: the name that its certificate
// must carry and the address that is dialled.
type Identity struct {
	NodeName string
	IP       netip.Addr
}

// World holds the CAs and the clock that all defects share. CA is the one that
// the trust bundle holds.
type World struct {
	// Now is in UTC and whole seconds.
	Now time.Time
	// CA issues good certificates.
	CA *CA
	// Intermediate is issued by CA.
	Intermediate *CA
	// UnknownCA belongs to somebody else.
	UnknownCA *CA
	// TwinCA has CA's subject and another key.
	TwinCA *CA

	// Victim is the good certificate of another node, with its key. That node
	// has an address (TEST-NET-1) which no simulated node can have.
	Victim     Served
	VictimName string
	VictimIP   netip.Addr

	expired     *CA // issued by CA, its time over
	clientOnly  *CA // issued by CA for client authentication
	constrained *CA // issued by CA for addresses that no node has
}

// NewWorld makes a world as of now. The same now gives the same world, key for
// key; for a CA that differs take UnknownCA or NewCA.
func NewWorld(now time.Time) *World {
	now = now.UTC().Truncate(time.Second)
	ca := newRoot("kubernetes", now, "world CA")
	w := &World{
		Now:          now,
		CA:           ca,
		Intermediate: ca.NewIntermediate("kubelet-serving", now),
		UnknownCA:    newRoot("another-cluster", now, "world unknown CA"),
		TwinCA:       newRoot("kubernetes", now, "world twin CA"),
		VictimName:   "another-node",
		VictimIP:     netip.MustParseAddr("192.0.2.1"),
	}
	w.Victim = ca.Issue(Template(Identity{NodeName: w.VictimName, IP: w.VictimIP}))
	w.mintBadIntermediates()
	return w
}

func (w *World) mintBadIntermediates() {
	expired := caTemplate("kubelet-serving-expired", w.Now)
	expired.NotAfter = w.Now.Add(-time.Hour)
	w.expired = w.CA.issueCA(expired, w.Now)

	clientOnly := caTemplate("kubelet-client", w.Now)
	clientOnly.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	w.clientOnly = w.CA.issueCA(clientOnly, w.Now)

	constrained := caTemplate("kubelet-serving-elsewhere", w.Now)
	constrained.PermittedDNSDomainsCritical = true
	constrained.PermittedIPRanges = []*net.IPNet{{IP: net.IPv4(192, 0, 2, 0).To4(), Mask: net.CIDRMask(24, 32)}}
	w.constrained = w.CA.issueCA(constrained, w.Now)
}

// Template is what the signer kubernetes.io/kubelet-serving would be asked to
// sign for the node: the good certificate, from which every defect departs.
func Template(id Identity) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: "system:node:" + id.NodeName, Organization: []string{"system:nodes"}},
		DNSNames:              []string{id.NodeName},
		IPAddresses:           []net.IP{id.IP.AsSlice()},
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
}
