package kubelet

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// nodesGroup is the group of all kubelets (Kubernetes documentation, Using Node
// Authorization).
const nodesGroup = "system:nodes"

// NodeOf is the name of the node that an authenticated user is; "" where the
// user is no node.
func NodeOf(user string, groups []string) string {
	name, ok := strings.CutPrefix(user, verdict.CommonNameOf(""))
	if !ok || !slices.Contains(groups, nodesGroup) {
		return ""
	}
	return name
}

// StrippedRequest keeps what this project reads of a CertificateSigningRequest.
func StrippedRequest(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	s := &certificatesv1.CertificateSigningRequest{
		TypeMeta: csr.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: csr.Name, UID: csr.UID, ResourceVersion: csr.ResourceVersion, CreationTimestamp: csr.CreationTimestamp,
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr.Spec.Request, SignerName: csr.Spec.SignerName, Usages: csr.Spec.Usages,
			Username: csr.Spec.Username, Groups: csr.Spec.Groups,
		},
		Status: certificatesv1.CertificateSigningRequestStatus{Certificate: csr.Status.Certificate},
	}
	for _, c := range csr.Status.Conditions {
		s.Status.Conditions = append(s.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c.Type, Status: c.Status})
	}
	return s
}

// Requests knows which requests for serving certificates each node has made. The
// zero Requests knows none, as does a nil one; it is safe for concurrent use.
type Requests struct {
	mu     sync.RWMutex
	byNode map[string][]madeRequest // latest last
	nodeOf map[string]string        // by the name of the request
}

type madeRequest struct {
	made time.Time
	verdict.Request
}

// Set takes in what a request is now, and gives the node that made it; "" where
// it is no node's, or of another signer.
func (x *Requests) Set(csr *certificatesv1.CertificateSigningRequest) (node string) {
	node = NodeOf(csr.Spec.Username, csr.Spec.Groups)
	if node == "" || csr.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		return ""
	}
	request := madeRequest{csr.CreationTimestamp.Time, requestOf(csr)}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byNode == nil {
		x.byNode, x.nodeOf = map[string][]madeRequest{}, map[string]string{}
	}
	x.remove(csr.Name)
	x.nodeOf[csr.Name] = node
	at, _ := slices.BinarySearchFunc(x.byNode[node], request, func(a, b madeRequest) int {
		return cmp.Or(a.made.Compare(b.made), cmp.Compare(a.Name, b.Name))
	})
	x.byNode[node] = slices.Insert(x.byNode[node], at, request)
	return node
}

// Delete forgets a request, and gives the node that had made it.
func (x *Requests) Delete(name string) (node string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.remove(name)
}

func (x *Requests) remove(name string) (node string) {
	node, ok := x.nodeOf[name]
	if !ok {
		return ""
	}
	delete(x.nodeOf, name)
	left := slices.DeleteFunc(x.byNode[node], func(r madeRequest) bool { return r.Name == name })
	if len(left) == 0 {
		delete(x.byNode, node)
		return node
	}
	x.byNode[node] = left
	return node
}

// Of is the latest request of a node.
func (x *Requests) Of(node string) verdict.Request {
	if x == nil {
		return verdict.Request{}
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	made := x.byNode[node]
	if len(made) == 0 {
		return verdict.Request{}
	}
	return made[len(made)-1].Request
}

// requestOf reads the state as the API defines it: Denied and Failed are final,
// a certificate is there once it is signed.
func requestOf(csr *certificatesv1.CertificateSigningRequest) verdict.Request {
	r := verdict.Request{Name: csr.Name, State: verdict.RequestPending}
	for _, c := range csr.Status.Conditions {
		switch {
		case c.Type == certificatesv1.CertificateApproved && r.State == verdict.RequestPending:
			r.State = verdict.RequestApproved
		case c.Type == certificatesv1.CertificateDenied:
			r.State = verdict.RequestDenied
		case c.Type == certificatesv1.CertificateFailed:
			r.State = verdict.RequestFailed
		}
	}
	block, _ := pem.Decode(csr.Status.Certificate)
	if block == nil {
		return r
	}
	if issued, err := x509.ParseCertificate(block.Bytes); err == nil {
		r.State, r.NotBefore, r.SHA256 = verdict.RequestIssued, issued.NotBefore, sha256.Sum256(issued.Raw)
	}
	return r
}
