// Package v1alpha1 holds the published words of kubelet-cert-auditor: the
// KubeletCertAudit API, the Node condition, its reasons and the names of the
// checks. It imports nothing of the project.
//
// +kubebuilder:object:generate=true
// +groupName=kubeletcert.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of this package's kinds.
var GroupVersion = schema.GroupVersion{Group: "kubeletcert.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &KubeletCertAudit{}, &KubeletCertAuditList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
