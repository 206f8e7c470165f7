package verdict_test

import (
	"strings"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

func TestJudgeAPIServers(t *testing.T) {
	ours := []string{"InternalIP", "Hostname"}
	good := verdict.APIServer{Name: "good", CertificateAuthority: "/pki/ca.crt", PreferredAddressTypes: ours}
	bare := verdict.APIServer{Name: "bare", PreferredAddressTypes: ours}
	other := verdict.APIServer{Name: "other", CertificateAuthority: "/pki/other.crt", PreferredAddressTypes: []string{"Hostname", "InternalIP"}}
	checking := good
	checking.Name, checking.CommonNameCheck = "checking", true
	seen := func(s ...verdict.APIServer) verdict.APIServers { return verdict.APIServers{Seen: s} }
	for name, c := range map[string]struct {
		servers verdict.APIServers
		want    string
		atBest  verdict.Readiness
		words   []string
	}{
		"none is visible":  {verdict.APIServers{}, "Unknown NotVisible", verdict.Ready, []string{"managed"}},
		"none may be read": {verdict.APIServers{NotAllowed: true}, "Unknown NotAllowed", verdict.Ready, nil},
		"one is obscure":   {verdict.APIServers{Seen: []verdict.APIServer{good}, Obscure: []string{"odd"}}, "Unknown NotUnderstood", verdict.Ready, []string{"odd"}},
		"all have it":      {seen(good, checking), "True FlagSet", verdict.Ready, []string{`"/pki/ca.crt"`, "the CN check is on: checking"}},
		"one has it not":   {seen(good, bare), "False FlagMissing", verdict.NotReady, []string{": bare"}},
		"one has it not, obscure": {
			verdict.APIServers{Seen: []verdict.APIServer{bare}, Obscure: []string{"odd"}}, "False FlagMissing", verdict.NotReady, nil,
		},
		"another order of addresses":              {seen(good, other), "True FlagSet", verdict.ReadinessUnknown, []string{`other ("Hostname,InternalIP")`, `"/pki/other.crt"`}},
		"one has it not, one has other addresses": {seen(bare, other), "False FlagMissing", verdict.NotReady, []string{": bare", `other ("Hostname,InternalIP")`}},
		"hostile words": {
			seen(verdict.APIServer{Name: "x", CertificateAuthority: "\x1b[2J" + strings.Repeat("y", 5000), PreferredAddressTypes: ours}), "True FlagSet", verdict.Ready, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := verdict.JudgeAPIServers(c.servers, ours)
			if got := a.Status.String() + " " + a.Reason; got != c.want || a.AtBest(verdict.WhatBoth) != c.atBest || a.AtBest(verdict.WhatCN) != c.atBest {
				t.Errorf("%s, at best %s, %s; want %s, %s", got, a.AtBest(verdict.WhatBoth), a.AtBest(verdict.WhatCN), c.want, c.atBest)
			}
			// What happens today does not need the CA, but the addresses.
			today := verdict.Ready
			if len(a.Differing) > 0 {
				today = verdict.ReadinessUnknown
			}
			if got := a.AtBest(verdict.WhatTLS); got != today {
				t.Errorf("today at best %s, want %s", got, today)
			}
			for _, w := range c.words {
				if !strings.Contains(a.Message, w) {
					t.Errorf("%q lacks %q", a.Message, w)
				}
			}
			assertPrintable(t, a.Message)
			if a.Message == "" || len(a.Message) > 1024 {
				t.Errorf("a message of %d bytes", len(a.Message))
			}
		})
	}
}
