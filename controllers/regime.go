package controllers

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// regime is one spec with one trust bundle: what every verdict is reached under.
type regime struct {
	epoch      int64
	audit      types.UID
	generation int64

	interval, timeout time.Duration
	threshold         int
	endpoints         kubelet.Options
	selector          labels.Selector
	policy            verdict.Policy
}

func newRegime(audit *v1alpha1.KubeletCertAudit, bundle verdict.Bundle) (*regime, error) {
	selector := labels.Everything()
	if audit.Spec.NodeSelector != nil {
		s, err := metav1.LabelSelectorAsSelector(audit.Spec.NodeSelector)
		if err != nil {
			return nil, fmt.Errorf("spec.nodeSelector: %w", err)
		}
		selector = s
	}
	return &regime{
		audit: audit.UID, generation: audit.Generation,
		interval:  audit.Spec.Interval.Duration,
		timeout:   audit.Spec.Timeout.Duration,
		threshold: int(audit.Spec.FailureThreshold),
		endpoints: kubelet.Options{
			PreferredAddressTypes: kubelet.AddressTypes(audit.Spec.PreferredAddressTypes),
			Port:                  audit.Spec.KubeletPort,
		},
		selector: selector,
		policy:   verdict.Policy{Bundle: bundle, NewNodeGrace: audit.Spec.NewNodeGrace.Duration},
	}, nil
}

// same says that verdicts under one hold under the other.
func (r *regime) same(other *regime) bool {
	return r != nil && other != nil && r.audit == other.audit && r.generation == other.generation &&
		r.policy.Bundle.SHA256 == other.policy.Bundle.SHA256 && r.policy.Bundle.Source == other.policy.Bundle.Source
}

func (r *regime) selects(node *corev1.Node) bool {
	return r.selector.Matches(labels.Set(node.Labels))
}

// Regimes holds the present regime, nil where there is no audit. The zero value
// is ready to use.
type Regimes struct {
	mu      sync.RWMutex
	current *regime
	epochs  int64
}

func (r *Regimes) get() *regime {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current
}

// set starts a new epoch, or ends the last one with nil. When it returns, no
// write of an earlier epoch is under way.
func (r *Regimes) set(next *regime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next != nil {
		r.epochs++
		next.epoch = r.epochs
	}
	r.current = next
}

// during runs f while the regime is the present one, and says whether it was.
func (r *Regimes) during(present *regime, f func() error) (bool, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.current != present {
		return false, nil
	}
	return true, f()
}
