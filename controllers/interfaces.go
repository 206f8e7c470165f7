// Package controllers decides when: when a node is probed, when its verdict is
// reached again, when the audit's status is written. What is right it asks
// internal/verdict; sockets, writes and series it reaches through the small
// interfaces below.
package controllers

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Prober performs one handshake. It errs only when ctx ends.
type Prober interface {
	Probe(ctx context.Context, endpoint verdict.Endpoint, timeout time.Duration) (verdict.Observation, error)
}

// Recorder writes a verdict to its Node, if it is not there yet, and says
// whether its status or reason is new there.
type Recorder interface {
	Record(ctx context.Context, node *corev1.Node, v verdict.Verdict) (bool, error)
	Clear(ctx context.Context, node *corev1.Node) error
}

// Ledger knows every Node and its last verdict. A verdict counts only in the
// epoch that it belongs to. Put says whether what is counted is another one now.
type Ledger interface {
	Track(name string, id verdict.Identity, created time.Time) (isNew bool)
	Names() []string
	Forget(name string)
	Begin(epoch int64, interval time.Duration)
	Limit(limit verdict.Readiness)
	End()
	Put(name string, id verdict.Identity, epoch int64, v verdict.Verdict, looked time.Time) (changed bool)
	Exclude(name string, id verdict.Identity, epoch int64)
	Summarize(now time.Time, most int) verdict.Summary
}

// Counters count what happens.
type Counters interface {
	Probed(obs verdict.Observation, v verdict.Verdict)
	BundleChanged(bundle verdict.Bundle, err error)
}

// Bundles reads the trust bundle that a spec names; nil means the default. It
// may return the last good bundle together with an error.
type Bundles interface {
	Load(ctx context.Context, source *v1alpha1.TrustBundleSource) (verdict.Bundle, error)
}

// APIServers says how kube-apiserver is configured to verify kubelets, as far as
// that can be seen.
type APIServers interface {
	Look(ctx context.Context) (verdict.APIServers, error)
}

// RequestReviewer says what is wrong with a request that exists.
type RequestReviewer interface {
	ReviewRequest(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error
}
