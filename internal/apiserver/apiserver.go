// Package apiserver reads how kube-apiserver is configured to verify kubelets,
// where its Pods are visible. It never guesses: what it does not understand it
// says so of.
package apiserver

import (
	"context"
	"path"
	"regexp"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Where the static Pods are that kubeadm and those like it make
// (kubernetes.io/docs/reference/setup-tools/kubeadm/implementation-details).
const (
	namespace = "kube-system"
	component = "kube-apiserver"
)

// Reader looks at the Pods.
type Reader struct {
	// Live reads past the cache, which holds no Pods.
	Live client.Reader
	// Ask, if set, is asked first whether that is allowed, so that nobody finds
	// refused requests in the API server's audit log.
	Ask client.Writer
}

// Look reads what is to be seen now; without the right to, that is nothing.
func (r *Reader) Look(ctx context.Context) (verdict.APIServers, error) {
	if r.Ask != nil {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "pods"},
		}}
		if err := r.Ask.Create(ctx, review); err != nil {
			return verdict.APIServers{}, err
		}
		if !review.Status.Allowed {
			return verdict.APIServers{NotAllowed: true}, nil
		}
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"component": component}); err != nil {
		return verdict.APIServers{}, err
	}
	return Of(pods.Items), nil
}

// Of reads the Pods of kube-apiserver.
func Of(pods []corev1.Pod) verdict.APIServers {
	var all verdict.APIServers
	for i := range pods {
		pod := &pods[i]
		switch server, ok := flagsOf(pod); {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		case ok:
			all.Seen = append(all.Seen, server)
		default:
			all.Obscure = append(all.Obscure, pod.Name)
		}
	}
	return all
}

// commonNameFlag is how the KEP names the switch, in all its revisions.
var commonNameFlag = regexp.MustCompile(`^enable-kubelet-cert(ificate)?-cn-validation$`)

// flagsOf reads the command line of the container kube-apiserver, if it is one:
// a shell or another program around it may do anything.
func flagsOf(pod *corev1.Pod) (verdict.APIServer, bool) {
	server := verdict.APIServer{Name: pod.Name}
	for _, t := range kubelet.DefaultPreferredAddressTypes() {
		server.PreferredAddressTypes = append(server.PreferredAddressTypes, string(t))
	}
	for _, c := range pod.Spec.Containers {
		line := append(append([]string{}, c.Command...), c.Args...)
		if len(line) == 0 || path.Base(line[0]) != component {
			continue
		}
		for name, values := range flags(line[1:]) {
			value := values[len(values)-1] // the last one counts, but of a list, which grows
			switch {
			case strings.Contains(strings.Join(values, ""), "$("): // set from the container's environment
				if name == "kubelet-certificate-authority" || name == "kubelet-preferred-address-types" {
					return server, false
				}
			case name == "kubelet-certificate-authority":
				server.CertificateAuthority = value
			case name == "kubelet-preferred-address-types":
				server.PreferredAddressTypes = strings.Split(strings.Join(values, ","), ",")
			case commonNameFlag.MatchString(name):
				on, err := strconv.ParseBool(value)
				server.CommonNameCheck = on && err == nil
			}
		}
		return server, true
	}
	return server, false
}

// flags reads a command line as kube-apiserver does, for flags that take a value,
// and gives each flag's values in their order. One without a value is true;
// underscores in a name are dashes (k8s.io/component-base/cli/flag).
func flags(args []string) map[string][]string {
	found := map[string][]string{}
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "--")
		if !isFlag {
			continue
		}
		name, value, given := strings.Cut(name, "=")
		if !given {
			value = "true"
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
				value = args[i]
			}
		}
		name = strings.ReplaceAll(name, "_", "-")
		found[name] = append(found[name], value)
	}
	return found
}
