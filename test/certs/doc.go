// Package certs mints certificates for tests and the demo, and holds the one
// list of what can be wrong with a kubelet's serving certificate or with the
// server that shows it.
//
// What it mints is deterministic and predictable: keys derive from public
// values and signatures are those of RFC 6979. Nothing of it may guard
// anything. It opens no socket and judges nothing; it only states what the
// right judgement is.
package certs
