package verdict

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"time"
)

// RequestState is what has become of a request for a serving certificate
// (certificates.k8s.io, conditions of a CertificateSigningRequest).
type RequestState uint8

// The states of a request; the zero value means that none is known.
const (
	RequestNone RequestState = iota
	RequestPending
	// RequestApproved: approved, and not signed yet.
	RequestApproved
	RequestDenied
	// RequestFailed: approved, and the signer could not sign.
	RequestFailed
	RequestIssued
)

// Request is the latest request for a serving certificate that a node has made.
type Request struct {
	Name  string
	State RequestState
	// NotBefore and SHA256 are of the certificate that was issued.
	NotBefore time.Time
	SHA256    [sha256.Size]byte
}

// requestHint says what the node's request has to do with the failure; served is
// nil where the kubelet has no certificate.
func requestHint(r Request, served *x509.Certificate) string {
	switch r.State {
	case RequestPending:
		return fmt.Sprintf("its request waits for approval: kubectl certificate approve %s", r.Name)
	case RequestApproved:
		return fmt.Sprintf("its request %s is approved but not signed: no signer for kubernetes.io/kubelet-serving is at work, such as kube-controller-manager's", r.Name)
	case RequestDenied:
		return fmt.Sprintf("its request %s was denied: kubectl describe csr %s", r.Name, r.Name)
	case RequestFailed:
		return fmt.Sprintf("its request %s could not be signed: kubectl describe csr %s", r.Name, r.Name)
	case RequestIssued:
		if served == nil || r.NotBefore.After(served.NotBefore) && r.SHA256 != sha256.Sum256(served.Raw) {
			return fmt.Sprintf("a certificate was issued for its request %s, but the kubelet has not loaded it", r.Name)
		}
	case RequestNone:
	}
	return ""
}
