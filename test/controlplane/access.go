package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds is how long a ServiceAccount's token is good for: a day, as a
// demo may be left running.
const tokenSeconds = 24 * 60 * 60

// Config is a new configuration for the user "admin", who may do everything.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.admin) }

// UserConfig is a new configuration with a client certificate for any user,
// such as system:node:n1 in system:nodes. What the user may do is up to the
// cluster.
func (c *ControlPlane) UserConfig(user string, groups ...string) *rest.Config {
	return c.userConfig(c.admin.Host, user, groups...)
}

func (c *ControlPlane) userConfig(host, user string, groups ...string) *rest.Config {
	cfg := c.anonymousConfig(host)
	identity := c.ca.Issue(userTemplate(user, groups...))
	cfg.CertData, cfg.KeyData = identity.CertificatePEM(), identity.KeyPEM()
	return cfg
}

func (c *ControlPlane) anonymousConfig(host string) *rest.Config {
	return &rest.Config{
		Host:            host,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.PEM()},
		// The client is not to be what a test waits for.
		QPS:   1000,
		Burst: 2000,
	}
}

// ServiceAccountConfig is a new configuration with a token, good for a day, of
// a ServiceAccount, and no client certificate. It errs when the API server
// issues none, such as for a ServiceAccount that does not exist.
func (c *ControlPlane) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token for %s/%s: %w", namespace, name, err)
	}
	cfg := c.anonymousConfig(c.admin.Host)
	cfg.BearerToken = answer.Status.Token
	return cfg, nil
}

// WriteKubeconfig writes the address, CA, client certificate and token of cfg as
// a kubeconfig that names no other file, readable by its owner alone. A file
// that exists is replaced at once, never half; its directory has to exist.
func (*ControlPlane) WriteKubeconfig(path string, cfg *rest.Config) error {
	content, err := kubeconfig(cfg)
	if err == nil {
		err = replaceFile(path, content)
	}
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

func kubeconfig(cfg *rest.Config) ([]byte, error) {
	const name = "controlplane"
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, err
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   cfg.Host,
			TLSServerName:            cfg.ServerName,
			InsecureSkipTLSVerify:    cfg.Insecure,
			CertificateAuthorityData: cfg.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: cfg.CertData,
			ClientKeyData:         cfg.KeyData,
			Token:                 cfg.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Kubectl runs the kubectl next to the API server's binary, as the admin, and
// returns its stdout. stdin may be nil. The error holds the stderr. When ctx
// ends kubectl is interrupted, and killed a few seconds later.
func (c *ControlPlane) Kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(c.assets, "kubectl"), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	// Nothing of the user's own: no kubeconfig, cache or preferences.
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.path(adminKubeconfig),
		"KUBECACHEDIR="+c.path("kubectl-cache"),
		"KUBERC=off",
	)
	cmd.SysProcAttr = processAttributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 3 * time.Second
	// The parent-death signal is bound to the thread that forks: see launch.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // rather than how kubectl took the signal
		}
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
