package audit

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Kinds of findings.
const (
	FindingNoKubeletCA       = "KubeletsNotVerified"
	FindingAddressTypes      = "AddressTypesDiffer"
	FindingCheckIsOn         = "CheckIsOn"
	FindingFlagsObscure      = "FlagsNotUnderstood"
	FindingIssuerNotInBundle = "IssuerNotInBundle"
	FindingBareNodeNames     = "BareNodeNames"
	FindingSelfSigned        = "SelfSignedFallback"
	FindingOtherIdentity     = "OtherNodesIdentity"
	FindingAbsentIdentity    = "AbsentNodesIdentity"
	FindingSharedCertificate = "SharedCertificate"
	FindingSharedAddress     = "SharedAddress"
	FindingLargeHelloDropped = "LargeClientHelloDropped"
	FindingVirtualKubelets   = "VirtualKubelets"
	FindingLongNodeNames     = "LongNodeNames"
	FindingSameIssuer        = "SameIssuer"
)

// FindingKinds lists every kind, in the order of the report.
func FindingKinds() []string {
	return []string{
		FindingNoKubeletCA, FindingAddressTypes, FindingCheckIsOn, FindingFlagsObscure,
		FindingIssuerNotInBundle, FindingBareNodeNames, FindingSelfSigned, FindingLargeHelloDropped, FindingOtherIdentity, FindingAbsentIdentity,
		FindingSharedCertificate, FindingSharedAddress, FindingVirtualKubelets, FindingLongNodeNames,
		FindingSameIssuer,
	}
}

// serverFindings are about kube-apiserver rather than nodes.
func serverFindings(a verdict.APIServersAnswer, obscure []string) []Finding {
	var list []Finding
	add := func(kind, message string, names []string) {
		if len(names) > 0 {
			list = append(list, Finding{Kind: kind, Message: message + ": " + strings.Join(names, ", "), Nodes: []string{}})
		}
	}
	add(FindingNoKubeletCA, "kube-apiserver has no --kubelet-certificate-authority, so that it verifies no kubelet today and the CN check cannot be turned on", a.Unverifying)
	add(FindingAddressTypes, "kube-apiserver has other --kubelet-preferred-address-types, so that it may dial other addresses than were judged", a.Differing)
	add(FindingCheckIsOn, "kube-apiserver checks the common name already", a.Checking)
	add(FindingFlagsObscure, "kube-apiserver's flags cannot be told, so that they may be others than were judged by", obscure)
	return list
}

// findings are patterns over nodes; the one that explains most leads.
func findings(all []*seen, bundle verdict.Bundle) []Finding {
	var list []Finding
	list = append(list, issuerNotInBundle(all, bundle)...)
	list = append(list, habits(all)...)
	list = append(list, pathFindings(all)...)
	list = append(list, otherIdentities(all)...)
	list = append(list, shared(all, FindingSharedCertificate, "one certificate is served for several nodes", certificateKey)...)
	list = append(list, shared(all, FindingSharedAddress, "one address is reported by several nodes", addressKey)...)
	list = append(list, remarks(all)...)
	switch {
	case bundle.Empty():
		list = append(list, shared(all, FindingSameIssuer, "several certificates come from one issuer, whose CA was not given", issuerKey)...)
	case len(list) == 0 || list[0].Kind != FindingIssuerNotInBundle:
		list = append(list, shared(all, FindingSameIssuer, "several certificates, not all, come from one issuer that is not in the trust bundle",
			func(s *seen) string { return missingIssuerKey(s, bundle) })...)
	}
	return list
}

// issuerNotInBundle blames the bundle rather than the nodes where every node
// that showed a certificate has the one issuer that the bundle lacks.
func issuerNotInBundle(all []*seen, bundle verdict.Bundle) []Finding {
	if bundle.Empty() {
		return nil
	}
	var issuer []byte
	var name string
	var nodes []string
	for _, s := range all {
		if s.Certificate == nil {
			continue
		}
		if !s.chainFailed {
			return nil
		}
		top := s.chain[len(s.chain)-1]
		if issuer != nil && !bytes.Equal(issuer, top.RawIssuer) || vouchedFor(top, bundle) {
			return nil
		}
		issuer, name = top.RawIssuer, top.Issuer.String()
		nodes = append(nodes, s.Name)
	}
	if len(nodes) < 2 {
		return nil
	}
	return []Finding{{
		Kind: FindingIssuerNotInBundle, Nodes: nodes,
		Message: fmt.Sprintf("every certificate comes from %s, which is not in the trust bundle: is this the CA that kube-apiserver uses for kubelets?", verdict.Quote(name)),
	}}
}

// vouchedFor says that the bundle holds a certificate or its issuer: the chain
// then fails for another reason, such as an expired CA.
func vouchedFor(c *x509.Certificate, bundle verdict.Bundle) bool {
	return slices.ContainsFunc(bundle.Certificates, func(ca *x509.Certificate) bool {
		return c.Equal(ca) || bytes.Equal(c.RawIssuer, ca.RawSubject) && signedBy(c, ca)
	})
}

// signedBy also where ca may not sign, or signs by what is insecure: it is in
// the bundle, and another bundle would not help.
func signedBy(c, ca *x509.Certificate) bool {
	err := c.CheckSignatureFrom(ca)
	var constraint x509.ConstraintViolationError
	var insecure x509.InsecureAlgorithmError
	return err == nil || errors.As(err, &constraint) || errors.As(err, &insecure)
}

