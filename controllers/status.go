package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// answer is what the status is made of.
type answer struct {
	summary   verdict.Summary
	regime    *regime
	bundleErr error
	servers   verdict.APIServersAnswer
	// takeOver: the process has led under one regime only, and has not probed
	// every node yet.
	takeOver bool
	now      time.Time
}

// writeStatus fills in the status; LastSweepTime is the caller's.
func writeStatus(audit *v1alpha1.KubeletCertAudit, a answer) {
	ready := readyCondition(audit, a) // reads the status as it stands
	s := &audit.Status
	s.ObservedGeneration = a.regime.generation
	s.Nodes = v1alpha1.NodeCounts{
		Total: int32(a.summary.Total()), Verified: int32(a.summary.Verified),
		BreaksWhenEnabled: int32(a.summary.BreaksWhenEnabled), RejectedToday: int32(a.summary.RejectedToday),
		Unknown: int32(a.summary.Unknown), Excluded: int32(a.summary.Excluded),
	}
	s.FailingNodes = slices.Clone(a.summary.Failing)
	bundle := a.regime.policy.Bundle
	s.TrustBundle = v1alpha1.TrustBundleStatus{
		Source: bundle.Source, SHA256: bundle.SHA256,
		Certificates: int32(len(bundle.Certificates)), Warnings: warnings(bundle, a.bundleErr),
	}
	if ready != nil {
		meta.SetStatusCondition(&s.Conditions, *ready)
	}
	meta.SetStatusCondition(&s.Conditions, bundleCondition(a))
	meta.SetStatusCondition(&s.Conditions, serversCondition(a))
}

// readyCondition is nil where the condition stays as it stands.
func readyCondition(audit *v1alpha1.KubeletCertAudit, a answer) *metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.AuditReadyToEnforce, ObservedGeneration: a.regime.generation}
	switch {
	case a.summary.RejectedToday > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.AuditReasonNodesRejectedToday
	case a.summary.BreaksWhenEnabled > 0:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.AuditReasonNodesWouldBreak
	case a.summary.Limit == verdict.NotReady:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.AuditReasonFlagMissing
	case a.takeOver && a.summary.Limit != verdict.ReadinessUnknown && stands(audit, a):
		return nil
	case a.summary.Total() == 0 && a.summary.Excluded == 0:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.AuditReasonNoNodes
	case a.summary.Unknown > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.AuditReasonNodesUnknown
	case a.summary.Overdue:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.AuditReasonSweepOverdue
	case a.summary.Limit == verdict.ReadinessUnknown:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.AuditReasonAPIServerDiffers
	case a.summary.Excluded > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.AuditReasonNodesExcluded
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.AuditReasonAllNodesVerified
	}
	c.Message = readyMessage(audit, a)
	return &c
}

// stands says that what a predecessor wrote is recent, and about this spec, this
// bundle and these nodes, so that it may stand until each node was probed once
// more. Times are in whole seconds: a Node of the sweep's own second may have
// come after it.
func stands(audit *v1alpha1.KubeletCertAudit, a answer) bool {
	c := meta.FindStatusCondition(audit.Status.Conditions, v1alpha1.AuditReadyToEnforce)
	return c != nil && c.ObservedGeneration == a.regime.generation &&
		audit.Status.TrustBundle.SHA256 == a.regime.policy.Bundle.SHA256 &&
		audit.Status.TrustBundle.Source == a.regime.policy.Bundle.Source &&
		int(audit.Status.Nodes.Total) == a.summary.Total() && audit.Status.LastSweepTime != nil &&
		!verdict.Overdue(audit.Status.LastSweepTime.Time, a.regime.interval, a.now) &&
		a.summary.NewestNode.Before(audit.Status.LastSweepTime.Time)
}

func readyMessage(audit *v1alpha1.KubeletCertAudit, a answer) string {
	s := a.summary
	text := s.Sentence()
	if s.Excluded > 0 {
		text += fmt.Sprintf("; %d more are left out by spec.nodeSelector, but the API server's switch is for all", s.Excluded)
	}
	if audit.Spec.TrustBundle == nil {
		text += "; judged by the cluster CA: the API server's own --kubelet-certificate-authority was not read"
	}
	if verdict.Ready.AtBest(s.Limit) != verdict.Ready {
		text += "; " + a.servers.Message
	}
	return text
}

func bundleCondition(a answer) metav1.Condition {
	bundle := a.regime.policy.Bundle
	c := metav1.Condition{
		Type: v1alpha1.AuditTrustBundleLoaded, ObservedGeneration: a.regime.generation,
		Status: metav1.ConditionTrue, Reason: v1alpha1.AuditReasonLoaded,
		Message: verdict.Count(len(bundle.Certificates), "certificate") + " from " + bundle.Source,
	}
	switch {
	case a.bundleErr != nil && bundle.Empty():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.AuditReasonNotLoaded, a.bundleErr.Error()
	case a.bundleErr != nil:
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.AuditReasonKeptLastGood
		c.Message = a.bundleErr.Error() + "; the last good copy stays in use"
	case bundle.Skipped > 0:
		c.Reason = v1alpha1.AuditReasonSomeUnreadable
		c.Message = fmt.Sprintf("%s; %d blocks were skipped, see status.trustBundle.warnings", c.Message, bundle.Skipped)
	}
	return c
}

func serversCondition(a answer) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.AuditKubeletCA, ObservedGeneration: a.regime.generation,
		Status: metav1.ConditionStatus(a.servers.Status.String()), Reason: a.servers.Reason, Message: a.servers.Message,
	}
}

// maxWarnings in the status; the rest is counted.
const maxWarnings = 10

func warnings(bundle verdict.Bundle, err error) []string {
	list := slices.Clone(bundle.Warnings)
	if len(list) > maxWarnings {
		list = append(list[:maxWarnings], fmt.Sprintf("and %d more", len(bundle.Warnings)-maxWarnings))
	}
	if err != nil {
		list = append(list, err.Error())
	}
	return list
}

// sameAnswer says that the conditions are the same and only counts differ.
func sameAnswer(before, after *v1alpha1.KubeletCertAudit) bool {
	same := len(before.Status.Conditions) == len(after.Status.Conditions) &&
		before.Status.ObservedGeneration == after.Status.ObservedGeneration
	for _, c := range after.Status.Conditions {
		old := meta.FindStatusCondition(before.Status.Conditions, c.Type)
		same = same && old != nil && old.Status == c.Status && old.Reason == c.Reason
	}
	return same
}

func hasCondition(node *corev1.Node) bool {
	return kubelet.Condition(node, v1alpha1.ConditionServingCertificateValid) != nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func logBundle(ctx context.Context, bundle verdict.Bundle, err error) {
	logger := log.FromContext(ctx)
	switch {
	case err != nil && bundle.Empty():
		logger.Error(err, "no trust bundle: every node is Unknown")
	case err != nil:
		logger.Error(err, "the trust bundle is broken: the last good copy stays in use", "sha256", bundle.SHA256)
	default:
		logger.Info("trust bundle", "source", bundle.Source, "certificates", len(bundle.Certificates), "sha256", bundle.SHA256)
	}
	for _, w := range bundle.Warnings {
		logger.Info("trust bundle warning", "warning", w)
	}
}
