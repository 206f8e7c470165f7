package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

const (
	webhookName   = "kubelet-cert-auditor"
	webhookSecret = "kubelet-cert-auditor-webhook"
)

// reachWebhook waits until the API server calls the webhook. It is reached by
// URL, for want of a Service network.
func (d *demo) reachWebhook(ctx context.Context) error {
	title("Waiting until the API server asks the admission webhook")
	if err := d.plane.ReachWebhook(ctx, webhookName, fmt.Sprintf("https://localhost:%d/review-kubelet-serving", d.webhookPort)); err != nil {
		return err
	}
	if err := d.plane.WebhookReady(ctx, webhookName); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		if _, err := d.plane.Kubectl(ctx, strings.NewReader(certs.RequestManifest("first", "first", "first")), "create", "--dry-run=server", "-f", "-"); err != nil {
			return false, err
		}
		metrics, err := d.metrics(ctx)
		return strings.Contains(metrics, `csr_reviews_total{decision="warned"`), err
	})
	if err == nil {
		d.failOpen, err = d.failedOpen(ctx)
	}
	return err
}

// showRequests makes two requests with a node's real credentials for the address
// of another one: before the audit says Enforce, and after.
func (d *demo) showRequests(ctx context.Context) error {
	node, victim := d.members[0], d.members[1]
	kubeconfig := filepath.Join(d.dir, "node.kubeconfig")
	if err := d.plane.WriteKubeconfig(kubeconfig, d.plane.UserConfig("system:node:"+node.Node.Name, "system:nodes")); err != nil {
		return err
	}
	create := func(name string) (string, error) {
		cmd := exec.CommandContext(ctx, d.kubectl, "--kubeconfig", kubeconfig, "create", "-f", "-")
		cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(d.dir, "cache"), "KUBERC=off")
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(certs.RequestManifest(name, node.Node.Name, victim.IP.String())), &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	title(fmt.Sprintf("Node %s asks for a certificate for the address of node %s", node.Node.Name, victim.Node.Name))
	out, err := create("warned")
	fmt.Print(out)
	if err != nil || !strings.Contains(out, "Warning: kubelet-cert-auditor: ForeignAddress") {
		return fmt.Errorf("the request should have been warned about: %w", err)
	}

	title("The same after: kubectl patch kubeletcertaudit cluster --type merge -p '{\"spec\":{\"admission\":{\"mode\":\"Enforce\"}}}'")
	if _, err := d.plane.Kubectl(ctx, nil, "patch", "kubeletcertaudit", "cluster", "--type", "merge", "-p", `{"spec":{"admission":{"mode":"Enforce"}}}`); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ { // the manager hears of it in a moment
		out, err = create(fmt.Sprintf("refused-%d", attempt))
		var exit *exec.ExitError
		if errors.As(err, &exit) && strings.Contains(out, "denied the request: ForeignAddress") {
			fmt.Print(out)
			return nil
		}
		if err != nil || attempt == 20 {
			return fmt.Errorf("the request should have been refused: %w: %s", err, out)
		}
	}
}

func (d *demo) failedOpen(ctx context.Context) (float64, error) {
	_, n, err := d.plane.WebhookCounts(ctx, "kubelet-serving.kubeletcert.dev")
	return n, err
}

// checkRequests: the webhook has answered each time.
func (d *demo) checkRequests(ctx context.Context) error {
	metrics, err := d.metrics(ctx)
	if err != nil {
		return err
	}
	for _, decision := range []string{"warned", "denied", "found"} {
		if !regexp.MustCompile(fmt.Sprintf(`csr_reviews_total{decision=%q,reason="ForeignAddress"} [1-9]`, decision)).MatchString(metrics) {
			return fmt.Errorf("no request was counted as %s for ForeignAddress", decision)
		}
	}
	n, err := d.failedOpen(ctx)
	if err == nil && n != d.failOpen {
		err = fmt.Errorf("the API server went on without the webhook %g times", n-d.failOpen)
	}
	return err
}
