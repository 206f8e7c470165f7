package kubelet_test

import (
	"crypto/sha256"
	"net/netip"
	"reflect"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func requestBy(node, name string, at time.Duration, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(epoch.Add(at))},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeletServingSignerName, Username: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"},
		},
	}
	for _, c := range conditions {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c})
	}
	return csr
}

func TestNodeOf(t *testing.T) {
	for _, c := range []struct {
		user, group, want string
	}{
		{"system:node:n1", "system:nodes", "n1"},
		{"system:node:", "system:nodes", ""},
		{"system:node:n1", "system:authenticated", ""},
		{"n1", "system:nodes", ""},
		{"system:serviceaccount:system:node:n1", "system:nodes", ""},
	} {
		if got := kubelet.NodeOf(c.user, []string{"system:authenticated", c.group}); got != c.want {
			t.Errorf("%s in %s: %q, want %q", c.user, c.group, got, c.want)
		}
	}
}

func TestStateOfARequest(t *testing.T) {
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	leaf := certs.NewWorld(epoch).CA.Issue(certs.Template(certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("10.0.0.1")}))
	for name, c := range map[string]struct {
		conditions  []certificatesv1.RequestConditionType
		certificate []byte
		want        verdict.RequestState
	}{
		"new":                        {nil, nil, verdict.RequestPending},
		"approved":                   {[]certificatesv1.RequestConditionType{approved}, nil, verdict.RequestApproved},
		"denied":                     {[]certificatesv1.RequestConditionType{denied}, nil, verdict.RequestDenied},
		"approved and failed":        {[]certificatesv1.RequestConditionType{approved, failed}, nil, verdict.RequestFailed},
		"failed and approved":        {[]certificatesv1.RequestConditionType{failed, approved}, nil, verdict.RequestFailed},
		"issued":                     {[]certificatesv1.RequestConditionType{approved}, leaf.CertificatePEM(), verdict.RequestIssued},
		"issued, and not readable":   {[]certificatesv1.RequestConditionType{approved}, []byte("text"), verdict.RequestApproved},
		"issued, and no certificate": {[]certificatesv1.RequestConditionType{approved}, leaf.KeyPEM(), verdict.RequestApproved},
	} {
		t.Run(name, func(t *testing.T) {
			csr := requestBy("n1", "csr-1", 0, c.conditions...)
			csr.Status.Certificate = c.certificate
			var x kubelet.Requests
			if node := x.Set(kubelet.StrippedRequest(csr)); node != "n1" {
				t.Fatalf("of node %q", node)
			}
			got := x.Of("n1")
			if got.State != c.want || got.Name != "csr-1" {
				t.Errorf("%+v", got)
			}
			if issued := c.want == verdict.RequestIssued; issued == got.NotBefore.IsZero() || issued != (got.SHA256 == sha256.Sum256(leaf.Leaf().Raw)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestTheLatestRequestCounts(t *testing.T) {
	var x kubelet.Requests
	latest := func(want string) {
		t.Helper()
		if got := x.Of("n1").Name; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	latest("")
	x.Set(requestBy("n1", "b", 2*time.Minute))
	x.Set(requestBy("n1", "c", time.Minute))
	x.Set(requestBy("n2", "d", time.Hour))
	latest("b")
	x.Set(requestBy("n1", "b", 2*time.Minute, certificatesv1.CertificateDenied))
	if got := x.Of("n1"); got.Name != "b" || got.State != verdict.RequestDenied {
		t.Errorf("%+v", got)
	}
	if node := x.Delete("b"); node != "n1" {
		t.Errorf("of node %q", node)
	}
	latest("c")
	x.Delete("c")
	x.Delete("unknown")
	latest("")

	other := requestBy("n1", "e", 0)
	other.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	software := requestBy("n1", "f", 0)
	software.Spec.Username = "system:serviceaccount:minio:operator"
	if x.Set(other) != "" || x.Set(software) != "" {
		t.Error("another signer's, or no node's")
	}
	latest("")
	var none *kubelet.Requests
	if none.Of("n1") != (verdict.Request{}) {
		t.Error("none are known")
	}
}

// What is stripped reads as before.
func TestStrippedRequestReadsTheSame(t *testing.T) {
	csr := requestBy("n1", "csr-1", 0, certificatesv1.CertificateApproved)
	csr.Spec.Request, csr.Spec.Usages = []byte("request"), []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}
	csr.Spec.Extra = map[string]certificatesv1.ExtraValue{"k": {"v"}}
	csr.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	csr.Status.Conditions[0].Message = "words"
	s := kubelet.StrippedRequest(csr)
	if s.ManagedFields != nil || s.Spec.Extra != nil || s.Status.Conditions[0].Message != "" {
		t.Errorf("%+v", s)
	}
	csr.ManagedFields, csr.Spec.Extra, csr.Status.Conditions[0].Message = nil, nil, ""
	if !reflect.DeepEqual(s, csr) {
		t.Errorf("%+v\n%+v", s, csr)
	}
}
