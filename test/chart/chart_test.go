// Package chart holds dist/ to config/: the chart renders what kustomize does,
// and the real API server takes every result.
package chart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
)

const (
	root      = "../.."
	namespace = "kubelet-cert-auditor-system"
	name      = "kubelet-cert-auditor"
	chart     = "dist/chart"
)

// matrix has values that people set, each with what it is for.
var matrix = map[string][]string{
	"defaults":               nil,
	"no audit":               {"audit.create=false"},
	"an audit of kubeadm":    {"audit.spec.preferredAddressTypes={InternalIP,ExternalIP,Hostname}", "audit.spec.trustBundle.configMap.name=kubelet-ca"},
	"without a webhook":      {"webhook.enabled=false"},
	"cert-manager":           {"webhook.certManager=true"},
	"host network":           {"hostNetwork=true"},
	"Prometheus":             {"prometheus.enabled=true", "prometheus.labels.release=stack"},
	"kube-apiserver's flags": {"apiserverFlags.enabled=true"},
	"Grafana":                {"grafana.enabled=true"},
	"all of it":              {"prometheus.enabled=true", "grafana.enabled=true", "webhook.certManager=true", "hostNetwork=true"},
	"a file as bundle": {
		"audit.spec.trustBundle.file=/etc/kubelet-ca/ca.crt", "extraVolumes[0].name=ca", "extraVolumes[0].configMap.name=kubelet-ca",
		"extraVolumeMounts[0].name=ca", "extraVolumeMounts[0].mountPath=/etc/kubelet-ca",
	},
	"a big cluster": {
		"goMemLimit=850MiB", "resources.limits.memory=1Gi", "extraArgs={--kube-api-qps=200,--concurrency=128}", "replicas=3",
		"priorityClassName=system-cluster-critical",
	},
	"a private registry": {
		"image.repository=registry.example.com/kubelet-cert-auditor", "image.digest=sha256:" + strings.Repeat("0", 64), "imagePullSecrets[0].name=pull",
		"image.pullPolicy=Always",
	},
	"Pods that others look at": {"podLabels.team=platform", "podAnnotations.example\\.com/scrape=no", "nodeSelector.disk=ssd", "tolerations[0].operator=Exists"},
}

func run(ctx context.Context, dir, binary string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+os.TempDir(), "HELM_CONFIG_HOME="+os.TempDir(), "HELM_DATA_HOME="+os.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(binary), strings.Join(args, " "), err, stderr.String())
	}
	return string(out), err
}

