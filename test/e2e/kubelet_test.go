package e2e_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

// node is a real kubelet with its Node.
type node struct {
	name, ip string
	port     int32
	process  *controlplane.Process
}

// startKubelet runs a kubelet that asks for a serving certificate, or else makes
// one by itself, and returns when its Node has its address.
func startKubelet(ctx context.Context, name, ip string, bootstrap bool) *node {
	GinkgoHelper()
	n := &node{name: name, ip: ip, port: freePort(ctx)}
	own := filepath.Join(dir, name)
	Expect(os.Mkdir(own, 0o700)).To(Succeed())
	socket := filepath.Join(own, "cri.sock")
	run("fakecri", socket)
	Eventually(func() error { _, err := os.Stat(socket); return err }).Should(Succeed())
	DeferCleanup(func(ctx SpecContext) { // else the manager goes on probing what is gone
		Expect(kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	})
	root := filepath.Join(own, "root")
	DeferCleanup(func() { // the kubelet mounts it on itself, and leaves it so
		Expect(syscall.Unmount(root, 0)).To(Or(Succeed(), MatchError(syscall.EINVAL)))
	})
	n.process = run("kubelet",
		"--config="+file(name+".config.json", n.config(own, socket, bootstrap)),
		"--kubeconfig="+kubeconfig("system:node:"+name, "system:nodes"),
		"--hostname-override="+name, "--cloud-provider=external",
		"--root-dir="+root, "--cert-dir="+filepath.Join(own, "pki"), "--v=2")
	n.giveAddress(ctx)
	return n
}

// config turns off what needs a machine of its own.
func (n *node) config(own, socket string, bootstrap bool) []byte {
	GinkgoHelper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": n.ip, "port": n.port, "readOnlyPort": 0, "healthzPort": 0,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false},
			"x509": map[string]any{"clientCAFile": file("kubelet-client-ca.crt", kubeletClientCA.PEM())},
		},
		"authorization":      map[string]any{"mode": "AlwaysAllow"},
		"serverTLSBootstrap": bootstrap,
		"cgroupDriver":       "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"failSwapOn": false, "failCgroupV1": false, "localStorageCapacityIsolation": false, "makeIPTablesUtilChains": false,
		"containerRuntimeEndpoint": "unix://" + socket, "imageServiceEndpoint": "unix://" + socket,
		"podLogsDir": filepath.Join(own, "logs"), "volumePluginDir": filepath.Join(own, "plugins"), "resolvConf": "",
		"featureGates": map[string]bool{"KubeletInUserNamespace": true},
	})
	Expect(err).NotTo(HaveOccurred())
	return text
}

// giveAddress does what a cloud provider would once the kubelet has registered.
func (n *node) giveAddress(ctx context.Context) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": internalIP(n.ip)}})
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() error {
		if err := n.process.Ended(); err != nil {
			return StopTrying("the kubelet ended").Wrap(err)
		}
		_, err := kube.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	}).Should(Succeed())
	Eventually(ctx, func() int32 { return n.get(ctx).Status.DaemonEndpoints.KubeletEndpoint.Port }).Should(Equal(n.port))
}

func (n *node) get(ctx context.Context) *corev1.Node {
	GinkgoHelper()
	node, err := kube.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return node
}

// logs asks kube-apiserver for a Pod's log on the node, and gives its error's
// words; "" if there was a log.
func (n *node) logs(ctx context.Context) string {
	GinkgoHelper()
	pods := kube.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := pods.Get(ctx, n.name, metav1.GetOptions{}); err != nil {
		_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: corev1.PodSpec{
			NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "none.invalid/none"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	stream, err := pods.GetLogs(n.name, &corev1.PodLogOptions{Container: "c"}).Stream(ctx)
	if err != nil {
		return err.Error()
	}
	Expect(stream.Close()).To(Succeed())
	return ""
}

func clientTemplate(commonName string) *x509.Certificate {
	return &x509.Certificate{
		Subject:  pkix.Name{CommonName: commonName},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func hostPort(n *node) string { return fmt.Sprintf("%s:%d", n.ip, n.port) }
