// Package metrics keeps a ledger of the last verdict per node and shows it to
// Prometheus at scrape time, so that no series outlives its node.
package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

const namespace = "kubelet_cert_auditor"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// Metrics is one instance's metrics: a prometheus.Collector, and the Ledger it
// reads.
type Metrics struct {
	Ledger
	clock clock.PassiveClock
	// maxFailing bounds the series of failing_node_info.
	maxFailing int

	cnValidations *prometheus.CounterVec
	probes        *prometheus.CounterVec
	probeDuration prometheus.Histogram
	bundleReloads *prometheus.CounterVec
	reviews       *prometheus.CounterVec
	reviewTook    prometheus.Histogram

	bundle atomic.Pointer[bundleState]

	nodes, checkFailures, failingNode, ready, oldest, interval, expiry, late *prometheus.Desc
	bundleSize, bundleLoaded, bundleExpiry                                   *prometheus.Desc
}

// New returns metrics with at most maxFailing series of failing_node_info.
func New(c clock.PassiveClock, maxFailing int) *Metrics {
	m := &Metrics{
		clock:      c,
		maxFailing: maxFailing,
		cnValidations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "cn_validations_total",
			Help: "Probes whose certificate passed everything else, by whether its common name is the node's, as the metric of KEP-4872 counts.",
		}, []string{"result"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "probes_total",
			Help: "Probes by how far the handshake went.",
		}, []string{"outcome"}),
		probeDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "probe_duration_seconds",
			Help:    "Duration of a probe: name resolution, connection and handshake.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		bundleReloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "trust_bundle_reloads_total",
			Help: "Changes of the trust bundle: taken over (success), or broken (failure).",
		}, []string{"result"}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "csr_reviews_total",
			Help: "Requests for kubelet serving certificates: allowed, warned about or denied at admission, or found to exist with something wrong; reason is the first ground.",
		}, []string{"decision", "reason"}),
		reviewTook: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "csr_review_duration_seconds",
			Help:    "Duration of a review by the admission webhook.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
		nodes:         desc("nodes", "Nodes by the status and reason of their verdict.", "status", "reason"),
		checkFailures: desc("check_failures", "Nodes that fail a check.", "check"),
		failingNode:   desc("failing_node_info", "Nodes whose kubelet would be refused; bounded in number.", "node", "reason"),
		ready:         desc("ready_to_enforce", "1 when every node is verified and kube-apiserver's flags allow the check as far as they can be read, else 0; absent where this process does not lead or there is no audit."),
		oldest:        desc("oldest_verdict_age_seconds", "Time since the node that was looked at longest ago was looked at."),
		interval:      desc("interval_seconds", "The time between two probes of one node, as the KubeletCertAudit says."),
		late:          desc("certificates_late_in_lifetime", "Serving certificates with less than a tenth of their lifetime left, when kubelets should have rotated them."),
		bundleSize:    desc("trust_bundle_certificates", "Certificates in the trust bundle in use."),
		bundleLoaded:  desc("trust_bundle_loaded", "1 when the trust bundle could be read at the last look, else 0."),
		bundleExpiry:  desc("trust_bundle_expiry_timestamp_seconds", "The next NotAfter among the certificates of the trust bundle in use."),
		expiry:        desc("earliest_certificate_expiry_timestamp_seconds", "The first NotAfter among the serving certificates seen."),
	}
	for _, result := range []string{"success", "failure"} {
		m.cnValidations.WithLabelValues(result)
		m.bundleReloads.WithLabelValues(result)
	}
	m.reviews.WithLabelValues(string(v1alpha1.ReviewAllowed), "")
	// A series that begins with its first count shows no increase by it.
	for _, decision := range []v1alpha1.ReviewDecision{v1alpha1.ReviewDenied, v1alpha1.ReviewFound} {
		for _, reason := range v1alpha1.ReviewReasons() {
			m.reviews.WithLabelValues(string(decision), string(reason))
		}
	}
	for _, outcome := range verdict.Outcomes() {
		m.probes.WithLabelValues(outcome.String())
	}
	return m
}

// Probed counts one probe and what it was judged to be.
func (m *Metrics) Probed(obs verdict.Observation, v verdict.Verdict) {
	m.probes.WithLabelValues(obs.Outcome.String()).Inc()
	m.probeDuration.Observe(obs.Duration.Seconds())
	switch v.Group() {
	case verdict.GroupVerified:
		m.cnValidations.WithLabelValues("success").Inc()
	case verdict.GroupBreaksWhenEnabled:
		m.cnValidations.WithLabelValues("failure").Inc()
	case verdict.GroupRejectedToday, verdict.GroupUnknown:
	}
}

// bundleState is what the metrics say of the trust bundle.
type bundleState struct {
	loaded bool
	ends   []time.Time // NotAfter of each certificate
}

// BundleChanged counts a change of the trust bundle; bundle is the one in use, err
// why the new one could not be taken over.
func (m *Metrics) BundleChanged(bundle verdict.Bundle, err error) {
	state := &bundleState{loaded: err == nil}
	for _, c := range bundle.Certificates {
		state.ends = append(state.ends, c.NotAfter)
	}
	m.bundle.Store(state)
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.bundleReloads.WithLabelValues(result).Inc()
}

// RequestReviewed counts a request; reason is empty where nothing is wrong.
func (m *Metrics) RequestReviewed(decision v1alpha1.ReviewDecision, reason v1alpha1.ReviewReason) {
	m.reviews.WithLabelValues(string(decision), string(reason)).Inc()
}

// ReviewTook counts how long an answer of the webhook took.
func (m *Metrics) ReviewTook(d time.Duration) { m.reviewTook.Observe(d.Seconds()) }

func (m *Metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{m.cnValidations, m.probes, m.probeDuration, m.bundleReloads, m.reviews, m.reviewTook}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counters() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{
		m.nodes, m.checkFailures, m.failingNode, m.ready, m.oldest, m.interval, m.expiry, m.late, m.bundleSize, m.bundleLoaded, m.bundleExpiry,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(ch)
	}
	now := m.clock.Now()
	s, active := m.snapshot(now, m.maxFailing)
	if !active {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for key, n := range s.nodes {
		gauge(m.nodes, float64(n), key.status.String(), string(key.reason))
	}
	for i, check := range v1alpha1.CheckNames() {
		gauge(m.checkFailures, float64(s.failures[i]), string(check))
	}
	// Worst first: those without evidence are the last, and fail nothing.
	for _, f := range s.Failing[:min(len(s.Failing), s.BreaksWhenEnabled+s.RejectedToday)] {
		gauge(m.failingNode, 1, f.Name, string(f.Reason))
	}
	gauge(m.ready, oneIf(s.Readiness() == verdict.Ready))
	gauge(m.interval, s.interval.Seconds())
	gauge(m.late, float64(s.late))
	if s.oldest != 0 {
		gauge(m.oldest, now.Sub(s.oldest.Time()).Seconds())
	}
	if s.expiry != 0 {
		gauge(m.expiry, float64(s.expiry.time().Unix()))
	}
	m.collectBundle(gauge, now)
}

func (m *Metrics) collectBundle(gauge func(*prometheus.Desc, float64, ...string), now time.Time) {
	bundle := m.bundle.Load()
	if bundle == nil {
		return
	}
	gauge(m.bundleSize, float64(len(bundle.ends)))
	gauge(m.bundleLoaded, oneIf(bundle.loaded))
	var next stamp
	for _, end := range bundle.ends {
		if end.After(now) {
			next = earlier(next, stampOf(end))
		}
	}
	if next != 0 {
		gauge(m.bundleExpiry, float64(next.time().Unix()))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
