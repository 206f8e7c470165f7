package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// clusterFlags are kubectl's connection flags for what has no namespace.
func clusterFlags() *genericclioptions.ConfigFlags {
	connection := genericclioptions.NewConfigFlags(true)
	connection.Namespace = nil
	return connection
}

// addConnectionFlags adds kubectl's, but for those of its cache, which we do
// not use.
func addConnectionFlags(flags *pflag.FlagSet, connection *genericclioptions.ConfigFlags) {
	connection.CacheDir = nil
	connection.AddFlags(flags)
}

// connect reads the kubeconfig and the flags, without any request.
func connect(connection *genericclioptions.ConfigFlags) (*rest.Config, error) {
	if d, err := clientcmd.ParseTimeout(*connection.Timeout); err != nil || d < 0 {
		return nil, fmt.Errorf("--request-timeout=%q: must be seconds, or a duration like 30s, and not below zero", *connection.Timeout)
	}
	config, err := connection.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return config, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

// newClient makes a client for Nodes, requests and our own kind. It knows where these are
// served: to discover that would take requests that do not end with their
// context.
func newClient(config *rest.Config) (client.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("KubeletCertAudit"), meta.RESTScopeRoot)
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100 // client-go's five per second would take an hour for 15,000 nodes
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}
