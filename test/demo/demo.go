package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/controlplane"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/fleet"
)

const (
	namespace      = "kubelet-cert-auditor-system"
	serviceAccount = "kubelet-cert-auditor"
	scraper        = "demo-scraper"
)

// audit is the singleton of the demo: the fleet's CA, and times that suit
// somebody who waits.
const auditManifest = `apiVersion: kubeletcert.dev/v1alpha1
kind: KubeletCertAudit
metadata: {name: cluster}
spec:
  interval: 30s
  timeout: 3s
  newNodeGrace: 0s
  preferredAddressTypes: [InternalIP]
  trustBundle: {configMap: {name: kubelet-ca}}
`

const scraperManifest = `apiVersion: v1
kind: ServiceAccount
metadata: {name: demo-scraper, namespace: kubelet-cert-auditor-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: demo-scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kubelet-cert-auditor-metrics-reader}
subjects: [{kind: ServiceAccount, name: demo-scraper, namespace: kubelet-cert-auditor-system}]
`

type demo struct {
	root, dir, binary, kubectl, kubeconfig, caFile string

	fleet   *fleet.Fleet
	world   *certs.World
	members []fleet.Member
	plane   *controlplane.ControlPlane

	manager     *exec.Cmd
	managerDone chan error
	managerLog  string
	metricsPort int
	webhookPort int
	unmount     func()
	failOpen    float64
}

func newDemo(nodes int) (*demo, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kubelet-cert-auditor-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{
		root: root, dir: dir, binary: filepath.Join(root, "bin", "kubelet-cert-auditor"),
		kubeconfig: filepath.Join(dir, "kubeconfig"), caFile: filepath.Join(dir, "kubelet-ca.crt"),
		managerLog: filepath.Join(dir, "manager.log"), managerDone: make(chan error, 1),
		world: certs.NewWorld(time.Now()),
	}
	if d.fleet, err = fleet.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defects := certs.Defects()
	d.members = fleet.Populate(d.fleet, d.world, defects, max(nodes, len(defects)))
	return d, nil
}

// audit runs the CLI, whose answer about this fleet must be exit code 1.
func (d *demo) audit(ctx context.Context, args ...string) error {
	args = append([]string{
		"audit", "--kubelet-certificate-authority", d.caFile, "--kubelet-preferred-address-types", "InternalIP",
		"--timeout", "3s", "--allow-local-addresses",
	}, args...)
	err := d.command(ctx, d.binary, args...).Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		fmt.Println("(exit code 1: not safe to turn on)")
		return nil
	}
	return fmt.Errorf("audit should answer with exit code 1: %w", err)
}

func (d *demo) startControlPlane(ctx context.Context) error {
	title("Starting etcd and kube-apiserver")
	if err := os.WriteFile(d.caFile, d.world.CA.PEM(), 0o600); err != nil {
		return err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Dir: filepath.Join(d.dir, "controlplane"), Audit: true})
	if err != nil {
		return err
	}
	d.plane = plane
	return plane.WriteKubeconfig(d.kubeconfig, plane.Config())
}

func (d *demo) createNodes(ctx context.Context) error {
	c, err := kubernetes.NewForConfig(d.plane.Config())
	if err != nil {
		return err
	}
	for _, m := range d.members {
		node, err := c.CoreV1().Nodes().Create(ctx, m.Node, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create node %s: %w", m.Node.Name, err)
		}
		node.Status = m.Node.Status
		if _, err := c.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("write the status of node %s: %w", m.Node.Name, err)
		}
	}
	return nil
}

func (d *demo) install(ctx context.Context) error {
	title("Installing: kubectl apply -k config/default, then the KubeletCertAudit")
	if err := d.apply(ctx, nil, "-k", filepath.Join(d.root, "config", "default")); err != nil {
		return err
	}
	if _, err := d.plane.Kubectl(ctx, nil, "create", "configmap", "kubelet-ca", "--namespace", namespace, "--from-file", "ca.crt="+d.caFile); err != nil {
		return err
	}
	if err := d.apply(ctx, strings.NewReader(scraperManifest), "-f", "-"); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		// The API server needs a moment to serve a new kind.
		return d.apply(ctx, strings.NewReader(auditManifest), "-f", "-") == nil, nil
	})
}

func (d *demo) apply(ctx context.Context, stdin io.Reader, args ...string) error {
	out, err := d.plane.Kubectl(ctx, stdin, append([]string{"apply"}, args...)...)
	fmt.Print(out)
	return err
}

// startManager runs the built binary as its pod would run: with the token of
// its ServiceAccount.
func (d *demo) startManager(ctx context.Context) error {
	title("Running the manager with its ServiceAccount's token")
	cfg, err := d.plane.ServiceAccountConfig(ctx, namespace, serviceAccount)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(d.dir, "manager.kubeconfig")
	if err := d.plane.WriteKubeconfig(kubeconfig, cfg); err != nil {
		return err
	}
	log, err := os.Create(d.managerLog)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if d.metricsPort, err = controlplane.FreePort(ctx); err != nil {
		return err
	}
	if d.webhookPort, err = controlplane.FreePort(ctx); err != nil {
		return err
	}
	certDir := filepath.Join(d.dir, "webhook")
	if d.unmount, err = d.plane.MountSecret(namespace, webhookSecret, certDir); err != nil {
		return err
	}
	// Not bound to ctx: tearDown ends it, before what it works with.
	d.manager = exec.Command(d.binary, "manager", "--kubeconfig", kubeconfig, "--namespace", namespace, //nolint:noctx // see above
		"--allow-local-addresses", "--health-probe-bind-address", "0",
		"--metrics-bind-address", fmt.Sprintf("127.0.0.1:%d", d.metricsPort),
		"--webhook-bind-address", fmt.Sprintf("127.0.0.1:%d", d.webhookPort), "--webhook-cert-dir", certDir)
	d.manager.Stdout, d.manager.Stderr = log, log
	d.manager.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is tearDown's business
	if err := d.manager.Start(); err != nil {
		d.manager = nil
		return err
	}
	go func() { d.managerDone <- d.manager.Wait() }()
	return nil
}

