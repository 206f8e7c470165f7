package verdict

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// Each rule names the place where its sentence is written, and each check has
// a rule.
func TestEveryRuleHasItsSource(t *testing.T) {
	checks := map[v1alpha1.CheckName]bool{}
	for _, r := range rules {
		checks[r.check] = true
		named := slices.ContainsFunc([]string{"crypto/x509 Certificate.", "crypto/tls ", "KEP-4872: "},
			func(source string) bool { return strings.HasPrefix(r.source, source) })
		if _, sentence, _ := strings.Cut(r.source, " "); !named || len(sentence) < 20 {
			t.Errorf("the source of a rule of %s is %q", r.check, r.source)
		}
	}
	for _, check := range v1alpha1.CheckNames() {
		if !checks[check] {
			t.Errorf("no rule judges %s", check)
		}
	}
}
