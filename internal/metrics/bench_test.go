package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
)

// BenchmarkScrape: what a scrape costs with many nodes, of which one in a
// hundred fails; its series are bounded whatever their number.
func BenchmarkScrape(b *testing.B) {
	for _, nodes := range []int{50, 5_000, 50_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			m := metrics.New(clocktesting.NewFakePassiveClock(now), 100)
			m.Begin(1, 10*time.Minute)
			for i := range nodes {
				name, v := fmt.Sprintf("n%d", i), verified
				if i%100 == 0 {
					v = breaks
				}
				m.Track(name, identityOf(name), now)
				m.Put(name, identityOf(name), 1, v, now)
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(m)
			handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
			var page string
			b.ReportAllocs()
			for b.Loop() {
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil))
				page = answer.Body.String()
			}
			series := 0
			for line := range strings.Lines(page) {
				if !strings.HasPrefix(line, "#") {
					series++
				}
			}
			b.ReportMetric(float64(series), "series")
		})
	}
}
