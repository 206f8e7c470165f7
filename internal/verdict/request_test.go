package verdict_test

import (
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// The node's request changes what is advised, never what is judged.
func TestRequestHints(t *testing.T) {
	const unloaded = "but the kubelet has not loaded it"
	template := certs.Template(identity)
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
	template.Subject.CommonName = "node-1" // a bare name, which has a hint of its own
	wrong := world.CA.Issue(template)
	right := certs.Template(identity)
	right.NotBefore, right.NotAfter = template.NotBefore, template.NotAfter
	served := sha256.Sum256(wrong.Leaf().Raw)
	later := now.Add(-time.Minute)
	for name, c := range map[string]struct {
		request     verdict.Request
		served      string // with a certificate of the wrong name
		uncertified string // with none
	}{
		"none is known":                {verdict.Request{}, "", "look for its pending request with: kubectl get csr"},
		"pending":                      {verdict.Request{Name: "csr-1", State: verdict.RequestPending}, "kubectl certificate approve csr-1", "kubectl certificate approve csr-1"},
		"approved":                     {verdict.Request{Name: "csr-1", State: verdict.RequestApproved}, "csr-1 is approved but not signed", "csr-1 is approved but not signed"},
		"denied":                       {verdict.Request{Name: "csr-1", State: verdict.RequestDenied}, "csr-1 was denied", "csr-1 was denied"},
		"failed":                       {verdict.Request{Name: "csr-1", State: verdict.RequestFailed}, "csr-1 could not be signed", "csr-1 could not be signed"},
		"issued later":                 {verdict.Request{Name: "csr-1", State: verdict.RequestIssued, NotBefore: later}, unloaded, unloaded},
		"issued, the one served":       {verdict.Request{Name: "csr-1", State: verdict.RequestIssued, NotBefore: later, SHA256: served}, "", unloaded},
		"issued before the one served": {verdict.Request{Name: "csr-1", State: verdict.RequestIssued, NotBefore: now.Add(-2 * time.Hour)}, "", unloaded},
	} {
		t.Run(name, func(t *testing.T) {
			exp := expectation()
			policy := verdict.Policy{Bundle: bundleOf(world.CA)}
			plain := verdict.Judge(exp, completed(t, wrong), policy, now)
			exp.Request = c.request
			hints(t, verdict.Judge(exp, completed(t, wrong), policy, now), v1alpha1.ReasonCommonNameMismatch, c.served, plain.Hint)
			hints(t, verdict.Judge(exp, verdict.Observation{Outcome: verdict.OutcomeInternalError}, policy, now), v1alpha1.ReasonNoServingCertificate, c.uncertified, "")
			if v := verdict.Judge(exp, completed(t, world.CA.Issue(right)), policy, now); v.Status != verdict.True || v.Hint != "" {
				t.Errorf("%s: %s", v.Status, v.Message)
			}
		})
	}
}

// hints expects a hint that holds want; where want is empty, fallback itself.
func hints(t *testing.T, v verdict.Verdict, reason v1alpha1.Reason, want, fallback string) {
	t.Helper()
	if v.Reason != reason || v.Status != verdict.False {
		t.Fatalf("%s %s: %s", v.Status, v.Reason, v.Message)
	}
	if want == "" && v.Hint != fallback || !strings.Contains(v.Hint, want) || !strings.Contains(v.Message, v.Hint) {
		t.Errorf("%q, want %q or %q", v.Hint, want, fallback)
	}
}