func (d *demo) awaitSweep(ctx context.Context) error {
	start := time.Now()
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-d.managerDone:
			d.managerDone <- err
			return false, fmt.Errorf("the manager ended: %w", err)
		default:
		}
		audit, err := d.getAudit(ctx)
		return err == nil && audit.Status.LastSweepTime != nil, nil
	})
	if err != nil {
		text, _ := os.ReadFile(d.managerLog)
		return fmt.Errorf("wait for the first sweep: %w\n%s", err, text)
	}
	fmt.Printf("the first sweep took %s\n", time.Since(start).Round(time.Millisecond))
	return nil
}

func (d *demo) getAudit(ctx context.Context) (*v1alpha1.KubeletCertAudit, error) {
	out, err := d.plane.Kubectl(ctx, nil, "get", "kubeletcertaudit", v1alpha1.AuditName, "-o", "json")
	if err != nil {
		return nil, err
	}
	audit := &v1alpha1.KubeletCertAudit{}
	return audit, json.Unmarshal([]byte(out), audit)
}

func (d *demo) show(ctx context.Context) error {
	for _, args := range [][]string{
		{"get", "kubeletcertaudit"},
		{"get", "nodes", "-o", "custom-columns=NAME:.metadata.name,VALID:.status.conditions[?(@.type==\"KubeletServingCertificateValid\")].status,REASON:.status.conditions[?(@.type==\"KubeletServingCertificateValid\")].reason"},
		{"describe", "node", "bare-node-name"},
		{"get", "events", "--namespace", "default", "--field-selector", "involvedObject.kind=Node,reason=CommonNameMismatch", "-o", "custom-columns=NODE:.involvedObject.name,TYPE:.type,REASON:.reason,MESSAGE:.message"},
	} {
		title("kubectl " + strings.Join(args[:2], " "))
		out, err := d.plane.Kubectl(ctx, nil, args...)
		if err != nil {
			return err
		}
		fmt.Print(out)
	}
	title("Metrics")
	metrics, err := d.metrics(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "kubelet_cert_auditor_") && !strings.Contains(line, "_bucket") {
			fmt.Print(line)
		}
	}
	title("The CLI on the same cluster")
	return d.audit(ctx, "--kubeconfig", d.kubeconfig)
}

// metrics scrapes as Prometheus would: with a token that may get /metrics.
func (d *demo) metrics(ctx context.Context) (string, error) {
	cfg, err := d.plane.ServiceAccountConfig(ctx, namespace, scraper)
	if err != nil {
		return "", err
	}
	c, err := rest.HTTPClientFor(&rest.Config{
		BearerToken: cfg.BearerToken,
		// The manager makes its own certificate, as in the manifests.
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/metrics", d.metricsPort), nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("metrics: %s: %s", resp.Status, bytes.TrimSpace(body))
	}
	return string(body), err
}

// scrapeConfig writes what a Prometheus of the demo's user needs.
func (d *demo) scrapeConfig(ctx context.Context) (string, error) {
	cfg, err := d.plane.ServiceAccountConfig(ctx, namespace, scraper)
	if err != nil {
		return "", err
	}
	token, path := filepath.Join(d.dir, "scraper.token"), filepath.Join(d.dir, "prometheus.yml")
	text := fmt.Sprintf(`global: {scrape_interval: 5s}
scrape_configs:
- job_name: kubelet-cert-auditor
  scheme: https
  tls_config: {insecure_skip_verify: true} # the manager makes its own certificate
  authorization: {credentials_file: %q}
  static_configs: [{targets: ["127.0.0.1:%d"]}]
`, token, d.metricsPort)
	return path, errors.Join(os.WriteFile(token, []byte(cfg.BearerToken), 0o600), os.WriteFile(path, []byte(text), 0o600))
}

// tearDown ends the manager, the control plane and the fleet, in this order.
func (d *demo) tearDown() error {
	var problems []error
	if d.manager != nil {
		_ = d.manager.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-d.managerDone:
			if err != nil {
				problems = append(problems, fmt.Errorf("the manager ended with: %w", err))
			}
		case <-time.After(30 * time.Second):
			problems = append(problems, errors.New("the manager did not end in 30 s and was killed"), d.manager.Process.Kill(), <-d.managerDone)
		}
	}
	if d.unmount != nil {
		d.unmount()
	}
	if d.plane != nil {
		problems = append(problems, d.plane.Stop())
	}
	problems = append(problems, d.fleet.Close(), os.RemoveAll(d.dir))
	return errors.Join(problems...)
}