// habits are what a distribution does on every node.
func habits(all []*seen) []Finding {
	var bare, selfSigned []string
	for _, s := range all {
		switch {
		case s.Certificate == nil:
		case selfMade(s):
			selfSigned = append(selfSigned, s.Name)
		case s.Certificate.CommonName == s.Name:
			bare = append(bare, s.Name)
		}
	}
	var list []Finding
	if len(bare) > 1 {
		list = append(list, Finding{FindingBareNodeNames,
			"the common name is the bare node name, as k3s, RKE2 and kops issue it; that is the distribution's to change, not the nodes'", bare})
	}
	if len(selfSigned) > 1 {
		list = append(list, Finding{FindingSelfSigned,
			"the kubelets serve certificates that they signed themselves, as kubeadm leaves it by default; set serverTLSBootstrap: true and approve the requests", selfSigned})
	}
	return list
}

// selfMade says that no CA stands behind a certificate, unless the bundle holds
// the certificate itself.
func selfMade(s *seen) bool {
	if len(s.chain) == 0 {
		return false
	}
	leaf := s.chain[0]
	return verdict.IsSelfSignedFallback(leaf.Subject.CommonName, leaf.Issuer.CommonName) || verdict.IsSelfSigned(leaf)
}

// pathFindings are about the way to the nodes.
func pathFindings(all []*seen) []Finding {
	return about(all, FindingLargeHelloDropped,
		"the way to these nodes drops a ClientHello that does not fit into one packet, as Go sends it since 1.24: look at the MTU and at middleboxes",
		func(s *seen) bool { return s.answersSmaller })
}

// remarks need no remedy, or not now.
func remarks(all []*seen) []Finding {
	return append(
		about(all, FindingVirtualKubelets,
			"these are virtual kubelets, which serve what their provider gives them; the check is for them too",
			func(s *seen) bool { return s.virtual }),
		about(all, FindingLongNodeNames,
			"their names have over 52 characters, so that system:node:<name> exceeds the 64 of X.520: kube-controller-manager issues it, CAs that keep the limit do not",
			func(s *seen) bool { return verdict.IsLongNodeName(s.Name) })...)
}

// about is one finding about the nodes chosen, if there are any.
func about(all []*seen, kind, message string, chosen func(*seen) bool) []Finding {
	var nodes []string
	for _, s := range all {
		if chosen(s) {
			nodes = append(nodes, s.Name)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return []Finding{{kind, message, nodes}}
}

// otherIdentities are nodes that show the name of another node: one finding for
// each that is there, and one for all that are not.
func otherIdentities(all []*seen) []Finding {
	there := map[string]bool{}
	for _, s := range all {
		there[s.Name] = true
	}
	answered := map[string][]string{} // by the identity shown
	var absent []string
	for _, s := range all {
		if s.Certificate == nil {
			continue
		}
		cn := s.Certificate.CommonName
		other, named := strings.CutPrefix(cn, verdict.CommonNameOf(""))
		if named && other != s.Name && there[other] {
			answered[other] = append(answered[other], s.Name)
		} else if _, another := verdict.OtherNode(cn, s.Name); another {
			absent = append(absent, s.Name)
		}
	}
	var list []Finding
	for _, other := range slices.Sorted(maps.Keys(answered)) {
		whom := "several nodes are"
		if names := answered[other]; len(names) == 1 {
			whom = "node " + verdict.Quote(names[0]) + " is"
		}
		list = append(list, Finding{
			FindingOtherIdentity,
			fmt.Sprintf("%s answered for with the identity of node %s", whom, verdict.Quote(other)),
			append(answered[other], other),
		})
	}
	if len(absent) > 0 {
		list = append(list, Finding{
			FindingAbsentIdentity,
			"the certificates name nodes that are not among those looked at: these were renamed, or have the addresses of nodes that are gone", absent,
		})
	}
	return list
}

func certificateKey(s *seen) string {
	if s.Certificate == nil {
		return ""
	}
	return s.Certificate.SHA256
}

func issuerKey(s *seen) string {
	if s.Certificate == nil {
		return ""
	}
	return s.Certificate.Issuer
}

// missingIssuerKey is the last issuer on the way up from a node's certificate,
// where the bundle lacks it.
func missingIssuerKey(s *seen, bundle verdict.Bundle) string {
	if s.Certificate == nil || !s.chainFailed {
		return ""
	}
	top := s.chain[len(s.chain)-1]
	if vouchedFor(top, bundle) || selfMade(s) {
		return ""
	}
	return top.Issuer.String()
}

func addressKey(s *seen) string {
	if s.Address == "" {
		return ""
	}
	endpoint := verdict.Endpoint{Host: s.Address, Port: s.Port}
	return strings.ToLower(endpoint.HostPort())
}

// shared finds keys that several nodes have in common; an empty key is none.
func shared(all []*seen, kind, message string, key func(*seen) string) []Finding {
	nodes := map[string][]string{}
	for _, s := range all {
		if k := key(s); k != "" {
			nodes[k] = append(nodes[k], s.Name)
		}
	}
	var list []Finding
	for _, k := range slices.Sorted(maps.Keys(nodes)) {
		if len(nodes[k]) > 1 {
			list = append(list, Finding{kind, message + ": " + verdict.Quote(k), nodes[k]})
		}
	}
	return list
}
