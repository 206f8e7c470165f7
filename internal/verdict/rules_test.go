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

// The worst result of a check stays, with its first words.
func TestMerge(t *testing.T) {
	for _, c := range []struct {
		before Check
		result Result
		words  string
		want   Check
	}{
		{Check{}, NotRun, "", Check{}},
		{Check{}, Pass, "", Check{Result: Pass}},
		{Check{Result: Pass}, NotRun, "", Check{Result: Pass}},
		{Check{Result: Pass}, Fail, "b", Check{Result: Fail, Message: "b"}},
		{Check{Result: Fail, Message: "a"}, Pass, "", Check{Result: Fail, Message: "a"}},
		{Check{Result: Fail, Message: "a"}, Fail, "b", Check{Result: Fail, Message: "a"}},
	} {
		got := c.before
		if got.merge(c.result, c.words); got != c.want {
			t.Errorf("%v and then %v: got %v, want %v", c.before, c.result, got, c.want)
		}
	}
}
