package verdict

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// Readiness of a cluster: is it safe to turn the CN check on?
type Readiness string

// The three answers of a cluster.
const (
	// Ready: at least one node, and all are verified.
	Ready Readiness = "Ready"
	// NotReady: at least one node would be refused.
	NotReady Readiness = "NotReady"
	// ReadinessUnknown: neither; also where there is no node at all.
	ReadinessUnknown Readiness = "Unknown"
)

// What says which checks decide an answer.
type What string

const (
	// WhatBoth: every check.
	WhatBoth What = "both"
	// WhatTLS: all but CommonName, that is, what happens today.
	WhatTLS What = "tls"
	// WhatCN: CommonName alone; a node whose Chain is not Pass never succeeds.
	WhatCN What = "cn"
)

// Answer is the verdict as far as the chosen checks go.
func (v Verdict) Answer(what What) Status {
	switch what {
	case WhatTLS:
		if v.Group() == GroupBreaksWhenEnabled {
			return True
		}
		return v.Status
	case WhatCN:
		return v.commonNameAnswer()
	case WhatBoth:
	}
	return v.Status
}

// Tally counts verdicts. The zero Tally is ready to use; it is not safe for
// concurrent use.
type Tally struct {
	Verified, BreaksWhenEnabled, RejectedToday, Unknown int
	// Excluded nodes were left out on purpose; they are in no other count.
	Excluded int
}

// Add counts one verdict.
func (t *Tally) Add(g Group) {
	switch g {
	case GroupVerified:
		t.Verified++
	case GroupBreaksWhenEnabled:
		t.BreaksWhenEnabled++
	case GroupRejectedToday:
		t.RejectedToday++
	case GroupUnknown:
		t.Unknown++
	}
}

// Total of the nodes that were judged.
func (t Tally) Total() int {
	return t.Verified + t.BreaksWhenEnabled + t.RejectedToday + t.Unknown
}

// Sentence says the counts in words, without the nodes that were left out.
func (t Tally) Sentence() string {
	return fmt.Sprintf("of %s %d are verified, %d would break once the CN check is on, %d are refused today, %d are unknown",
		Count(t.Total(), "node"), t.Verified, t.BreaksWhenEnabled, t.RejectedToday, t.Unknown)
}

// Readiness of the counted nodes: zero evidence is never Ready, and nodes that
// were left out make it Unknown at best, since kube-apiserver's switch is for
// all.
func (t Tally) Readiness() Readiness {
	switch {
	case t.BreaksWhenEnabled+t.RejectedToday > 0:
		return NotReady
	case t.Unknown > 0 || t.Excluded > 0 || t.Total() == 0:
		return ReadinessUnknown
	}
	return Ready
}

// AtBest is the worse one of two.
func (r Readiness) AtBest(limit Readiness) Readiness {
	for _, worst := range []Readiness{NotReady, ReadinessUnknown} {
		if r == worst || limit == worst {
			return worst
		}
	}
	return Ready
}

// Summary is what a ledger of verdicts says about a cluster.
type Summary struct {
	Tally
	// NotProbedYet nodes have no verdict under the present settings; they are
	// part of Unknown.
	NotProbedYet int
	// Failing nodes, that is, those that are not verified, worst first; as many
	// of them as were asked for.
	Failing []v1alpha1.FailingNode
	// OldestLook is when the node that was looked at longest ago was looked at;
	// zero while there is one that was not.
	OldestLook time.Time
	// Overdue: a node was looked at too long ago for its verdict to hold.
	Overdue bool
	// Limit is what kube-apiserver's own flags allow at best; "" is no limit.
	Limit Readiness
	// NewestNode is the latest creation time of a Node.
	NewestNode time.Time
}

// Readiness of the nodes within the limit, which verdicts that are overdue make
// Unknown at best.
func (s Summary) Readiness() Readiness {
	ready := s.Tally.Readiness().AtBest(s.Limit)
	if s.Overdue {
		return ready.AtBest(ReadinessUnknown)
	}
	return ready
}

// Overdue says that a look is older than three intervals, so that it cannot
// vouch for the present.
func Overdue(look time.Time, interval time.Duration, now time.Time) bool {
	return now.Sub(look) > 3*interval
}

// ReadinessOf the answers of all nodes for the chosen checks only, which is what
// decides an exit code.
func ReadinessOf(answers []Status) Readiness {
	switch {
	case slices.Contains(answers, False):
		return NotReady
	case slices.Contains(answers, Unknown) || len(answers) == 0:
		return ReadinessUnknown
	}
	return Ready
}

func (v Verdict) commonNameAnswer() Status {
	switch v.Check(v1alpha1.CheckCommonName).Result {
	case Fail:
		return False
	case Pass:
		if v.Check(v1alpha1.CheckChain).Result == Pass {
			return True
		}
	case NotRun:
	}
	return Unknown
}