func tool(t *testing.T, binary string, args ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", binary))
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context(), root, path, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func setting(values []string) []string {
	var args []string
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

// template renders the chart; crds says whether with the CRD.
func template(t *testing.T, values ...string) string {
	t.Helper()
	return tool(t, "helm", append([]string{"template", name, chart, "--namespace", namespace, "--include-crds"}, setting(values)...)...)
}

func kustomize(t *testing.T, dir string) string {
	t.Helper()
	return tool(t, "kustomize", "build", "config/"+dir)
}

// objects of a YAML text by kind, namespace and name, without those of the kinds
// that only one side has.
func objects(t *testing.T, text string, but ...string) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for _, o := range decoded(t, text) {
		if slices.Contains(but, o.GetKind()) {
			continue
		}
		key := fmt.Sprintf("%s %s/%s", o.GroupVersionKind(), o.GetNamespace(), o.GetName())
		if found[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		found[key] = o.Object
	}
	return found
}

func decoded(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var o unstructured.Unstructured
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// The namespace is made by whoever installs a chart.
func TestChartRendersWhatConfigHolds(t *testing.T) {
	for _, c := range []struct {
		values []string
		config []string
	}{
		{nil, []string{"default"}},
		{[]string{"webhook.certManager=true"}, []string{"overlays/cert-manager"}},
		{[]string{"hostNetwork=true"}, []string{"overlays/control-plane"}},
		{[]string{"prometheus.enabled=true", "grafana.enabled=true", "apiserverFlags.enabled=true"}, []string{"default", "prometheus", "grafana", "apiserver-flags"}},
	} {
		want := map[string]map[string]any{}
		for _, dir := range c.config {
			maps.Copy(want, objects(t, kustomize(t, dir), "Namespace"))
		}
		got := objects(t, template(t, append(c.values, "audit.create=false")...))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("config/%v (-) and the chart with %v (+):\n%s", c.config, c.values, diff)
		}
	}
}

// What is added on top can be deleted again, and takes nothing of the manager's
// with it.
func TestWhatIsAddedSharesNothing(t *testing.T) {
	manager := objects(t, kustomize(t, "default"))
	for _, dir := range []string{"job", "prometheus", "grafana", "apiserver-flags"} {
		for key := range objects(t, kustomize(t, dir)) {
			if manager[key] != nil {
				t.Errorf("config/%s has %s, as config/default does", dir, key)
			}
		}
	}
}

// Pods that take a node's ports cannot stand beside those that they replace, nor
// wait for them.
func TestPodsWithTheHostsPortsMakeRoom(t *testing.T) {
	const key = "apps/v1, Kind=Deployment " + namespace + "/" + name
	deployment := objects(t, kustomize(t, "overlays/control-plane"))[key]
	got, _, err := unstructured.NestedMap(deployment, "spec", "strategy", "rollingUpdate")
	if err != nil || fmt.Sprint(got) != "map[maxSurge:0 maxUnavailable:100%]" {
		t.Errorf("%s: %v, %v", key, got, err)
	}
}

// The audit of the chart and of config/samples are the same once the API server
// has filled in the defaults, which are those of the sample.
func TestAuditIsAnEmptyOne(t *testing.T) {
	for key, o := range objects(t, template(t)) {
		if strings.Contains(key, "KubeletCertAudit") && o["kind"] == "KubeletCertAudit" {
			if spec, _ := o["spec"].(map[string]any); len(spec) != 0 {
				t.Errorf("its spec is %v", spec)
			}
			return
		}
	}
	t.Error("there is no audit")
}

func TestInstallIsConfigDefault(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "dist", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kustomize(t, "default"), string(text)); diff != "" {
		t.Errorf("run make manifests: %s", diff)
	}
}

func TestLint(t *testing.T) {
	for what, values := range matrix {
		t.Run(what, func(t *testing.T) {
			tool(t, "helm", append([]string{"lint", "--strict", "--quiet", chart}, setting(values)...)...)
		})
	}
}

// Other namespaces and names of the release work too.
func TestNamespaceIsTheReleases(t *testing.T) {
	text := tool(t, "helm", "template", "other", chart, "--namespace", "elsewhere", "--set", "prometheus.enabled=true,grafana.enabled=true")
	if strings.Contains(text, namespace) || !strings.Contains(text, "namespace: elsewhere") {
		t.Error(text)
	}
}

// What a Prometheus selects by is on both, and what they have otherwise stays.
func TestMonitorsHaveTheLabelsGiven(t *testing.T) {
	text := tool(t, "helm", "template", name, chart, "--set", "prometheus.enabled=true,prometheus.labels.release=stack")
	labelled := 0
	for document := range strings.SplitSeq(text, "\n---\n") {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}
		monitor := strings.HasPrefix(o.APIVersion, "monitoring.coreos.com/")
		if has := o.Labels["release"] == "stack"; has != monitor || monitor && o.Labels["app.kubernetes.io/name"] != name {
			t.Errorf("%s %s: labels %v", o.Kind, o.Name, o.Labels)
		}
		if monitor {
			labelled++
		}
	}
	if labelled != 2 {
		t.Errorf("%d objects of monitoring.coreos.com", labelled)
	}
}

func TestBadValuesAreRefusedByName(t *testing.T) {
	helm, err := filepath.Abs(filepath.Join(root, "bin", "helm"))
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		"replica=3":                 "'replica' not allowed",
		"replicas=two":              "/replicas",
		"webhook.enable=true":       "/webhook",
		"webhook.certManager=maybe": "/webhook/certManager",
		"image.pullPolicy=Often":    "/image/pullPolicy",
		"image.digest=abc":          "/image/digest",
		"goMemLimit=450":            "/goMemLimit",
		"extraArgs={kube-api-qps}":  "/extraArgs/0",
		"prometheus.labels=stack":   "/prometheus/labels",
	} {
		_, err := run(t.Context(), root, helm, "template", name, chart, "--set", value)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}

