package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/test/certs"
)

// Names of files in the directory.
const (
	etcdData = "etcd"
	etcdCA   = "etcd-ca.crt"
	etcdCert = "etcd.crt"
	etcdKey  = "etcd.key"
)

// startEtcd starts etcd and returns when it answers. Its port speaks TLS with a
// CA of its own: neither this process nor the API server can take somebody
// else's etcd, which was faster to get the port, for ours.
func (c *ControlPlane) startEtcd(ctx context.Context) error {
	ca, err := newCA("etcd-ca")
	if err != nil {
		return fmt.Errorf("make etcd's CA: %w", err)
	}
	// One certificate for etcd and for its only client.
	template := serverTemplate("etcd")
	template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	served := ca.Issue(template)
	if err := c.writeFiles(map[string][]byte{
		etcdCA:   ca.PEM(),
		etcdCert: served.CertificatePEM(),
		etcdKey:  served.KeyPEM(),
	}); err != nil {
		return fmt.Errorf("write the files of etcd: %w", err)
	}
	client, err := etcdClient(ca.PEM(), served)
	if err != nil {
		return fmt.Errorf("prepare a client of etcd: %w", err)
	}
	defer client.CloseIdleConnections()
	return retryTakenPort(func() error { return c.runEtcd(ctx, client) })
}

func (c *ControlPlane) runEtcd(ctx context.Context, client *http.Client) error {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return err
	}
	clientURL := "https://" + net.JoinHostPort(loopback, ports[0])
	peerURL := "http://" + net.JoinHostPort(loopback, ports[1])
	// An attempt before this one may have left data that names its ports.
	if err := os.RemoveAll(c.path(etcdData)); err != nil {
		return err
	}
	c.etcd, err = launch(filepath.Join(c.assets, "etcd"), c.dir, []string{
		"--name=controlplane",
		"--data-dir=" + c.path(etcdData),
		"--listen-client-urls=" + clientURL,
		"--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=controlplane=" + peerURL,
		"--cert-file=" + c.path(etcdCert),
		"--key-file=" + c.path(etcdKey),
		"--trusted-ca-file=" + c.path(etcdCA),
		"--client-cert-auth",
		"--unsafe-no-fsync", // the data need not outlive a crash of the machine
		// A cluster of one waits this long to elect itself: a tenth of the
		// default, which saves half a second.
		"--heartbeat-interval=10",
		"--election-timeout=100",
		"--quota-backend-bytes=8589934592", // 100,000 realistic Nodes, each written twice, are more than the default
		"--log-level=warn",
	})
	if err != nil {
		return err
	}
	c.etcdURL = clientURL
	return c.etcd.await(ctx, func(ctx context.Context) error { return answersOK(ctx, client, clientURL+"/health") })
}

func etcdClient(ca []byte, identity certs.Served) (*http.Client, error) {
	pair, err := tls.X509KeyPair(identity.CertificatePEM(), identity.KeyPEM())
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("no certificate in the CA's PEM")
	}
	return &http.Client{
		Timeout:   pollTimeout,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}},
	}, nil
}
