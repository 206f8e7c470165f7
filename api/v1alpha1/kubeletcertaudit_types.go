package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AuditName is the only name that a KubeletCertAudit can have.
const AuditName = "cluster"

// AuditFinalizer keeps the object until our condition is gone from every Node.
const AuditFinalizer = "kubeletcert.dev/node-conditions"

// AdmissionMode says what the webhook does with a bad kubelet-serving request.
// +kubebuilder:validation:Enum=Warn;Enforce;Off
type AdmissionMode string

const (
	// AdmissionWarn lets every request pass, with warnings.
	AdmissionWarn AdmissionMode = "Warn"
	// AdmissionEnforce denies bad requests of nodes.
	AdmissionEnforce AdmissionMode = "Enforce"
	// AdmissionOff reviews nothing.
	AdmissionOff AdmissionMode = "Off"
)

// AddressType is a type of a Node's address, as in
// kube-apiserver's --kubelet-preferred-address-types.
// +kubebuilder:validation:Enum=Hostname;InternalDNS;InternalIP;ExternalDNS;ExternalIP
type AddressType string

// AddressTypes lists the types that kube-apiserver knows, in the order of its
// default preference.
func AddressTypes() []AddressType {
	return []AddressType{
		AddressType(corev1.NodeHostName), AddressType(corev1.NodeInternalDNS), AddressType(corev1.NodeInternalIP),
		AddressType(corev1.NodeExternalDNS), AddressType(corev1.NodeExternalIP),
	}
}

// KubeletCertAuditSpec says how the kubelets are probed. Changes apply at once.
type KubeletCertAuditSpec struct {
	// interval is the time between two probes of one node, at least 10s.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="interval must be at least 10s"
	// +optional
	Interval metav1.Duration `json:"interval,omitempty"`

	// timeout bounds one probe: name resolution, connection and handshake.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('5m')",message="timeout must be above 0s and at most 5m"
	// +optional
	Timeout metav1.Duration `json:"timeout,omitempty"`

	// failureThreshold is the number of probes in a row without evidence after
	// which a True or False verdict turns Unknown.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	FailureThreshold int32 `json:"failureThreshold,omitempty"`

	// newNodeGrace is the age of a Node up to which a kubelet without a serving
	// certificate is Unknown instead of False.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="newNodeGrace must not be negative"
	// +optional
	NewNodeGrace metav1.Duration `json:"newNodeGrace,omitempty"`

	// admission configures the review of kubelet-serving certificate requests.
	// +kubebuilder:default={}
	// +optional
	Admission AdmissionSpec `json:"admission,omitempty"`

	// preferredAddressTypes is kube-apiserver's --kubelet-preferred-address-types.
	// +kubebuilder:default={"Hostname","InternalDNS","InternalIP","ExternalDNS","ExternalIP"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +listType=set
	// +optional
	PreferredAddressTypes []AddressType `json:"preferredAddressTypes,omitempty"`

	// kubeletPort is dialled where a Node reports no port of its own.
	// +kubebuilder:default=10250
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	KubeletPort int32 `json:"kubeletPort,omitempty"`

	// nodeSelector restricts the audit to some nodes. While it leaves any out,
	// ReadyToEnforce is at best Unknown: the API server's switch is for all.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['Exists', 'DoesNotExist'] ? !has(e.values) || e.values.size() == 0 : e.operator in ['In', 'NotIn'] && has(e.values) && e.values.size() > 0)",message="matchExpressions must hold In or NotIn with values, or Exists or DoesNotExist without"
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// trustBundle is the CA that kube-apiserver's
	// --kubelet-certificate-authority holds; unset means the cluster CA that
	// the manager's pod mounts.
	// +optional
	TrustBundle *TrustBundleSource `json:"trustBundle,omitempty"`
}

// AdmissionSpec configures the review of kubelet-serving certificate requests.
type AdmissionSpec struct {
	// mode is what happens to a bad request: Warn, Enforce or Off.
	// +kubebuilder:default=Warn
	// +optional
	Mode AdmissionMode `json:"mode,omitempty"`

	// denyNonNodes lets Enforce also deny requesters that are not nodes.
	// +optional
	DenyNonNodes bool `json:"denyNonNodes,omitempty"`
}

