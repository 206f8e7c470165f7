package verdict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// APIServer is what one kube-apiserver is configured to do with kubelets.
type APIServer struct {
	// Name of its Pod.
	Name string
	// CertificateAuthority is the file of --kubelet-certificate-authority; empty
	// where no kubelet's certificate is verified.
	CertificateAuthority string
	// PreferredAddressTypes as given, or kube-apiserver's default.
	PreferredAddressTypes []string
	// CommonNameCheck says that the check of KEP-4872 is on.
	CommonNameCheck bool
}

// APIServers is what can be seen of all of them. The zero value says that none
// can, as where the control plane is managed.
type APIServers struct {
	Seen []APIServer
	// Obscure Pods run kube-apiserver in a way that is not understood.
	Obscure []string
	// NotAllowed: their Pods may not be read.
	NotAllowed bool
}

// APIServersAnswer is what follows from APIServers.
type APIServersAnswer struct {
	// Status says whether kubelets' certificates are verified: by each
	// kube-apiserver (True), not by each (False), or nobody knows.
	Status  Status
	Reason  string
	Message string
	// Unverifying, Differing and Checking are the names of those that verify no
	// kubelet, that dial by other addresses than those that were judged, and that
	// check the common name already.
	Unverifying, Differing, Checking []string
}

// AtBest is the answer that they allow, however good the nodes are: NotReady where
// one cannot check common names, since the check of KEP-4872 needs
// --kubelet-certificate-authority (by the KEP's own validation of flags), but
// would be right about everything else; Unknown where one dials other addresses
// than those that verdicts are about.
func (a APIServersAnswer) AtBest(what What) Readiness {
	switch {
	case len(a.Unverifying) > 0 && what != WhatTLS:
		return NotReady
	case len(a.Differing) > 0:
		return ReadinessUnknown
	}
	return Ready
}

// JudgeAPIServers compares them with the address types that nodes are judged by.
func JudgeAPIServers(a APIServers, preferredAddressTypes []string) APIServersAnswer {
	var answer APIServersAnswer
	var files []string
	for _, s := range a.Seen {
		switch {
		case s.CertificateAuthority == "":
			answer.Unverifying = append(answer.Unverifying, s.Name)
		case !slices.Contains(files, Quote(s.CertificateAuthority)):
			files = append(files, Quote(s.CertificateAuthority))
		}
		if !slices.Equal(s.PreferredAddressTypes, preferredAddressTypes) {
			answer.Differing = append(answer.Differing, fmt.Sprintf("%s (%s)", s.Name, Quote(strings.Join(s.PreferredAddressTypes, ","))))
		}
		if s.CommonNameCheck {
			answer.Checking = append(answer.Checking, s.Name)
		}
	}
	switch {
	case len(answer.Unverifying) > 0:
		answer.Status, answer.Reason = False, v1alpha1.AuditReasonFlagMissing
		answer.Message = fmt.Sprintf("without --kubelet-certificate-authority, so that no kubelet's certificate is verified and the CN check cannot be turned on: %s", someOf(answer.Unverifying))
	case a.NotAllowed:
		answer.Reason, answer.Message = v1alpha1.AuditReasonNotAllowed, "kube-apiserver's Pods may not be read"
	case len(a.Obscure) > 0:
		answer.Reason = v1alpha1.AuditReasonNotUnderstood
		answer.Message = "kube-apiserver's flags cannot be told from: " + someOf(a.Obscure)
	case len(a.Seen) == 0:
		answer.Reason, answer.Message = v1alpha1.AuditReasonNotVisible, "no Pod of kube-apiserver is visible, as where the control plane is managed"
	default:
		answer.Status, answer.Reason = True, v1alpha1.AuditReasonFlagSet
		answer.Message = fmt.Sprintf("kubelets' certificates are verified by %s; its content cannot be read, so compare it with the trust bundle", someOf(files))
	}
	if len(answer.Differing) > 0 {
		answer.Message += "; other --kubelet-preferred-address-types than those judged by: " + someOf(answer.Differing)
	}
	if len(answer.Checking) > 0 {
		answer.Message += "; the CN check is on: " + someOf(answer.Checking)
	}
	answer.Message = Bounded(answer.Message)
	return answer
}

// someOf lists a few.
func someOf(words []string) string {
	if len(words) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:maxNames], ", "), len(words)-maxNames)
	}
	return strings.Join(words, ", ")
}
