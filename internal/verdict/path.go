package verdict

import (
	"crypto/sha256"
	"crypto/x509"
	"time"
)

// Path says that certificates as they were served lead to a bundle, so that a
// later look at the very same ones need not verify their signatures again.
type Path struct {
	// digest of the served certificates, in order, and of the bundle.
	digest [sha256.Size]byte
	// from and until, both inclusive, all certificates of one chain are valid; in
	// seconds, which is how precise they are (RFC 5280, section 4.1.2.5).
	from, until int64
}

// end is the last moment in which they are.
func (p *Path) end() time.Time { return time.Unix(p.until, 0) }

// holds says that a fresh verification at the time would find a chain too: what
// depends on time alone is looked at each time.
func (p *Path) holds(digest [sha256.Size]byte, at time.Time) bool {
	return p != nil && p.digest == digest && !at.Before(time.Unix(p.from, 0)) && !at.After(p.end())
}

// pathOf is the chain that holds longest; nil where there is none.
func pathOf(digest [sha256.Size]byte, chains [][]*x509.Certificate) *Path {
	var p *Path
	for _, chain := range chains {
		if from, until := validity(chain); p == nil || until.Unix() > p.until {
			p = &Path{digest: digest, from: from.Unix(), until: until.Unix()}
		}
	}
	return p
}

// validity is the time in which every certificate of a chain is valid.
func validity(chain []*x509.Certificate) (from, until time.Time) {
	from, until = chain[0].NotBefore, chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotBefore.After(from) {
			from = c.NotBefore
		}
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return from, until
}

// digestOf what is served and what it is judged by.
func digestOf(served []*x509.Certificate, bundle Bundle) (digest [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range served {
		h.Write(c.Raw) // DER has its own length
	}
	h.Write([]byte(bundle.SHA256))
	h.Sum(digest[:0])
	return digest
}
