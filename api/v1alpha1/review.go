package v1alpha1

// ReviewReason is the one word that names what is wrong with a request for a
// kubelet serving certificate.
type ReviewReason string

const (
	// ReviewMalformedRequest: no PEM certificate request, something after it, or
	// a signature that does not match.
	ReviewMalformedRequest ReviewReason = "MalformedRequest"
	// ReviewRequesterNotNode: the authenticated user is not system:node:<name> in
	// the group system:nodes. Software other than kubelets uses the signer too.
	ReviewRequesterNotNode ReviewReason = "RequesterNotNode"
	// ReviewCommonNameNotRequester: the common name is not the user's name.
	ReviewCommonNameNotRequester ReviewReason = "CommonNameNotRequester"
	// ReviewMultipleCommonNames: readers differ on which of them counts.
	ReviewMultipleCommonNames ReviewReason = "MultipleCommonNames"
	// ReviewOrganizationInvalid: the organization is not exactly system:nodes.
	ReviewOrganizationInvalid ReviewReason = "OrganizationInvalid"
	// ReviewUsagesInvalid: not one of the two sets that the signer signs.
	ReviewUsagesInvalid ReviewReason = "UsagesInvalid"
	// ReviewSANRequired: there is neither a DNS name nor an IP address.
	ReviewSANRequired ReviewReason = "SANRequired"
	// ReviewSANTypeForbidden: there is an e-mail address, a URI or another kind
	// of name.
	ReviewSANTypeForbidden ReviewReason = "SANTypeForbidden"
	// ReviewWildcardSAN: a wildcard stands for other nodes too.
	ReviewWildcardSAN ReviewReason = "WildcardSAN"
	// ReviewReservedAddress: a name or address of the API server, or one that
	// means each host itself.
	ReviewReservedAddress ReviewReason = "ReservedAddress"
	// ReviewForeignAddress: another Node reports it. This is the attack that
	// KEP-4872 describes; or a left-over of a node that is gone.
	ReviewForeignAddress ReviewReason = "ForeignAddress"
	// ReviewAddressNotReported: the requester's own Node does not report it.
	ReviewAddressNotReported ReviewReason = "AddressNotReported"
	// ReviewAddressesUnknown: the requester has no Node yet, or one without
	// addresses; this only ever warns.
	ReviewAddressesUnknown ReviewReason = "AddressesUnknown"
)

// ReviewReasons lists every reason, in the order in which they are reported.
func ReviewReasons() []ReviewReason {
	return []ReviewReason{
		ReviewMalformedRequest, ReviewRequesterNotNode, ReviewCommonNameNotRequester, ReviewMultipleCommonNames,
		ReviewOrganizationInvalid, ReviewUsagesInvalid, ReviewSANRequired, ReviewSANTypeForbidden, ReviewWildcardSAN,
		ReviewReservedAddress, ReviewForeignAddress, ReviewAddressNotReported, ReviewAddressesUnknown,
	}
}

// ReviewDecision is what became of a request that was reviewed.
type ReviewDecision string

const (
	// ReviewAllowed at admission, with nothing to say.
	ReviewAllowed ReviewDecision = "allowed"
	// ReviewWarned: admitted, and its requester was told what is wrong.
	ReviewWarned ReviewDecision = "warned"
	// ReviewDenied: not admitted.
	ReviewDenied ReviewDecision = "denied"
	// ReviewFound: it exists, and something is wrong with it, whether or not
	// its requester was told.
	ReviewFound ReviewDecision = "found"
)

// ReviewDecisions lists every decision.
func ReviewDecisions() []ReviewDecision {
	return []ReviewDecision{ReviewAllowed, ReviewWarned, ReviewDenied, ReviewFound}
}