func TestAPIServerTakesEveryResult(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s := startServer(ctx, t)
	for _, n := range []string{namespace, "kubelet-cert-auditor-job"} { // a dry run makes none
		s.mustKubectl(ctx, t, "", "create", "namespace", n)
	}
	for what, values := range matrix {
		t.Run(what, func(t *testing.T) { s.take(ctx, t, template(t, values...)) })
	}
	for _, dir := range []string{"default", "overlays/cert-manager", "overlays/control-plane", "job", "prometheus", "grafana", "apiserver-flags"} {
		t.Run("config/"+dir, func(t *testing.T) { s.take(ctx, t, kustomize(t, dir)) })
	}
	t.Run("a template made bad on purpose", func(t *testing.T) {
		pod := podOf(t, template(t))
		pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
		if err := s.admit(ctx, pod); err == nil || !strings.Contains(err.Error(), "allowPrivilegeEscalation") {
			t.Errorf("it was not refused: %v", err)
		}
	})
	t.Run("helm install, upgrade, uninstall", func(t *testing.T) { s.lifecycle(ctx, t) })
}

type server struct {
	plane      *controlplane.ControlPlane
	client     kubernetes.Interface
	kubeconfig string
}

// startServer has the CRDs of the Prometheus Operator and of cert-manager, ours,
// and a namespace that enforces restricted.
func startServer(ctx context.Context, t *testing.T) *server {
	t.Helper()
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &server{plane: plane, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if s.client, err = kubernetes.NewForConfig(plane.Config()); err != nil {
		t.Fatal(err)
	}
	if err := plane.WriteKubeconfig(s.kubeconfig, plane.Config()); err != nil {
		t.Fatal(err)
	}
	for module, files := range map[string][]string{
		"github.com/prometheus-operator/prometheus-operator": {
			"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		},
		"github.com/cert-manager/cert-manager": {"deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml"},
	} {
		for _, file := range files {
			s.mustKubectl(ctx, t, "", "create", "-f", filepath.Join(moduleDir(ctx, t, module), file))
		}
	}
	s.mustKubectl(ctx, t, "", "create", "-k", filepath.Join(root, "config", "crd"))
	s.mustKubectl(ctx, t, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=1m")
	s.mustKubectl(ctx, t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}\n", "create", "-f", "-")
	return s
}

// moduleDir is where a module of internal/tools/crds lies.
func moduleDir(ctx context.Context, t *testing.T, module string) string {
	t.Helper()
	out, err := run(ctx, filepath.Join(root, "internal", "tools", "crds"), "go", "mod", "download", "-json", module)
	var m struct{ Dir string }
	if err = errors.Join(err, json.Unmarshal([]byte(out), &m)); err != nil || m.Dir == "" {
		t.Fatalf("%s: %v %s", module, err, out)
	}
	return m.Dir
}

func (s *server) mustKubectl(ctx context.Context, t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := s.plane.Kubectl(ctx, strings.NewReader(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// take applies manifests as a trial, and has each Pod that they would make
// admitted where the restricted Pod Security Standard is enforced, or refused if
// it is on the host's network.
func (s *server) take(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	out := s.mustKubectl(ctx, t, text, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	if n := len(decoded(t, text)); strings.Count(out, "\n") != n {
		t.Errorf("%d objects were applied, want %d:\n%s", strings.Count(out, "\n"), n, out)
	}
	for _, o := range decoded(t, text) {
		if o.GetKind() != "Deployment" && o.GetKind() != "Job" {
			continue
		}
		pod := podFrom(t, o)
		err := s.admit(ctx, pod)
		switch {
		case !pod.Spec.HostNetwork && err != nil:
			t.Error(err)
		case pod.Spec.HostNetwork && (err == nil || !strings.Contains(err.Error(), "host namespaces") || strings.Contains(err.Error(), "securityContext")):
			t.Errorf("on the host's network: %v", err)
		}
	}
}

func podOf(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	for _, o := range decoded(t, text) {
		if o.GetKind() == "Deployment" {
			return podFrom(t, o)
		}
	}
	t.Fatal("there is no Deployment")
	return nil
}

// podFrom makes a Pod from the template of a Deployment or Job.
func podFrom(t *testing.T, o unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	var owner appsv1.Deployment // a Job's template is in the same place
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &owner); err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{ObjectMeta: *owner.Spec.Template.ObjectMeta.DeepCopy(), Spec: *owner.Spec.Template.Spec.DeepCopy()}
}

func (s *server) admit(ctx context.Context, pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	pod.GenerateName, pod.Spec.PriorityClassName = "pod-", "" // that class is not allowed everywhere
	pod.Spec.ServiceAccountName = "default"
	pod.Spec.AutomountServiceAccountToken = new(bool)
	_, err := s.client.CoreV1().Pods("restricted").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (s *server) helm(t *testing.T, args ...string) string {
	t.Helper()
	return tool(t, "helm", append(args, "--kubeconfig", s.kubeconfig, "--namespace", "helm")...)
}

// lifecycle does what a user of the chart does, on a server without our CRD.
func (s *server) lifecycle(ctx context.Context, t *testing.T) {
	s.mustKubectl(ctx, t, "", "delete", "-k", filepath.Join(root, "config", "crd"))
	out := s.helm(t, "install", name, chart, "--create-namespace", "--set", "audit.spec.interval=20m")
	if !strings.Contains(out, "STATUS: deployed") || !strings.Contains(out, "kubectl wait --for=condition=ReadyToEnforce") {
		t.Error(out)
	}
	interval := func() string {
		return s.mustKubectl(ctx, t, "", "get", "kubeletcertaudit", v1alpha1.AuditName, "-o", "jsonpath={.spec.interval}")
	}
	if got := interval(); got != "20m" {
		t.Errorf("interval %s", got)
	}
	// What the manager writes itself survives an upgrade.
	s.mustKubectl(ctx, t, "", "patch", "validatingwebhookconfiguration", name, "--type=json", "-p",
		`[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"Q0E="}]`)
	s.mustKubectl(ctx, t, "", "patch", "secret", name+"-webhook", "-n", "helm", "-p", `{"data":{"tls.crt":"Q0E="}}`)
	s.helm(t, "upgrade", name, chart, "--set", "audit.spec.interval=30m,replicas=3")
	if got := interval(); got != "30m" {
		t.Errorf("interval %s after the upgrade", got)
	}
	for path, args := range map[string][]string{
		"{.webhooks[0].clientConfig.caBundle}": {"validatingwebhookconfiguration", name},
		`{.data.tls\.crt}`:                     {"secret", name + "-webhook", "-n", "helm"},
	} {
		if got := s.mustKubectl(ctx, t, "", append([]string{"get", "-o", "jsonpath=" + path}, args...)...); got != "Q0E=" {
			t.Errorf("%s is %q after the upgrade", args, got)
		}
	}
	if got := s.mustKubectl(ctx, t, "", "get", "deployment", name, "-n", "helm", "-o", "jsonpath={.spec.replicas}"); got != "3" {
		t.Errorf("%s replicas", got)
	}
	// The audit stays: deleting it takes the manager.
	s.helm(t, "uninstall", name)
	if got := s.mustKubectl(ctx, t, "", "get", "deployments,services,secrets,clusterroles,validatingwebhookconfigurations", "-A", "-o", "name",
		"-l", "app.kubernetes.io/name="+name); got != "" {
		t.Errorf("it left behind: %s", got)
	}
	if got := interval(); got != "30m" {
		t.Errorf("the audit is gone: %q", got)
	}
	s.mustKubectl(ctx, t, "", "delete", "kubeletcertaudit", v1alpha1.AuditName)
}
