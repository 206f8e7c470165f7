package verdict_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

func TestLateFrom(t *testing.T) {
	c := &x509.Certificate{NotBefore: now, NotAfter: now.Add(100 * time.Hour)}
	if got := verdict.LateFrom(c); !got.Equal(now.Add(90 * time.Hour)) {
		t.Errorf("%s", got)
	}
}
