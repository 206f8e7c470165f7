package verdict_test

import (
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

func TestTheZeroVerdictIsUnknown(t *testing.T) {
	var v verdict.Verdict
	if v.Status.String() != "Unknown" || v.Group() != verdict.GroupUnknown || v.Evidence() {
		t.Errorf("%v %v", v.Status, v.Group())
	}
	if r := v.Check(v1alpha1.CheckChain).Result; r != verdict.NotRun || r.String() != "NotRun" {
		t.Errorf("a check that did not run is %v", r)
	}
}

func TestReadiness(t *testing.T) {
	for name, c := range map[string]struct {
		tally verdict.Tally
		want  verdict.Readiness
	}{
		"no node at all":         {verdict.Tally{}, verdict.ReadinessUnknown},
		"all verified":           {verdict.Tally{Verified: 2}, verdict.Ready},
		"one unknown":            {verdict.Tally{Verified: 2, Unknown: 1}, verdict.ReadinessUnknown},
		"one breaks":             {verdict.Tally{Verified: 2, Unknown: 1, BreaksWhenEnabled: 1}, verdict.NotReady},
		"one rejected":           {verdict.Tally{Verified: 2, RejectedToday: 1, Excluded: 4}, verdict.NotReady},
		"one excluded":           {verdict.Tally{Verified: 2, Excluded: 1}, verdict.ReadinessUnknown},
		"only excluded":          {verdict.Tally{Excluded: 1}, verdict.ReadinessUnknown},
		"nothing but unknown":    {verdict.Tally{Unknown: 1}, verdict.ReadinessUnknown},
		"zero evidence, no pass": {verdict.Tally{Unknown: 100}, verdict.ReadinessUnknown},
	} {
		if got := c.tally.Readiness(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestAnswerForAChoiceOfChecks(t *testing.T) {
	check := func(chain, cn verdict.Result) []verdict.Check {
		return []verdict.Check{{Name: v1alpha1.CheckChain, Result: chain}, {Name: v1alpha1.CheckCommonName, Result: cn}}
	}
	for name, c := range map[string]struct {
		v             verdict.Verdict
		both, tls, cn verdict.Status
	}{
		"verified": {verdict.Verdict{Status: verdict.True, Checks: check(verdict.Pass, verdict.Pass)}, verdict.True, verdict.True, verdict.True},
		"only the name differs": {
			verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonCommonNameMismatch, Checks: check(verdict.Pass, verdict.Fail)},
			verdict.False, verdict.True, verdict.False,
		},
		"expired, but the name and chain are right": {
			verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonCertificateExpired, Checks: check(verdict.Pass, verdict.Pass)},
			verdict.False, verdict.False, verdict.True,
		},
		"foreign CA, right name": {
			verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonUnknownAuthority, Checks: check(verdict.Fail, verdict.Pass)},
			verdict.False, verdict.False, verdict.Unknown,
		},
		"no CA, wrong name": {
			verdict.Verdict{Reason: v1alpha1.ReasonNoTrustBundle, Checks: check(verdict.NotRun, verdict.Fail)},
			verdict.Unknown, verdict.Unknown, verdict.False,
		},
		"no CA, right name": {
			verdict.Verdict{Reason: v1alpha1.ReasonNoTrustBundle, Checks: check(verdict.NotRun, verdict.Pass)},
			verdict.Unknown, verdict.Unknown, verdict.Unknown,
		},
		"silent": {verdict.Verdict{Reason: v1alpha1.ReasonProbeTimeout}, verdict.Unknown, verdict.Unknown, verdict.Unknown},
	} {
		for what, want := range map[verdict.What]verdict.Status{verdict.WhatBoth: c.both, verdict.WhatTLS: c.tls, verdict.WhatCN: c.cn} {
			if got := c.v.Answer(what); got != want {
				t.Errorf("%s, --what %s: %v, want %v", name, what, got, want)
			}
		}
	}
}

func TestReadinessOfNoAnswerIsUnknown(t *testing.T) {
	if got := verdict.ReadinessOf(nil); got != verdict.ReadinessUnknown {
		t.Error(got)
	}
	mixed := []verdict.Status{verdict.True, verdict.Unknown, verdict.False}
	if got := verdict.ReadinessOf(mixed); got != verdict.NotReady {
		t.Error(got)
	}
	if got := verdict.ReadinessOf(mixed[:2]); got != verdict.ReadinessUnknown {
		t.Error(got)
	}
	if got := verdict.ReadinessOf(mixed[:1]); got != verdict.Ready {
		t.Error(got)
	}
}

func TestSettledHoldsThroughAFewMisses(t *testing.T) {
	yes := verdict.Verdict{Status: verdict.True, Reason: v1alpha1.ReasonVerified}
	no := verdict.Verdict{Status: verdict.False, Reason: v1alpha1.ReasonCommonNameMismatch}
	miss := verdict.Verdict{Reason: v1alpha1.ReasonProbeTimeout}
	for name, c := range map[string]struct {
		feed []verdict.Verdict
		want verdict.Verdict
	}{
		"the first miss of a node counts at once": {[]verdict.Verdict{miss}, miss},
		"two misses of three":                     {[]verdict.Verdict{yes, miss, miss}, yes},
		"three misses of three":                   {[]verdict.Verdict{yes, miss, miss, miss}, miss},
		"a False is held too":                     {[]verdict.Verdict{no, miss, miss}, no},
		"misses in between do not add up":         {[]verdict.Verdict{yes, miss, miss, yes, miss, miss}, yes},
		"False applies at once":                   {[]verdict.Verdict{yes, no}, no},
		"True applies at once":                    {[]verdict.Verdict{no, yes}, yes},
		"no address applies at once":              {[]verdict.Verdict{yes, {Reason: v1alpha1.ReasonNoAddress}}, verdict.Verdict{Reason: v1alpha1.ReasonNoAddress}},
		"an address not allowed applies at once":  {[]verdict.Verdict{yes, {Reason: v1alpha1.ReasonAddressNotAllowed}}, verdict.Verdict{Reason: v1alpha1.ReasonAddressNotAllowed}},
		"no bundle applies at once":               {[]verdict.Verdict{yes, {Reason: v1alpha1.ReasonNoTrustBundle}}, verdict.Verdict{Reason: v1alpha1.ReasonNoTrustBundle}},
	} {
		var s verdict.Settled
		for _, v := range c.feed {
			s = s.Next(v, 3)
		}
		if s.Status != c.want.Status || s.Reason != c.want.Reason {
			t.Errorf("%s: %s %s, want %s %s", name, s.Status, s.Reason, c.want.Status, c.want.Reason)
		}
	}
}

// What is known of kube-apiserver can make an answer worse, and never better.
func TestReadyIsWithinWhatKubeAPIServerAllows(t *testing.T) {
	verified, breaks, unknown := verdict.Tally{Verified: 2}, verdict.Tally{Verified: 1, BreaksWhenEnabled: 1}, verdict.Tally{Verified: 1, Unknown: 1}
	for _, c := range []struct {
		limit                     verdict.Readiness
		verified, breaks, unknown verdict.Readiness
	}{
		{"", verdict.Ready, verdict.NotReady, verdict.ReadinessUnknown},
		{verdict.Ready, verdict.Ready, verdict.NotReady, verdict.ReadinessUnknown},
		{verdict.ReadinessUnknown, verdict.ReadinessUnknown, verdict.NotReady, verdict.ReadinessUnknown},
		{verdict.NotReady, verdict.NotReady, verdict.NotReady, verdict.NotReady},
	} {
		for tally, want := range map[verdict.Tally]verdict.Readiness{verified: c.verified, breaks: c.breaks, unknown: c.unknown} {
			if got := (verdict.Summary{Tally: tally, Limit: c.limit}).Readiness(); got != want {
				t.Errorf("%+v, at best %q: %s, want %s", tally, c.limit, got, want)
			}
		}
	}
}
