package admission_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/admission"
)

// What a review costs does not grow with the number of nodes.
func BenchmarkReview(b *testing.B) {
	for _, n := range []int{50, 5_000, 50_000} {
		x := filled(n)
		r := request(nil)
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(admission.Review(r, x, reserved)) > 0 {
					b.Fatal("it is right")
				}
			}
		})
	}
}

// filled has n Nodes beside those of the cluster.
func filled(n int) *admission.Index {
	x := cluster()
	for i := range n {
		x.Set(node(fmt.Sprintf("n%d", i), nil, fmt.Sprintf("10.%d.%d.%d", 1+i>>16, i>>8&255, i&255), fmt.Sprintf("n%d.example", i)))
	}
	return x
}

// BenchmarkWebhook asks over HTTPS, client and server in this process, with 200
// requests under way.
func BenchmarkWebhook(b *testing.B) {
	const inFlight = 200
	log.SetLogger(logr.Discard())
	d := newDesk(v1alpha1.AdmissionEnforce, nodeA)
	d.Counters = discard{}
	d.Reviewer.Index = filled(50_000)
	hook, err := ctrladmission.StandaloneWebhook((&ctrladmission.Webhook{Handler: &d.Handler}).WithRecoverPanic(false), ctrladmission.StandaloneOptions{})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewUnstartedServer(hook)
	server.EnableHTTP2 = true // as kube-apiserver speaks to webhooks
	server.StartTLS()
	defer server.Close()
	asked := ask(request(nil), nil).AdmissionRequest
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &asked})
	if err != nil {
		b.Fatal(err)
	}
	if err := post(server, body); err != nil { // one connection for all
		b.Fatal(err)
	}
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var workers sync.WaitGroup
	b.ResetTimer()
	for range inFlight {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < b.N; i = int(next.Add(1)) - 1 {
				start := time.Now()
				if err := post(server, body); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(start)
			}
		})
	}
	workers.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

func post(server *httptest.Server, body []byte) error {
	resp, err := server.Client().Post(server.URL, "application/json", bytes.NewReader(body)) //nolint:noctx // it ends with the server
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"allowed":true`)) {
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return nil
}

type discard struct{}

func (discard) RequestReviewed(v1alpha1.ReviewDecision, v1alpha1.ReviewReason) {}
func (discard) ReviewTook(time.Duration)                                       {}
