package metrics_test

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/metrics"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// scrape gives the text that Prometheus would get. The registry is pedantic: it
// refuses series that do not fit their description.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Error(err)
	}
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		t.Errorf("scrape: %d %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// assertSeries compares every series of one metric, in the order of its labels.
func assertSeries(t *testing.T, m *metrics.Metrics, name string, want ...string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(scrape(t, m)) {
		rest, ok := strings.CutPrefix(line, "kubelet_cert_auditor_"+name)
		if ok && (rest[0] == '{' || rest[0] == ' ') {
			got = append(got, strings.TrimSpace(rest))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

// small is a cluster with a node of each group.
func small() *metrics.Metrics {
	m := newMetrics(100, "good", "bare", "foreign", "mute", "new", "left-out")
	soon, later := verified, breaks
	soon.Leaf = &x509.Certificate{NotBefore: now.Add(-9 * time.Hour), NotAfter: now.Add(time.Hour)}
	later.Leaf = &x509.Certificate{NotBefore: now.Add(-9 * time.Hour), NotAfter: now.Add(2 * time.Hour)}
	m.Put("good", identityOf("good"), 1, soon, now.Add(-time.Minute))
	m.Put("bare", identityOf("bare"), 1, later, now.Add(-90*time.Second))
	m.Put("foreign", identityOf("foreign"), 1, rejected, now)
	m.Put("mute", identityOf("mute"), 1, silent, now)
	m.Exclude("left-out", identityOf("left-out"), 1)
	bundle := verdict.Bundle{Certificates: []*x509.Certificate{
		{NotAfter: now.Add(-time.Hour)}, {NotAfter: now.Add(3 * time.Hour)}, {NotAfter: now.Add(2 * time.Hour)},
	}}
	m.BundleChanged(bundle, nil)
	m.BundleChanged(bundle, errors.New("unreadable"))
	m.Probed(verdict.Observation{Outcome: verdict.OutcomeCompleted, Duration: 20 * time.Millisecond}, breaks)
	m.Probed(verdict.Observation{Outcome: verdict.OutcomeTimeout, Duration: 10 * time.Second}, silent)
	return m
}

func TestNamesAndTypesAreThePublishedOnes(t *testing.T) {
	var got []string
	for line := range strings.Lines(scrape(t, small())) {
		if rest, ok := strings.CutPrefix(line, "# TYPE kubelet_cert_auditor_"); ok {
			got = append(got, strings.TrimSpace(rest))
		}
	}
	want := []string{
		"certificates_late_in_lifetime gauge",
		"check_failures gauge",
		"cn_validations_total counter",
		"csr_review_duration_seconds histogram",
		"csr_reviews_total counter",
		"earliest_certificate_expiry_timestamp_seconds gauge",
		"failing_node_info gauge",
		"interval_seconds gauge",
		"nodes gauge",
		"oldest_verdict_age_seconds gauge",
		"probe_duration_seconds histogram",
		"probes_total counter",
		"ready_to_enforce gauge",
		"trust_bundle_certificates gauge",
		"trust_bundle_expiry_timestamp_seconds gauge",
		"trust_bundle_loaded gauge",
		"trust_bundle_reloads_total counter",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSeriesOfASmallCluster(t *testing.T) {
	m := small()
	assertSeries(t, m, "nodes",
		`{reason="CommonNameMismatch",status="False"} 1`, `{reason="NotProbedYet",status="Unknown"} 1`,
		`{reason="ProbeTimeout",status="Unknown"} 1`, `{reason="UnknownAuthority",status="False"} 1`, `{reason="Verified",status="True"} 1`)
	assertSeries(t, m, "check_failures",
		`{check="Address"} 0`, `{check="Chain"} 1`, `{check="CommonName"} 2`, `{check="KeyUsage"} 0`, `{check="Validity"} 0`)
	assertSeries(t, m, "failing_node_info", `{node="bare",reason="CommonNameMismatch"} 1`, `{node="foreign",reason="UnknownAuthority"} 1`)
	assertSeries(t, m, "ready_to_enforce", "0")
	assertSeries(t, m, "oldest_verdict_age_seconds", "90")
	assertSeries(t, m, "earliest_certificate_expiry_timestamp_seconds", "1.77237e+09")
	assertSeries(t, m, "interval_seconds", "60")
	assertSeries(t, m, "certificates_late_in_lifetime", "1")
	assertSeries(t, m, "trust_bundle_certificates", "3")
	assertSeries(t, m, "trust_bundle_loaded", "0")
	assertSeries(t, m, "trust_bundle_expiry_timestamp_seconds", "1.7723736e+09")
	assertSeries(t, m, "trust_bundle_reloads_total", `{result="failure"} 1`, `{result="success"} 1`)
	assertSeries(t, m, "cn_validations_total", `{result="failure"} 1`, `{result="success"} 0`)
	assertSeries(t, m, "probes_total",
		`{outcome="address_not_allowed"} 0`, `{outcome="bad_certificate"} 0`, `{outcome="closed"} 0`, `{outcome="completed"} 1`,
		`{outcome="handshake_failed"} 0`, `{outcome="no_certificate"} 0`, `{outcome="not_tls"} 0`, `{outcome="timeout"} 1`,
		`{outcome="unconnected"} 0`, `{outcome="unresolved"} 0`)
	assertSeries(t, m, "probe_duration_seconds_count", "2")
	assertSeries(t, m, "probe_duration_seconds_sum", "10.02")
}

// The alerts are about what goes on; what is over shows in the reason.
func TestLateInLifetime(t *testing.T) {
	for left, want := range map[time.Duration]string{11 * time.Hour: "0", 10 * time.Hour: "1", time.Hour: "1", 0: "1", -time.Second: "0"} {
		m := newMetrics(100, "a", "b")
		v := verified
		v.Leaf = &x509.Certificate{NotBefore: now.Add(left - 100*time.Hour), NotAfter: now.Add(left)}
		m.Put("a", identityOf("a"), 1, v, now)
		m.Put("b", identityOf("b"), 1, silent, now) // without a certificate
		assertSeries(t, m, "certificates_late_in_lifetime", want)
	}
}

// A kubelet without a clock may serve what ended with the epoch's first second.
func TestAnExpiryOfTheEpochIsOne(t *testing.T) {
	for end, want := range map[time.Time]string{time.Unix(0, 0): "0", time.Unix(-60, 0): "-60", time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC): "2.53402300799e+11"} {
		m := newMetrics(100, "a", "b")
		expired := verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonCertificateExpired, Leaf: &x509.Certificate{NotAfter: end}}
		m.Put("a", identityOf("a"), 1, expired, now)
		m.Put("b", identityOf("b"), 1, silent, now) // without a certificate
		assertSeries(t, m, "earliest_certificate_expiry_timestamp_seconds", want)
	}
}

func TestTrustBundle(t *testing.T) {
	m := newMetrics(100)
	assertSeries(t, m, "trust_bundle_loaded")
	m.BundleChanged(verdict.Bundle{}, errors.New("none"))
	assertSeries(t, m, "trust_bundle_loaded", "0")
	assertSeries(t, m, "trust_bundle_certificates", "0")
	assertSeries(t, m, "trust_bundle_expiry_timestamp_seconds")
	m.BundleChanged(verdict.Bundle{Certificates: []*x509.Certificate{{NotAfter: now}}}, nil)
	assertSeries(t, m, "trust_bundle_loaded", "1")
	assertSeries(t, m, "trust_bundle_expiry_timestamp_seconds")
	m.End()
	assertSeries(t, m, "trust_bundle_loaded")
	assertSeries(t, m, "trust_bundle_certificates")
}

// A rate needs a series from before the first count.
func TestWhatIsAlertedOnIsCountedFromZero(t *testing.T) {
	page := scrape(t, newMetrics(100))
	for _, decision := range []v1alpha1.ReviewDecision{v1alpha1.ReviewDenied, v1alpha1.ReviewFound} {
		for _, reason := range v1alpha1.ReviewReasons() {
			if want := fmt.Sprintf("csr_reviews_total{decision=%q,reason=%q} 0\n", decision, reason); !strings.Contains(page, want) {
				t.Errorf("no %s", want)
			}
		}
	}
}

func TestPromlintHasNothingToSay(t *testing.T) {
	problems, err := promlint.New(bytes.NewBufferString(scrape(t, small()))).Lint()
	if err != nil || len(problems) != 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestReadyToEnforce(t *testing.T) {
	all := func(m *metrics.Metrics, v verdict.Verdict, names ...string) {
		for _, name := range names {
			m.Put(name, identityOf(name), 1, v, now)
		}
	}
	for name, c := range map[string]struct {
		do   func(*metrics.Metrics)
		want []string
	}{
		"all verified":         {func(m *metrics.Metrics) { all(m, verified, "a", "b") }, []string{"1"}},
		"one not probed yet":   {func(m *metrics.Metrics) { all(m, verified, "a") }, []string{"0"}},
		"one without evidence": {func(m *metrics.Metrics) { all(m, verified, "a"); all(m, silent, "b") }, []string{"0"}},
		"one breaks":           {func(m *metrics.Metrics) { all(m, verified, "a"); all(m, breaks, "b") }, []string{"0"}},
		"one excluded":         {func(m *metrics.Metrics) { all(m, verified, "a"); m.Exclude("b", identityOf("b"), 1) }, []string{"0"}},
		"no node at all":       {func(m *metrics.Metrics) { m.Forget("a"); m.Forget("b") }, []string{"0"}},
		"a node joins":         {func(m *metrics.Metrics) { all(m, verified, "a", "b"); m.Track("c", identityOf("c"), now) }, []string{"0"}},
		"a node is re-created": {func(m *metrics.Metrics) { all(m, verified, "a", "b"); m.Track("b", identityOf("new"), now) }, []string{"0"}},
		"a new epoch":          {func(m *metrics.Metrics) { all(m, verified, "a", "b"); m.Begin(2, time.Minute) }, []string{"0"}},
		"one long ago": {func(m *metrics.Metrics) {
			all(m, verified, "a")
			m.Put("b", identityOf("b"), 1, verified, now.Add(-3*time.Minute))
		}, []string{"1"}},
		"one overdue": {func(m *metrics.Metrics) {
			all(m, verified, "a")
			m.Put("b", identityOf("b"), 1, verified, now.Add(-3*time.Minute-time.Nanosecond))
		}, []string{"0"}},
		"ended":                {func(m *metrics.Metrics) { all(m, verified, "a", "b"); m.End() }, nil},
		"ended and begun anew": {func(m *metrics.Metrics) { all(m, verified, "a", "b"); m.End(); m.Begin(2, time.Minute) }, []string{"0"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMetrics(100, "a", "b")
			c.do(m)
			assertSeries(t, m, "ready_to_enforce", c.want...)
		})
	}
}

// A replica that does not lead must not be taken for the answer.
func TestNothingAboutNodesWithoutAnAudit(t *testing.T) {
	ended := small()
	ended.End()
	notBegun := metrics.New(clocktesting.NewFakePassiveClock(now), 100)
	notBegun.Track("a", identityOf("a"), now)
	for name, m := range map[string]*metrics.Metrics{"ended": ended, "not begun": notBegun} {
		t.Run(name, func(t *testing.T) {
			for _, series := range []string{"nodes", "check_failures", "failing_node_info", "ready_to_enforce",
				"oldest_verdict_age_seconds", "earliest_certificate_expiry_timestamp_seconds"} {
				assertSeries(t, m, series)
			}
		})
	}
}

func TestFailingNodeInfoIsBounded(t *testing.T) {
	m := newMetrics(2, "a", "b", "c", "d")
	m.Put("a", identityOf("a"), 1, breaks, now)
	m.Put("b", identityOf("b"), 1, breaks, now)
	m.Put("c", identityOf("c"), 1, rejected, now)
	m.Put("d", identityOf("d"), 1, silent, now)
	assertSeries(t, m, "failing_node_info", `{node="a",reason="CommonNameMismatch"} 1`, `{node="c",reason="UnknownAuthority"} 1`)
	m.Put("c", identityOf("c"), 1, verified, now) // it recovers
	assertSeries(t, m, "failing_node_info", `{node="a",reason="CommonNameMismatch"} 1`, `{node="b",reason="CommonNameMismatch"} 1`)
	m.Forget("a")
	assertSeries(t, m, "failing_node_info", `{node="b",reason="CommonNameMismatch"} 1`)
	m.Put("b", identityOf("b"), 1, rejected, now) // one series per node, whatever its reason was
	assertSeries(t, m, "failing_node_info", `{node="b",reason="UnknownAuthority"} 1`)
	m.Exclude("b", identityOf("b"), 1)
	assertSeries(t, m, "failing_node_info")

	none := newMetrics(0, "a")
	none.Put("a", identityOf("a"), 1, breaks, now)
	assertSeries(t, none, "failing_node_info")
}

// The metric of KEP-4872 counts in VerifyConnection, which crypto/tls calls
// only after it has accepted the chain.
func TestCommonNameIsCountedOnlyWhereTLSPassed(t *testing.T) {
	world := certs.NewWorld(now)
	id := certs.Identity{NodeName: "n1", IP: netip.MustParseAddr("10.0.0.1")}
	policy := verdict.Policy{Bundle: verdict.Bundle{Roots: x509.NewCertPool(), Certificates: []*x509.Certificate{world.CA.Certificate}}}
	policy.Bundle.Roots.AddCert(world.CA.Certificate)
	expectation := verdict.Expectation{NodeName: id.NodeName, Endpoint: verdict.Endpoint{Host: id.IP.String(), Port: 10250}}
	for _, d := range certs.Defects() {
		if !d.Captured() {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			obs := verdict.Observation{Outcome: verdict.OutcomeCompleted, KeyProven: d.KeyProven()}
			if !d.KeyProven() {
				obs.Outcome = verdict.OutcomeClosed
			}
			for _, der := range d.Serve(world, id).Chain {
				c, err := x509.ParseCertificate(der)
				if err != nil {
					t.Fatal(err)
				}
				obs.Chain = append(obs.Chain, c)
			}
			success, failure := "0", "0"
			switch {
			case !d.KeyProven():
			case len(d.Fails) == 0:
				success = "1"
			case slices.Equal(d.Fails, []v1alpha1.CheckName{v1alpha1.CheckCommonName}):
				failure = "1"
			}
			m := newMetrics(100)
			m.Probed(obs, verdict.Judge(expectation, obs, policy, now))
			assertSeries(t, m, "cn_validations_total", `{result="failure"} `+failure, `{result="success"} `+success)
		})
	}
}
