package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// MountSecret does what a kubelet does for a Pod that mounts a Secret, only
// sooner: the files of dir are those of the Secret, all of them replaced at
// once, until stop. The Secret may come later, and be empty.
func (c *ControlPlane) MountSecret(namespace, name, dir string) (stop func(), err error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}))
	write := func(object any) {
		if secret, ok := object.(*corev1.Secret); ok {
			if err := writeAtomically(dir, secret.Data); err != nil {
				panic(fmt.Sprintf("mount secret %s/%s: %v", namespace, name, err)) // a full disk
			}
		}
	}
	if _, err := factory.Core().V1().Secrets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: write, UpdateFunc: func(_, object any) { write(object) },
	}); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	factory.Start(done)
	return func() { close(done); factory.Shutdown() }, nil
}

// writeAtomically is the kubelet's way: the files are links into a directory
// that one rename replaces.
func writeAtomically(dir string, files map[string][]byte) error {
	fresh, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(fresh, name), content, 0o600); err != nil {
			return err
		}
	}
	data := filepath.Join(dir, "..data")
	old, _ := os.Readlink(data)
	if err := errors.Join(os.Symlink(filepath.Base(fresh), data+"_tmp"), os.Rename(data+"_tmp", data)); err != nil {
		return err
	}
	for name := range files {
		link := filepath.Join(dir, name)
		if err := os.Symlink(filepath.Join("..data", name), link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(dir, old))
	}
	return nil
}

// ReachWebhook makes the API server call the first webhook of a
// ValidatingWebhookConfiguration by URL: there is no Service network.
func (c *ControlPlane) ReachWebhook(ctx context.Context, configuration, url string) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "remove", "path": "/webhooks/0/clientConfig/service"},
		{"op": "add", "path": "/webhooks/0/clientConfig/url", "value": url},
	})
	if err != nil {
		return err
	}
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(ctx, configuration, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// WebhookReady waits until the API server has been told the webhook's CA, that
// is, for the caBundle of a ValidatingWebhookConfiguration.
func (c *ControlPlane) WebhookReady(ctx context.Context, configuration string) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		found, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, configuration, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(found.Webhooks[0].ClientConfig.CABundle) > 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the CA of webhook %s: %w", configuration, context.Cause(ctx))
		}
	}
}

// WebhookCounts are how often the API server has called a webhook, by its name
// in the configuration, and how often it went on without an answer.
func (c *ControlPlane) WebhookCounts(ctx context.Context, webhook string) (calls, failedOpen float64, err error) {
	name := fmt.Sprintf("name=%q", webhook)
	if calls, err = c.metric(ctx, "apiserver_admission_webhook_request_total", name); err == nil {
		failedOpen, err = c.metric(ctx, "apiserver_admission_webhook_fail_open_count", name)
	}
	return calls, failedOpen, err
}

// metric is the sum of those series of one of the API server's metrics that hold
// each of the labels, such as `name="x"`; zero where there is none.
func (c *ControlPlane) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return 0, err
	}
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	var sum float64
line:
	for line := range strings.Lines(string(text)) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if family, _, _ := strings.Cut(series, "{"); !ok || family != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue line
			}
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("the API server's metric %s: %w", name, err)
		}
		sum += number
	}
	return sum, nil
}