// TrustBundleSource is exactly one place of PEM certificates.
// +kubebuilder:validation:XValidation:rule="[has(self.configMap), has(self.file), has(self.inline)].filter(x, x).size() == 1",message="exactly one of configMap, file and inline must be set"
type TrustBundleSource struct {
	// configMap names a ConfigMap in the manager's own namespace.
	// +optional
	ConfigMap *ConfigMapKey `json:"configMap,omitempty"`
	// file is a path in the manager's container.
	// +kubebuilder:validation:MinLength=1
	// +optional
	File string `json:"file,omitempty"`
	// inline is the PEM text itself.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	// +optional
	Inline string `json:"inline,omitempty"`
}

// ConfigMapKey is a key of a ConfigMap.
type ConfigMapKey struct {
	// name of the ConfigMap.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key of the PEM text.
	// +kubebuilder:default="ca.crt"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}

// KubeletCertAuditStatus is the answer.
type KubeletCertAuditStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: ReadyToEnforce and TrustBundleLoaded.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes counts the nodes by what would happen to them.
	// +optional
	Nodes NodeCounts `json:"nodes"`

	// failingNodes lists nodes that are not verified, worst first, at most 100.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +optional
	FailingNodes []FailingNode `json:"failingNodes,omitempty"`

	// trustBundle describes the CA bundle in use.
	// +optional
	TrustBundle TrustBundleStatus `json:"trustBundle"`

	// lastSweepTime is when every node had been probed once more.
	// +optional
	LastSweepTime *metav1.Time `json:"lastSweepTime,omitempty"`
}

// NodeCounts counts nodes by group.
type NodeCounts struct {
	// total of the nodes that are audited.
	Total int32 `json:"total"`
	// verified: accepted with the CN check on.
	Verified int32 `json:"verified"`
	// breaksWhenEnabled: accepted today, refused once the CN check is on.
	BreaksWhenEnabled int32 `json:"breaksWhenEnabled"`
	// rejectedToday: refused with or without the CN check.
	RejectedToday int32 `json:"rejectedToday"`
	// unknown: no evidence.
	Unknown int32 `json:"unknown"`
	// excluded by nodeSelector, not in total.
	Excluded int32 `json:"excluded"`
}

// FailingNode is a node that is not verified.
type FailingNode struct {
	// name of the Node.
	Name string `json:"name"`
	// reason of its condition.
	Reason Reason `json:"reason"`
}

// TrustBundleStatus describes the CA bundle in use.
type TrustBundleStatus struct {
	// source in words, such as "configmap kubelet-ca/ca.crt".
	Source string `json:"source"`
	// sha256 of the certificates, hexadecimal; empty without a bundle.
	SHA256 string `json:"sha256"`
	// certificates that are trusted.
	Certificates int32 `json:"certificates"`
	// warnings about what was skipped or could not be read.
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`
}

// KubeletCertAudit asks for the audit of every kubelet's serving certificate
// and holds the answer. There is one, named "cluster".
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=kca
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="there is one KubeletCertAudit, named cluster"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="ReadyToEnforce")].status`,description="Is it safe to turn the CN check on?"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="ReadyToEnforce")].reason`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.total`
// +kubebuilder:printcolumn:name="Verified",type=integer,JSONPath=`.status.nodes.verified`
// +kubebuilder:printcolumn:name="Breaks",type=integer,JSONPath=`.status.nodes.breaksWhenEnabled`
// +kubebuilder:printcolumn:name="Rejected",type=integer,JSONPath=`.status.nodes.rejectedToday`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.nodes.unknown`
// +kubebuilder:printcolumn:name="Excluded",type=integer,JSONPath=`.status.nodes.excluded`,priority=1
// +kubebuilder:printcolumn:name="Bundle",type=string,JSONPath=`.status.trustBundle.source`,priority=1
// +kubebuilder:printcolumn:name="Last sweep",type=date,JSONPath=`.status.lastSweepTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type KubeletCertAudit struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Spec KubeletCertAuditSpec `json:"spec,omitempty"`
	// +optional
	Status KubeletCertAuditStatus `json:"status,omitempty"`
}

// KubeletCertAuditList is a list of KubeletCertAudit.
//
// +kubebuilder:object:root=true
type KubeletCertAuditList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []KubeletCertAudit `json:"items"`
}
