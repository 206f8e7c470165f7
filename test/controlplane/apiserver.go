package controlplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// Names of files in the directory.
const (
	clusterCA       = "ca.crt"
	apiServerCert   = "kube-apiserver.crt"
	apiServerKey    = "kube-apiserver.key"
	tokenKey        = "service-account.key"
	auditPolicy     = "audit-policy.yaml"
	auditLog        = "audit.log"
	adminKubeconfig = "admin.kubeconfig"
)

// pollTimeout bounds one question to a process that may not answer yet.
const pollTimeout = 2 * time.Second

// everyRequest writes one event per request (a long-running one, such as a
// watch, has two), never a body.
const everyRequest = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// writeAPIServerFiles writes what the API server's flags name.
func (c *ControlPlane) writeAPIServerFiles() error {
	served := c.ca.Issue(serverTemplate("kube-apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc"))
	signer, err := newTokenKey()
	if err != nil {
		return err
	}
	return c.writeFiles(map[string][]byte{
		clusterCA:     c.ca.PEM(),
		apiServerCert: served.CertificatePEM(),
		apiServerKey:  served.KeyPEM(),
		tokenKey:      signer,
		auditPolicy:   []byte(everyRequest),
	})
}

// firstAPIServer chooses the port and the flags that each later start reuses.
func (c *ControlPlane) firstAPIServer(ctx context.Context, opts Options) error {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return err
	}
	c.admin = c.userConfig("https://"+net.JoinHostPort(loopback, ports[0]), "admin", "system:masters")
	c.apiServerArgs = append(c.apiServerFlags(ports[0]), opts.APIServerArgs...)
	return c.runAPIServer(ctx)
}

func (c *ControlPlane) apiServerFlags(port string) []string {
	flags := []string{
		"--etcd-servers=" + c.etcdURL,
		"--etcd-cafile=" + c.path(etcdCA),
		"--etcd-certfile=" + c.path(etcdCert),
		"--etcd-keyfile=" + c.path(etcdKey),
		"--bind-address=" + loopback,
		"--secure-port=" + port,
		// Endpoints of the Service kubernetes cannot be loopback addresses.
		"--endpoint-reconciler-type=none",
		"--cert-dir=" + c.path("certs"),
		"--tls-cert-file=" + c.path(apiServerCert),
		"--tls-private-key-file=" + c.path(apiServerKey),
		"--client-ca-file=" + c.path(clusterCA),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.path(tokenKey),
		"--service-account-signing-key-file=" + c.path(tokenKey),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		// It refuses every Pod in a namespace without a ServiceAccount
		// "default", also one that mounts no token, and no controller manager
		// is here to create those.
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged",
		// By default a stop waits a minute for the watches of clients to end.
		"--shutdown-watch-termination-grace-period=1s",
	}
	if c.audit {
		flags = append(flags,
			"--audit-policy-file="+c.path(auditPolicy),
			"--audit-log-path="+c.path(auditLog),
			// Nothing is lost when the API server is killed, and AuditEvents
			// finds all of it in one file.
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=0",
		)
	}
	return flags
}

// runAPIServer starts the API server and returns when it is ready. On an error
// it does not run.
func (c *ControlPlane) runAPIServer(ctx context.Context) error {
	client, err := rest.HTTPClientFor(c.pollConfig())
	if err != nil {
		return fmt.Errorf("prepare a client of kube-apiserver: %w", err)
	}
	defer client.CloseIdleConnections()
	c.apiServer, err = launch(filepath.Join(c.assets, "kube-apiserver"), c.dir, c.apiServerArgs)
	if err != nil {
		return err
	}
	err = c.apiServer.await(ctx, func(ctx context.Context) error {
		if err := answersOK(ctx, client, c.admin.Host+"/readyz"); err != nil {
			return err
		}
		return answersOK(ctx, client, c.admin.Host+"/api/v1/namespaces/default")
	})
	if err != nil {
		_ = c.apiServer.kill() // the reason to give is err
	}
	return err
}

func (c *ControlPlane) pollConfig() *rest.Config {
	cfg := rest.CopyConfig(c.admin)
	cfg.Timeout = pollTimeout
	cfg.UserAgent = "controlplane"
	return cfg
}

// answersOK is nil when a GET of url answers 200.
func answersOK(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 2<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return nil
}
