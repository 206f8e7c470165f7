package apiserver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/apiserver"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

func pod(command ...string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver-a"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-apiserver", Command: command}}},
	}
}

func TestOf(t *testing.T) {
	defaults := []string{"Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"}
	server := func(ca string, check bool, types ...string) verdict.APIServers {
		if types == nil {
			types = defaults
		}
		return verdict.APIServers{Seen: []verdict.APIServer{
			{Name: "kube-apiserver-a", CertificateAuthority: ca, PreferredAddressTypes: types, CommonNameCheck: check}}}
	}
	obscure := verdict.APIServers{Obscure: []string{"kube-apiserver-a"}}
	inArgs := pod("/usr/local/bin/kube-apiserver")
	inArgs.Spec.Containers[0].Args = []string{"--kubelet-certificate-authority=/ca.crt"}
	second := pod("kube-apiserver")
	second.Spec.Containers = append([]corev1.Container{{Command: []string{"konnectivity-server"}}}, second.Spec.Containers...)
	leaving, failed := pod("kube-apiserver"), pod("kube-apiserver")
	leaving.DeletionTimestamp, failed.Status.Phase = &metav1.Time{}, corev1.PodFailed

	for name, c := range map[string]struct {
		pod  corev1.Pod
		want verdict.APIServers
	}{
		"kubeadm's": {
			pod("kube-apiserver", "--kubelet-client-key=/k", "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname"),
			server("", false, "InternalIP", "ExternalIP", "Hostname"),
		},
		"with a CA":           {pod("kube-apiserver", "--kubelet-certificate-authority=/pki/ca.crt"), server("/pki/ca.crt", false)},
		"its value apart":     {pod("kube-apiserver", "--kubelet-certificate-authority", "/pki/ca.crt", "--v", "2"), server("/pki/ca.crt", false)},
		"the last one counts": {pod("kube-apiserver", "--kubelet-certificate-authority=/a", "--kubelet-certificate-authority="), server("", false)},
		"a list grows": {
			pod("kube-apiserver", "--kubelet-preferred-address-types=InternalIP", "--kubelet-preferred-address-types=ExternalIP,Hostname"),
			server("", false, "InternalIP", "ExternalIP", "Hostname"),
		},
		"with underscores":       {pod("kube-apiserver", "--kubelet_certificate_authority=/a_b"), server("/a_b", false)},
		"in args":                {inArgs, server("/ca.crt", false)},
		"not the first":          {second, server("", false)},
		"the check on":           {pod("kube-apiserver", "--enable-kubelet-cert-cn-validation"), server("", true)},
		"the check on, in words": {pod("kube-apiserver", "--enable-kubelet-cert-cn-validation=true"), server("", true)},
		"the check off":          {pod("kube-apiserver", "--enable-kubelet-cert-cn-validation=false"), server("", false)},
		"a shell":                {pod("sh", "-c", "exec kube-apiserver --kubelet-certificate-authority=/ca"), obscure},
		"no command":             {pod(), obscure},
		"from the environment":   {pod("kube-apiserver", "--kubelet-certificate-authority=$(CA)"), obscure},
		"another variable":       {pod("kube-apiserver", "--advertise-address=$(IP)"), server("", false)},
		"leaving":                {leaving, verdict.APIServers{}},
		"failed":                 {failed, verdict.APIServers{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, apiserver.Of([]corev1.Pod{c.pod})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
