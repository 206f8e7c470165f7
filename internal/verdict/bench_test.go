package verdict_test

import (
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// BenchmarkJudge is what one verdict costs, most of it the signatures that
// crypto/x509 verifies.
func BenchmarkJudge(b *testing.B) {
	for _, d := range certs.Defects() {
		switch d.Name {
		case "good", "served-intermediate", "bare-node-name", "unknown-ca", "expired":
		default:
			continue
		}
		b.Run(d.Name, func(b *testing.B) {
			served := d.Serve(world, identity)
			obs := verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: parsed(served)}
			b.ReportAllocs()
			for b.Loop() {
				verdict.Judge(expectation(), obs, policy(), now)
			}
		})
	}
	b.Run("good, seen before", func(b *testing.B) {
		obs := verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: true, Chain: parsed(world.CA.Issue(certs.Template(identity)))}
		p := policy()
		p.Known = verdict.Judge(expectation(), obs, p, now).Path
		b.ReportAllocs()
		for b.Loop() {
			verdict.Judge(expectation(), obs, p, now)
		}
	})
	b.Run("silent", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			verdict.Judge(expectation(), verdict.Observation{Outcome: verdict.OutcomeTimeout}, policy(), now)
		}
	})
}
