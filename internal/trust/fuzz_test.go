package trust_test

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/trust"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// FuzzParse holds the bundle to what kube-apiserver's AppendCertsFromPEM takes
// in.
func FuzzParse(f *testing.F) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	one, two := certs.NewCA("one", now).PEM(), certs.NewCA("two", now).PEM()
	for _, seed := range [][]byte{
		nil, one, append(append([]byte("text\n"), one...), two...), append(append([]byte{}, one...), one...), one[:len(one)/2],
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("none")}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte("none")}),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := x509.NewCertPool()
		some := want.AppendCertsFromPEM(text)
		got, err := trust.Parse("test", text)
		if some != (err == nil) || some == got.Empty() {
			t.Fatalf("AppendCertsFromPEM takes some: %t; Parse says %v", some, err)
		}
		if err == nil && !got.Roots.Equal(want) {
			t.Errorf("the pools differ: %d certificates", len(got.Certificates))
		}
		if (got.SHA256 == "") != (err != nil) {
			t.Errorf("fingerprint %q, error %v", got.SHA256, err)
		}
	})
}
