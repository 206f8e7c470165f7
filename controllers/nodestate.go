package controllers

import (
	"bytes"
	"crypto/x509"
	"hash/fnv"
	"hash/maphash"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/compact"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// nodeState is what the process remembers of one Node, in few bytes, since there
// may be very many. Only the reconcile of that Node, of which there is one at a
// time, touches it.
type nodeState struct {
	slot // in the schedule, which guards it
	memory
}

type memory struct {
	// subject is a digest of the Node's UID and endpoint.
	subject uint64
	epoch   int64
	// latest observation, and the latest one that was evidence: mostly the same.
	latest, evidence *seen
	// path that was verified last.
	path *verdict.Path
	// looked at last, if ever.
	looked    compact.Instant
	nextProbe compact.Instant
	settled   verdict.Settled
	// written is a digest of the version of the Node on which the last transition
	// was recorded: as long as the cache shows that one, it does not show ours.
	written  uint64
	notReady bool
	// request is what had become of the node's latest one.
	request verdict.RequestState
}

// pickUp is how long a kubelet may take to serve what was issued to it, which it
// watches for.
const pickUp = 5 * time.Second

// seed of the digests: without it, nobody can aim at one.
var seed = maphash.MakeSeed()

func subjectOf(uid types.UID, endpoint verdict.Endpoint) uint64 {
	return maphash.Comparable(seed, struct {
		uid      types.UID
		endpoint verdict.Endpoint
	}{uid, endpoint})
}

// seen is an observation that is kept until the next one.
type seen struct {
	outcome   verdict.Outcome
	keyProven bool
	version   uint16 // of TLS
	detail    string
	smaller   *verdict.Observation
	chain     string // in DER, on the shelf; "" without certificates
}

// certificates of all nodes.
var certificates compact.Shelf

// keep an observation. Certificates that were known before stay where they are.
func keep(obs verdict.Observation, known *seen) *seen {
	s := &seen{outcome: obs.Outcome, keyProven: obs.KeyProven, version: obs.TLSVersion, detail: obs.Detail, smaller: obs.Smaller}
	if len(obs.Chain) == 0 {
		return s
	}
	var der []byte
	for _, c := range obs.Chain {
		der = append(der, c.Raw...)
	}
	if known != nil && known.chain != "" && bytes.Equal(certificates.Unpack(known.chain), der) {
		s.chain = known.chain
	} else {
		s.chain = certificates.Pack(der)
	}
	return s
}

// full is the observation as it was made, but for its duration; the zero one
// where there is none.
func (s *seen) full() verdict.Observation {
	if s == nil {
		return verdict.Observation{}
	}
	obs := verdict.Observation{Outcome: s.outcome, KeyProven: s.keyProven, TLSVersion: s.version, Detail: s.detail, Smaller: s.smaller}
	if s.chain == "" {
		return obs
	}
	if chain, err := x509.ParseCertificates(certificates.Unpack(s.chain)); err == nil { // as it did before
		obs.Chain = chain
	}
	return obs
}

// adopt takes over what is new about the Node or the regime, and forgets what
// no longer holds: everything of another Node or endpoint; of another regime
// only the verdict, since what was seen can be judged again.
func (s *nodeState) adopt(node *corev1.Node, exp verdict.Expectation, r *regime, now time.Time) {
	if subject := subjectOf(node.UID, exp.Endpoint); s.subject != subject {
		s.memory = memory{subject: subject}
	}
	if s.notReady && !exp.NotReady && !s.settled.Evidence() {
		s.nextProbe = compact.InstantOf(now) // a kubelet that has just come up is worth a look
	}
	s.notReady = exp.NotReady
	if s.request != exp.Request.State && exp.Request.State == verdict.RequestIssued && s.settled.Status != verdict.True {
		// Whoever approved it is waiting to see that.
		s.nextProbe = min(s.nextProbe, compact.InstantOf(now.Add(pickUp)))
	}
	s.request = exp.Request.State
	if s.epoch == r.epoch {
		return
	}
	s.epoch = r.epoch
	s.settled = verdict.Settled{}
	if r.policy.Bundle.Empty() {
		s.latest, s.evidence = nil, nil
	}
	if s.latest != nil && s.latest.outcome != verdict.OutcomeNone {
		s.settled = s.settled.Next(s.judge(exp, s.latest.full(), r, now), r.threshold)
		s.evidence = s.latest
		s.nextProbe = compact.InstantOf(nextSlot(node.UID, r.interval, now))
		return
	}
	s.nextProbe = compact.InstantOf(now)
}

// judge asks the one who decides, and spares what was verified before.
func (s *nodeState) judge(exp verdict.Expectation, obs verdict.Observation, r *regime, now time.Time) verdict.Verdict {
	policy := r.policy
	policy.Known = s.path
	v := verdict.Judge(exp, obs, policy, now)
	if v.Path != nil {
		s.path = v.Path
	}
	return v
}

// observe takes the result of a fresh probe, and gives the verdict on that and
// the one that stands.
func (s *nodeState) observe(node *corev1.Node, obs verdict.Observation, exp verdict.Expectation, r *regime, now, retry time.Time) (fresh, stands verdict.Verdict) {
	fresh = s.judge(exp, obs, r, now)
	s.latest, s.looked = keep(obs, s.evidence), compact.InstantOf(now)
	if fresh.Evidence() {
		s.evidence = s.latest
	}
	s.settled = s.settled.Next(fresh, r.threshold)
	slot := nextSlot(node.UID, r.interval, now)
	young := !fresh.NextLook.IsZero() && fresh.Reason == v1alpha1.ReasonNoServingCertificate
	if !fresh.Evidence() && (s.settled.Misses < r.threshold || young) && retry.Before(slot) && obs.Outcome != verdict.OutcomeNone {
		slot = retry
	}
	s.nextProbe = compact.InstantOf(slot)
	if fresh.Evidence() == s.settled.Evidence() {
		return fresh, fresh
	}
	return fresh, s.look(exp, r, now)
}

// look judges again what was seen before: time alone may have changed it.
func (s *nodeState) look(exp verdict.Expectation, r *regime, now time.Time) verdict.Verdict {
	seen := s.latest
	if s.settled.Evidence() {
		seen = s.evidence
	}
	v := s.judge(exp, seen.full(), r, now)
	s.settled.Status, s.settled.Reason = v.Status, v.Reason
	return v
}

// next is in how long the node, of which this verdict stands, needs attention
// without an event. Probes are due by the clock that nobody sets, looks by that of
// certificates, and only as waits can the two be compared.
func (s *nodeState) next(v verdict.Verdict, now time.Time) time.Duration {
	wait := s.nextProbe.Time().Sub(now)
	if !v.NextLook.IsZero() {
		wait = min(wait, v.NextLook.Sub(now))
	}
	return wait
}

// nextSlot spreads the nodes over the interval by a hash of their UID, so that
// the load is flat; the slot is after now and at most one interval away. It keeps
// now's monotonic reading, so that a step of the clock moves no probe.
func nextSlot(uid types.UID, interval time.Duration, now time.Time) time.Time {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid))
	phase := time.Duration(h.Sum64() % uint64(interval))
	ahead := now.Truncate(interval).Add(phase).Sub(now)
	if ahead <= 0 {
		ahead += interval
	}
	return now.Add(ahead)
}
