package controllers

import (
	"crypto/x509"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// nodeState is what the process remembers of one Node. Only the reconcile of
// that Node, of which there is one at a time, touches it.
type nodeState struct {
	slot     *slot
	uid      types.UID
	endpoint verdict.Endpoint
	epoch    int64
	notReady bool

	// latest observation, and the latest one that was evidence: mostly the same.
	latest, evidence *seen
	// path that was verified last.
	path      *verdict.Path
	looked    time.Time
	nextProbe time.Time
	settled   verdict.Settled
	counted   counted
	// written is the version of the Node on which the last transition was
	// recorded: as long as the cache shows that one, it does not show ours.
	written string
}

// seen is an observation that is kept between two looks: certificates take a
// fifth of the memory in DER.
type seen struct {
	verdict.Observation
	der []byte // of all certificates, one after the other
}

func (s *seen) compact() {
	if s == nil {
		return
	}
	for _, c := range s.Chain {
		s.der = append(s.der, c.Raw...)
	}
	s.der, s.Chain = slices.Clip(s.der), nil
}

// full is the observation as it was made; the zero one where there is none.
func (s *seen) full() verdict.Observation {
	if s == nil {
		return verdict.Observation{}
	}
	obs := s.Observation
	if chain, err := x509.ParseCertificates(s.der); err == nil && len(s.der) > 0 { // as it did before
		obs.Chain = chain
	}
	return obs
}

// compact drops what the next look can find again.
func (s *nodeState) compact() {
	s.latest.compact()
	s.evidence.compact()
	v := s.settled.Verdict
	s.settled.Verdict = verdict.Verdict{Status: v.Status, Reason: v.Reason, NextLook: v.NextLook}
}

// counted is what the audit's counts were last told.
type counted struct {
	epoch  int64
	status verdict.Status
	reason v1alpha1.Reason
}

// adopt takes over what is new about the Node or the regime, and forgets what
// no longer holds: everything of another Node or endpoint; of another regime
// only the verdict, since what was seen can be judged again.
func (s *nodeState) adopt(node *corev1.Node, exp verdict.Expectation, r *regime, now time.Time) {
	if s.uid != node.UID || s.endpoint != exp.Endpoint {
		*s = nodeState{slot: s.slot, uid: node.UID, endpoint: exp.Endpoint}
	}
	if s.notReady && !exp.NotReady && !s.settled.Verdict.Evidence() {
		s.nextProbe = now // a kubelet that has just come up is worth a look
	}
	s.notReady = exp.NotReady
	if s.epoch == r.epoch {
		return
	}
	s.epoch = r.epoch
	s.settled = verdict.Settled{}
	if r.policy.Bundle.Empty() {
		s.latest, s.evidence = nil, nil
	}
	if s.latest != nil && s.latest.Outcome != verdict.OutcomeNone {
		s.settled = s.settled.Next(s.judge(exp, s.latest.full(), r, now), r.threshold)
		s.evidence = s.latest
		s.nextProbe = nextSlot(s.uid, r.interval, now)
		return
	}
	s.nextProbe = now
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

// observe takes the result of a fresh probe.
func (s *nodeState) observe(obs verdict.Observation, exp verdict.Expectation, r *regime, now, retry time.Time) verdict.Verdict {
	v := s.judge(exp, obs, r, now)
	s.latest, s.looked = &seen{Observation: obs}, now
	if v.Evidence() {
		s.evidence = s.latest
	}
	s.settled = s.settled.Next(v, r.threshold)
	if !v.Evidence() && s.settled.Verdict.Evidence() { // it stands for now
		s.settled.Verdict = s.judge(exp, s.evidence.full(), r, now)
	}
	s.nextProbe = nextSlot(s.uid, r.interval, now)
	young := !v.NextLook.IsZero() && v.Reason == v1alpha1.ReasonNoServingCertificate
	if !v.Evidence() && (s.settled.Misses < r.threshold || young) && retry.Before(s.nextProbe) && obs.Outcome != verdict.OutcomeNone {
		s.nextProbe = retry
	}
	return v
}

// look judges again what was seen before: time alone may have changed it.
func (s *nodeState) look(exp verdict.Expectation, r *regime, now time.Time) {
	if s.settled.Verdict.Evidence() {
		s.settled.Verdict = s.judge(exp, s.evidence.full(), r, now)
		return
	}
	s.settled.Verdict = s.judge(exp, s.latest.full(), r, now)
}

// next is when the node needs attention without an event.
func (s *nodeState) next() time.Time {
	if look := s.settled.Verdict.NextLook; !look.IsZero() && look.Before(s.nextProbe) {
		return look
	}
	return s.nextProbe
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
