package controlplane_test

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

var _ = Describe("a control plane", func() {
	const limit = SpecTimeout(time.Minute)

	It("lets the admin list namespaces", func(ctx SpecContext) {
		list, err := clientOf(cp.Config()).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(list.Items).To(ContainElement(HaveField("Name", "default")))
	}, limit)

	It("authenticates a node", func(ctx SpecContext) {
		user := whoAmI(ctx, cp.UserConfig("system:node:n1", "system:nodes"))
		Expect(user.Username).To(Equal("system:node:n1"))
		Expect(user.Groups).To(ConsistOf("system:nodes", "system:authenticated"))
	}, limit)

	It("lets a node write to itself and to no other", func(ctx SpecContext) {
		nodes := clientOf(cp.UserConfig("system:node:n1", "system:nodes")).CoreV1().Nodes()
		_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			Expect(clientOf(cp.Config()).CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{})).To(Succeed())
		})
		_, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{})
		Expect(err).To(Satisfy(apierrors.IsForbidden))
	}, limit)

	It("authenticates a ServiceAccount by a token alone", func(ctx SpecContext) {
		accounts := clientOf(cp.Config()).CoreV1().ServiceAccounts("default")
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			Expect(accounts.Delete(ctx, "robot", metav1.DeleteOptions{})).To(Succeed())
		})

		cfg, err := cp.ServiceAccountConfig(ctx, "default", "robot")
		Expect(err).NotTo(HaveOccurred())
		Expect(cfg.CertData).To(BeEmpty())
		Expect(cfg.KeyData).To(BeEmpty())
		Expect(whoAmI(ctx, cfg).Username).To(Equal("system:serviceaccount:default:robot"))
	}, limit)

	It("gives no token for a ServiceAccount that does not exist", func(ctx SpecContext) {
		_, err := cp.ServiceAccountConfig(ctx, "default", "nobody")
		Expect(err).To(Satisfy(apierrors.IsNotFound))
	}, limit)

	It("admits a Pod that mounts no token, though nothing creates ServiceAccounts", func(ctx SpecContext) {
		pods := clientOf(cp.Config()).CoreV1().Pods("default")
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: corev1.PodSpec{
				NodeName:                     "n1",
				AutomountServiceAccountToken: new(false),
				Containers:                   []corev1.Container{{Name: "c", Image: "i"}},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods.Delete(ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})).To(Succeed())
	}, limit)

	It("is trusted through its own CA alone", func(SpecContext) {
		cfg := cp.Config()
		Expect(cp.CA()).To(Equal(cfg.CAData))
		cfg.CAData = nil
		_, err := clientOf(cfg).Discovery().ServerVersion()
		Expect(err).To(MatchError(ContainSubstring("x509: ")))
	}, limit)

	Describe("kubectl", func() {
		It("reads stdin and acts as the admin", func(ctx SpecContext) {
			const manifest = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"from-kubectl"}}`
			Expect(cp.Kubectl(ctx, strings.NewReader(manifest), "create", "-f", "-")).To(Equal("configmap/from-kubectl created\n"))
			Expect(cp.Kubectl(ctx, nil, "delete", "configmap", "from-kubectl", "-o", "name")).To(Equal("configmap/from-kubectl\n"))
		}, limit)

		It("says what went wrong", func(ctx SpecContext) {
			_, err := cp.Kubectl(ctx, nil, "get", "configmap", "absent")
			Expect(err).To(MatchError(And(
				ContainSubstring("kubectl get configmap absent"),
				ContainSubstring(`configmaps "absent" not found`))))
		}, limit)

		It("ends with its context", func(ctx SpecContext) {
			watching, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			_, err := cp.Kubectl(watching, nil, "get", "namespaces", "--watch")
			Expect(err).To(MatchError(context.DeadlineExceeded))
		}, limit)
	})

	Describe("a kubeconfig", func() {
		It("is private, holds all it needs and replaces an earlier one", func(ctx SpecContext) {
			path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
			Expect(os.WriteFile(path, []byte("old"), 0o644)).To(Succeed())
			Expect(cp.WriteKubeconfig(path, cp.UserConfig("jane", "staff"))).To(Succeed())

			info, err := os.Stat(path)
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
			cfg, err := clientcmd.BuildConfigFromFlags("", path)
			Expect(err).NotTo(HaveOccurred())
			Expect([]string{cfg.CAFile, cfg.CertFile, cfg.KeyFile}).To(HaveEach(BeEmpty()))
			Expect(whoAmI(ctx, cfg).Username).To(Equal("jane"))
			Expect(os.ReadDir(filepath.Dir(path))).To(HaveLen(1))
		}, limit)

		It("cannot be written where there is no directory", func() {
			path := filepath.Join(GinkgoT().TempDir(), "absent", "kubeconfig")
			Expect(cp.WriteKubeconfig(path, cp.Config())).To(MatchError(os.ErrNotExist))
		})
	})

	It("logs a refused request for audit", func(ctx SpecContext) {
		cfg := cp.UserConfig("mallory")
		cfg.UserAgent = "audit-spec"
		_, err := clientOf(cfg).CoreV1().Secrets("kube-system").Get(ctx, "crown-jewels", metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsForbidden))

		Eventually(ctx, cp.AuditEvents).Should(ContainElement(And(
			HaveField("User", "mallory"),
			HaveField("Verb", "get"),
			HaveField("Resource", "secrets"),
			HaveField("APIGroup", ""),
			HaveField("Namespace", "kube-system"),
			HaveField("Name", "crown-jewels"),
			HaveField("Code", 403),
			HaveField("Stage", "ResponseComplete"),
			HaveField("UserAgent", "audit-spec"),
			HaveField("Message", ContainSubstring("mallory")),
			HaveField("Time", BeTemporally("~", time.Now(), time.Minute)),
		)))
	}, limit)

	DescribeTable("keeps data, address and credentials over a restart, when its API server is",
		func(ctx SpecContext, end func(*controlplane.ControlPlane) error) {
			client := clientOf(cp.Config())
			maps := client.CoreV1().ConfigMaps("default")
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			watch, err := maps.Watch(ctx, metav1.ListOptions{})
			Expect(err).NotTo(HaveOccurred())
			defer watch.Stop()
			before, err := cp.AuditEvents()
			Expect(err).NotTo(HaveOccurred())

			Expect(end(cp)).To(Succeed())
			_, err = maps.Get(ctx, "kept", metav1.GetOptions{})
			Expect(err).To(HaveOccurred())
			Expect(end(cp)).To(Succeed(), "an API server that is down already")

			Expect(cp.StartAPIServer(ctx)).To(Succeed())
			Expect(maps.Get(ctx, "kept", metav1.GetOptions{})).To(HaveField("Name", "kept"))
			Expect(maps.Delete(ctx, "kept", metav1.DeleteOptions{})).To(Succeed())
			after, err := cp.AuditEvents()
			Expect(err).NotTo(HaveOccurred())
			Expect(len(after)).To(BeNumerically(">", len(before)))
			Expect(after[:len(before)]).To(Equal(before))
		},
		Entry("killed", (*controlplane.ControlPlane).KillAPIServer, limit),
		Entry("stopped", (*controlplane.ControlPlane).StopAPIServer, limit),
	)

	It("does not start a second API server", func(ctx SpecContext) {
		Expect(cp.StartAPIServer(ctx)).To(MatchError(ContainSubstring("it is running")))
	}, limit)

	Describe("of its own", func() {
		It("runs next to others; Stop leaves no process, and no directory that Start made", func(ctx SpecContext) {
			GinkgoT().Setenv("TMPDIR", GinkgoT().TempDir())
			other, err := controlplane.Start(ctx, controlplane.Options{})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(other.Stop)
			dir := os.Getenv("TMPDIR")
			Expect(os.ReadDir(dir)).To(HaveLen(1))
			expectProcesses(dir, 2)
			Expect(other.Config().Host).NotTo(Equal(cp.Config().Host))
			Expect(other.CA()).NotTo(Equal(cp.CA()))
			crossing := other.Config()
			crossing.Host, crossing.CAData = cp.Config().Host, cp.CA()
			_, err = clientOf(crossing).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			Expect(err).To(Satisfy(apierrors.IsUnauthorized), "the admin of another control plane")
			_, err = other.AuditEvents()
			Expect(err).To(MatchError(ContainSubstring("Options.Audit")))

			watch, err := clientOf(other.Config()).CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
			Expect(err).NotTo(HaveOccurred())
			defer watch.Stop()
			stopping := time.Now()
			Expect(other.Stop()).To(Succeed())
			Expect(time.Since(stopping)).To(BeNumerically("<", 8*time.Second), "an open watch is no reason to wait")
			expectProcesses(dir, 0)
			Expect(os.ReadDir(dir)).To(BeEmpty())

			Expect(other.Stop()).To(Succeed())
			Expect(other.StopAPIServer()).To(Succeed())
			Expect(other.KillAPIServer()).To(Succeed())
			Expect(other.StartAPIServer(ctx)).To(MatchError(ContainSubstring("is stopped")))
		}, limit)

		It("leaves nothing running when its context ends during Start", func(ctx SpecContext) {
			dir := GinkgoT().TempDir()
			starting, cancel := context.WithCancel(ctx)
			result := make(chan error, 1)
			go func() {
				_, err := controlplane.Start(starting, controlplane.Options{Dir: dir})
				result <- err
			}()
			log := filepath.Join(dir, "kube-apiserver.log")
			Eventually(ctx, log).Should(BeARegularFile())
			cancel()
			Eventually(ctx, result).Should(Receive(MatchError(context.Canceled)))
			expectProcesses(dir, 0)
		}, limit)

		It("does not start when its context has ended", func(ctx SpecContext) {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_, err := controlplane.Start(ended, controlplane.Options{})
			Expect(err).To(MatchError(context.Canceled))
		}, limit)

		It("gives the end of the log when the API server does not start", func(ctx SpecContext) {
			dir := GinkgoT().TempDir()
			options := controlplane.Options{Dir: dir, APIServerArgs: []string{"--no-such-flag"}}
			_, err := controlplane.Start(ctx, options)
			Expect(err).To(MatchError(ContainSubstring("unknown flag: --no-such-flag")))
			expectProcesses(dir, 0)
			Expect(filepath.Join(dir, "kube-apiserver.log")).To(BeARegularFile())

			_, err = controlplane.Start(ctx, options)
			Expect(err).To(MatchError(ContainSubstring("data of an earlier control plane")))
		}, limit)

		It("gives up when its port is never free", func(ctx SpecContext) {
			taken := listen(ctx)
			dir := GinkgoT().TempDir()
			_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, APIServerArgs: []string{"--secure-port=" + taken}})
			Expect(err).To(MatchError(And(ContainSubstring("port is taken"), ContainSubstring("address already in use"))))
			expectProcesses(dir, 0)
		}, limit)

		It("does not survive a crash of its test binary", func(ctx SpecContext) {
			if runtime.GOOS != "linux" {
				Skip("only Linux can tie the life of a process to its parent's")
			}
			dir := GinkgoT().TempDir()
			self, err := os.Executable()
			Expect(err).NotTo(HaveOccurred())
			crashing := exec.CommandContext(ctx, self)
			crashing.Env = append(os.Environ(), crashDir+"="+dir)
			crashing.Stderr = GinkgoWriter
			Expect(crashing.Start()).To(Succeed())
			Eventually(ctx, processes).WithArguments(dir).Should(HaveLen(2))
			Expect(crashing.Process.Kill()).To(Succeed())
			Expect(crashing.Wait()).NotTo(Succeed())
			Eventually(ctx, processes).WithArguments(dir).Should(BeEmpty())
		}, limit)
	})
})

var _ = Describe("Assets", func() {
	It("finds the pinned binaries from any directory of the repository", func() {
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", "")
		want, err := controlplane.Assets()
		if err != nil {
			Skip("this repository's binaries are not built: " + err.Error())
		}
		GinkgoT().Chdir(filepath.Join("..", "kubernetes"))
		Expect(controlplane.Assets()).To(Equal(want))
		Expect(filepath.Base(want)).To(HavePrefix("v1."))
	})

	It("honours KUBEBUILDER_ASSETS", func() {
		dir := GinkgoT().TempDir()
		for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
			Expect(os.WriteFile(filepath.Join(dir, name), nil, 0o755)).To(Succeed())
		}
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", dir)
		Expect(controlplane.Assets()).To(Equal(dir))
	})

	It("says how to get a missing binary", func() {
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", GinkgoT().TempDir())
		_, err := controlplane.Assets()
		Expect(err).To(MatchError(And(ContainSubstring("no etcd in"), ContainSubstring("make control-plane"))))
	})

	It("says how to get the binaries outside of the repository", func() {
		GinkgoT().Setenv("KUBEBUILDER_ASSETS", "")
		GinkgoT().Chdir(GinkgoT().TempDir())
		_, err := controlplane.Assets()
		Expect(err).To(MatchError(And(ContainSubstring("no go.mod of"), ContainSubstring("make control-plane"))))
	})
})

// whoAmI is the user that the API server takes the bearer of cfg for.
func whoAmI(ctx context.Context, cfg *rest.Config) authenticationv1.UserInfo {
	GinkgoHelper()
	review, err := clientOf(cfg).AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return review.Status.UserInfo
}

// listen holds a port of 127.0.0.1 for the time of the spec.
func listen(ctx context.Context) string {
	GinkgoHelper()
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(l.Close)
	return (&url.URL{Host: l.Addr().String()}).Port()
}

// expectProcesses checks how many processes a control plane in dir has.
func expectProcesses(dir string, count int) {
	GinkgoHelper()
	if runtime.GOOS == "linux" {
		Expect(processes(dir)).To(HaveLen(count))
	}
}

// processes are the command lines, of Linux' process table, that name a file
// in dir. A process that ended but was not reaped has none.
func processes(dir string) []string {
	tables, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, table := range tables {
		line, err := os.ReadFile(table)
		if err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}
