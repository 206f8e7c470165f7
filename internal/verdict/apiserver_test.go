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
		differs bool
		words   []string
	}{
		"none is visible":  {verdict.APIServers{}, "Unknown NotVisible", false, []string{"managed"}},
		"none may be read": {verdict.APIServers{NotAllowed: true}, "Unknown NotAllowed", false, nil},
		"one is obscure":   {verdict.APIServers{Seen: []verdict.APIServer{good}, Obscure: []string{"odd"}}, "Unknown NotUnderstood", false, []string{"odd"}},
		"all have it":      {seen(good, checking), "True FlagSet", false, []string{`"/pki/ca.crt"`, "the CN check is on: checking"}},
		"one has it not":   {seen(good, bare), "False FlagMissing", false, []string{": bare"}},
		"one has it not, obscure": {
			verdict.APIServers{Seen: []verdict.APIServer{bare}, Obscure: []string{"odd"}}, "False FlagMissing", false, nil,
		},
		"another order of addresses": {seen(good, other), "True FlagSet", true, []string{`other ("Hostname,InternalIP")`, `"/pki/other.crt"`}},
		"hostile words": {
			seen(verdict.APIServer{Name: "x", CertificateAuthority: "\x1b[2J" + strings.Repeat("y", 5000), PreferredAddressTypes: ours}), "True FlagSet", false, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := verdict.JudgeAPIServers(c.servers, ours)
			if got := a.Status.String() + " " + a.Reason; got != c.want || a.Differs() != c.differs {
				t.Errorf("%s, differs: %v; want %s, %v", got, a.Differs(), c.want, c.differs)
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
