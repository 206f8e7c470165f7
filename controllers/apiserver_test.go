package controllers_test

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

var _ = Describe("kube-apiserver's flags", func() {
	It("are read where its Pods may be listed, and forbid a Ready without a CA or about other addresses", func(ctx SpecContext) {
		join(ctx, "flags", "good")
		createAudit(ctx, nil)
		start(ctx, nil)
		configured := func(ctx context.Context) string { return auditCondition(getAudit(ctx), v1alpha1.AuditKubeletCA) }
		// A new spec is a new look.
		again := func(ctx context.Context) string {
			editSpec(ctx, func(s *v1alpha1.KubeletCertAuditSpec) { s.Interval.Duration += time.Second })
			var answer string
			Eventually(ctx, func(ctx context.Context) int64 {
				audit := getAudit(ctx)
				answer = auditCondition(audit, v1alpha1.AuditKubeletCA)
				return audit.Generation - audit.Status.ObservedGeneration
			}).Should(BeZero())
			return answer
		}
		Eventually(ctx, configured).Should(Equal("Unknown NotAllowed"))
		Eventually(ctx, ready).Should(Equal("True AllNodesVerified"))

		dir := filepath.Join("..", "config", "apiserver-flags")
		kubectl(ctx, "apply", "-k", dir)
		DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "delete", "-k", dir) }, NodeTimeout(time.Minute))
		Eventually(ctx, again).Should(Equal("Unknown NotVisible"))

		serverPod(ctx, "a", "--kubelet-certificate-authority=/ca.crt", "--kubelet-preferred-address-types=InternalIP")
		Expect(again(ctx)).To(Equal("True FlagSet"))
		Eventually(ctx, ready).Should(Equal("True AllNodesVerified"))

		bare := serverPod(ctx, "b", "--kubelet-preferred-address-types=InternalIP")
		Expect(again(ctx)).To(Equal("False FlagMissing"))
		Eventually(ctx, ready).Should(Equal("False FlagMissing"))
		Expect(series("ready_to_enforce")).To(HaveKeyWithValue("", 0.0))

		Expect(kube.Delete(ctx, bare, client.GracePeriodSeconds(0))).To(Succeed())
		Expect(again(ctx)).To(Equal("True FlagSet"))
		Eventually(ctx, ready).Should(Equal("True AllNodesVerified"))

		serverPod(ctx, "c", "--kubelet-certificate-authority=/ca.crt")
		Expect(again(ctx)).To(Equal("True FlagSet"))
		Eventually(ctx, ready).Should(Equal("Unknown APIServerDiffers"))
		Expect(series("ready_to_enforce")).To(HaveKeyWithValue("", 0.0))
	}, limit)
})

// serverPod makes a Pod as a kubelet does for a static one.
func serverPod(ctx context.Context, name string, args ...string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-" + name, Namespace: "kube-system", Labels: map[string]string{"component": "kube-apiserver"}},
		Spec: corev1.PodSpec{
			NodeName:   "flags",
			Containers: []corev1.Container{{Name: "kube-apiserver", Image: "kube-apiserver", Command: append([]string{"kube-apiserver"}, args...)}},
		},
	}
	Expect(kube.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(kube.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
	}, NodeTimeout(time.Minute))
	return pod
}
