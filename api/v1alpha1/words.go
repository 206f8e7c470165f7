package v1alpha1

import corev1 "k8s.io/api/core/v1"

// ConditionServingCertificateValid is the Node condition that holds a node's
// verdict. Its polarity is positive: True says that a kube-apiserver with the
// CN check of KEP-4872 on would accept the kubelet's serving certificate, False
// that it would refuse it, Unknown that there is no evidence.
const ConditionServingCertificateValid corev1.NodeConditionType = "KubeletServingCertificateValid"

// Reason is the one word that names a verdict: the first thing that
// kube-apiserver itself would report.
type Reason string

const (
	// ReasonVerified (True): every check passes.
	ReasonVerified Reason = "Verified"

	// ReasonCommonNameMismatch (False): kube-apiserver accepts the certificate
	// today and refuses it once it checks the common name. Reissue it through
	// the kubernetes.io/kubelet-serving signer.
	ReasonCommonNameMismatch Reason = "CommonNameMismatch"
	// ReasonUnknownAuthority (False): no chain leads to a certificate of the
	// trust bundle. Have the certificate issued by that CA, or fix the bundle.
	ReasonUnknownAuthority Reason = "UnknownAuthority"
	// ReasonAddressMismatch (False): the certificate does not name the address
	// that kube-apiserver dials. Reissue it with that address as a SAN, or
	// change --kubelet-preferred-address-types.
	ReasonAddressMismatch Reason = "AddressMismatch"
	// ReasonCertificateExpired (False): the certificate, or a CA that it needs,
	// has expired; the message says which.
	ReasonCertificateExpired Reason = "CertificateExpired"
	// ReasonCertificateNotYetValid (False): the certificate, or a CA that it
	// needs, is valid only later. Check the clocks.
	ReasonCertificateNotYetValid Reason = "CertificateNotYetValid"
	// ReasonKeyUsageMismatch (False): the certificate or its issuer is not
	// good for server authentication.
	ReasonKeyUsageMismatch Reason = "KeyUsageMismatch"
	// ReasonCertificateInvalid (False): crypto/x509 or crypto/tls refuses the
	// certificate for another reason, which the message gives.
	ReasonCertificateInvalid Reason = "CertificateInvalid"
	// ReasonNoServingCertificate (False; Unknown while the Node is young): the
	// kubelet has no serving certificate yet. Approve its request.
	ReasonNoServingCertificate Reason = "NoServingCertificate"
	// ReasonNotTLS (False): something answered that does not speak TLS.
	ReasonNotTLS Reason = "NotTLS"
	// ReasonHandshakeFailed (False): no common TLS version, suite or signature
	// scheme, a signature that does not match, or any other TLS alert.
	ReasonHandshakeFailed Reason = "HandshakeFailed"

	// ReasonNoAddress (Unknown): the Node reports no address of the preferred
	// types.
	ReasonNoAddress Reason = "NoAddress"
	// ReasonAddressNotAllowed (Unknown): the address is loopback, link-local,
	// multicast or unspecified, and is not dialled.
	ReasonAddressNotAllowed Reason = "AddressNotAllowed"
	// ReasonNameResolutionFailed (Unknown): the host name did not resolve here.
	ReasonNameResolutionFailed Reason = "NameResolutionFailed"
	// ReasonConnectionFailed (Unknown): refused or unreachable.
	ReasonConnectionFailed Reason = "ConnectionFailed"
	// ReasonConnectionClosed (Unknown): closed or reset before a verdict was
	// possible.
	ReasonConnectionClosed Reason = "ConnectionClosed"
	// ReasonProbeTimeout (Unknown): no answer in time.
	ReasonProbeTimeout Reason = "ProbeTimeout"
	// ReasonNoTrustBundle (Unknown): there is no CA to judge by.
	ReasonNoTrustBundle Reason = "NoTrustBundle"
	// ReasonNotProbedYet (Unknown): not looked at yet under the present
	// settings.
	ReasonNotProbedYet Reason = "NotProbedYet"
)

// Reasons lists every reason, in the order of the documentation.
func Reasons() []Reason {
	return []Reason{
		ReasonVerified,
		ReasonCommonNameMismatch, ReasonUnknownAuthority, ReasonAddressMismatch, ReasonCertificateExpired,
		ReasonCertificateNotYetValid, ReasonKeyUsageMismatch, ReasonCertificateInvalid, ReasonNoServingCertificate,
		ReasonNotTLS, ReasonHandshakeFailed,
		ReasonNoAddress, ReasonAddressNotAllowed, ReasonNameResolutionFailed, ReasonConnectionFailed,
		ReasonConnectionClosed, ReasonProbeTimeout, ReasonNoTrustBundle, ReasonNotProbedYet,
	}
}

// Runbooks is where the page of each reason and of each alert is, as NAME.md.
const Runbooks = "https://github.com/kubelet-cert-auditor/kubelet-cert-auditor/blob/main/docs/runbooks/"

// Page is the address of the reason's runbook: meaning, diagnosis, remedy.
func (r Reason) Page() string { return Runbooks + string(r) + ".md" }

// CheckName names one of the five checks of a serving certificate.
type CheckName string

// The first four are what kube-apiserver verifies today once it has
// --kubelet-certificate-authority; CommonName is the rule of KEP-4872.
const (
	CheckChain      CheckName = "Chain"
	CheckAddress    CheckName = "Address"
	CheckValidity   CheckName = "Validity"
	CheckKeyUsage   CheckName = "KeyUsage"
	CheckCommonName CheckName = "CommonName"
)

// CheckNames lists the checks in the order in which they are shown.
func CheckNames() []CheckName {
	return []CheckName{CheckChain, CheckAddress, CheckValidity, CheckKeyUsage, CheckCommonName}
}

// Condition types of a KubeletCertAudit.
const (
	// AuditReadyToEnforce: True when every node is verified, False when at
	// least one would be refused or a kube-apiserver cannot check the common name,
	// Unknown otherwise.
	AuditReadyToEnforce = "ReadyToEnforce"
	// AuditTrustBundleLoaded: False when the CA bundle of the spec could not be
	// read; the last good copy of the same source, if any, stays in use.
	AuditTrustBundleLoaded = "TrustBundleLoaded"
	// AuditKubeletCA: True when every kube-apiserver that can be seen verifies
	// kubelets' certificates, False when one does not, so that the CN check
	// cannot be turned on there; Unknown where they cannot be seen.
	AuditKubeletCA = "KubeletCertificateAuthorityConfigured"
)

// Reasons of the conditions of a KubeletCertAudit.
const (
	AuditReasonAllNodesVerified   = "AllNodesVerified"
	AuditReasonNodesWouldBreak    = "NodesWouldBreak"
	AuditReasonNodesRejectedToday = "NodesRejectedToday"
	AuditReasonNodesUnknown       = "NodesUnknown"
	AuditReasonNodesExcluded      = "NodesExcluded"
	AuditReasonNoNodes            = "NoNodes"
	AuditReasonSweepOverdue       = "SweepOverdue"
	AuditReasonAPIServerDiffers   = "APIServerDiffers"

	AuditReasonLoaded         = "Loaded"
	AuditReasonSomeUnreadable = "SomeCertificatesSkipped"
	AuditReasonKeptLastGood   = "KeptLastGood"
	AuditReasonNotLoaded      = "NotLoaded"

	AuditReasonFlagSet       = "FlagSet"
	AuditReasonFlagMissing   = "FlagMissing"
	AuditReasonNotVisible    = "NotVisible"
	AuditReasonNotAllowed    = "NotAllowed"
	AuditReasonNotUnderstood = "NotUnderstood"
)
