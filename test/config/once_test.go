package config_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

// One look at two simulated kubelets, as the Job has it and as the plugin.
var _ = Describe("one look", Ordered, func() {
	const good, bare = "good", "bare-node-name"
	var programs, ca string

	BeforeAll(func(ctx SpecContext) {
		programs = GinkgoT().TempDir()
		build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(programs, "kubectl-kubelet_certs"), "../..")
		out, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(os.Symlink("kubectl-kubelet_certs", filepath.Join(programs, "kubectl_complete-kubelet_certs"))).To(Succeed())
		GinkgoT().Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))

		world := certs.NewWorld(time.Now())
		ca = filepath.Join(programs, "kubelet-ca.crt")
		Expect(os.WriteFile(ca, world.CA.PEM(), 0o600)).To(Succeed())
		kubelets, err := fleet.Start()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(kubelets.Close()).To(Succeed()) })
		defects := slices.DeleteFunc(certs.Defects(), func(d certs.Defect) bool { return d.Name != good && d.Name != bare })
		for _, m := range fleet.Populate(kubelets, world, defects, len(defects)) {
			node, err := client.CoreV1().Nodes().Create(ctx, m.Node, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			node.Status = m.Node.Status
			// The Job's address types begin with names, which nobody resolves here.
			node.Status.Addresses = slices.DeleteFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type != corev1.NodeInternalIP })
			_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "", "delete", "node", good, bare) }, NodeTimeout(time.Minute))
	}, NodeTimeout(2*time.Minute))

	Describe("of config/job", Ordered, func() {
		var job *batchv1.Job
		// run is the Job's container, with its ServiceAccount's rights.
		run := func(ctx context.Context, selector string) (code int, report answer, stderr string) {
			GinkgoHelper()
			cfg, err := cp.ServiceAccountConfig(ctx, job.Namespace, job.Spec.Template.Spec.ServiceAccountName)
			Expect(err).NotTo(HaveOccurred())
			kubeconfig := filepath.Join(programs, "job.kubeconfig")
			Expect(cp.WriteKubeconfig(kubeconfig, cfg)).To(Succeed())
			args := slices.Clone(job.Spec.Template.Spec.Containers[0].Args)
			for i, arg := range args { // mounted in a Pod
				args[i] = strings.Replace(arg, "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", ca, 1)
			}
			Expect(args).To(ContainElement(ContainSubstring(ca)))
			cmd := exec.CommandContext(ctx, filepath.Join(programs, "kubectl-kubelet_certs"),
				append(args, "--kubeconfig", kubeconfig, "--allow-local-addresses", "--selector", selector)...)
			var log, complaints bytes.Buffer
			cmd.Stdout, cmd.Stderr = &log, &complaints
			_ = cmd.Run() // its exit code is what this is about
			Expect(json.Unmarshal(log.Bytes(), &report)).To(Succeed(), log.String()+complaints.String())
			return cmd.ProcessState.ExitCode(), report, complaints.String()
		}

		BeforeAll(func(ctx SpecContext) {
			kubectl(ctx, "", "apply", "-k", manifests("job"))
			DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "", "delete", "--wait=false", "-k", manifests("job")) }, NodeTimeout(time.Minute))
			const name = "kubelet-cert-auditor-job"
			var err error
			job, err = client.BatchV1().Jobs(name).Get(ctx, name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
		}, NodeTimeout(time.Minute))

		It("leaves its report in the log and 1 as the exit code, where a node would break", func(ctx SpecContext) {
			code, report, stderr := run(ctx, "")
			Expect(code).To(Equal(1), stderr)
			Expect(report.reasons()).To(Equal(map[string]v1alpha1.Reason{good: v1alpha1.ReasonVerified, bare: v1alpha1.ReasonCommonNameMismatch}))
		}, specLimit)

		It("ends with 0 where every node is verified", func(ctx SpecContext) {
			code, report, stderr := run(ctx, "kubernetes.io/hostname="+good)
			Expect(code).To(Equal(0), stderr)
			Expect(report.reasons()).To(Equal(map[string]v1alpha1.Reason{good: v1alpha1.ReasonVerified}))
		}, specLimit)
	})

	Describe("of kubectl's plugin", func() {
		It("is found by kubectl, whose exit code is the answer's", func(ctx SpecContext) {
			Expect(kubectl(ctx, "", "plugin", "list")).To(ContainSubstring(filepath.Join(programs, "kubectl-kubelet_certs")))
			out, err := cp.Kubectl(ctx, nil, "kubelet-certs", "audit", "--allow-local-addresses",
				"--kubelet-certificate-authority", ca, "--kubelet-preferred-address-types", "InternalIP")
			var exit *exec.ExitError
			Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
			Expect(exit.ExitCode()).To(Equal(1), "%v", err)
			Expect(out).To(HavePrefix("NOT READY: of 2 nodes 1 are verified, 1 would break once the CN check is on, 0 are refused today, 0 are unknown."))
		}, specLimit)

		It("is helped and completed in kubectl's words", func(ctx SpecContext) {
			Expect(kubectl(ctx, "", "kubelet-certs", "audit", "--help")).To(ContainSubstring("kubectl kubelet-certs audit"))
			Expect(kubectl(ctx, "", "__complete", "kubelet-certs", "au")).To(ContainSubstring("audit"))
		}, specLimit)
	})
})

// answer is what the tests read of a report.
type answer struct {
	Nodes []struct {
		Name   string          `json:"name"`
		Reason v1alpha1.Reason `json:"reason"`
	} `json:"nodes"`
}

func (a answer) reasons() map[string]v1alpha1.Reason {
	reasons := map[string]v1alpha1.Reason{}
	for _, n := range a.Nodes {
		reasons[n.Name] = n.Reason
	}
	return reasons
}
