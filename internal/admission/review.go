// Package admission reviews requests for kubelet serving certificates
// (certificates.k8s.io, signer kubernetes.io/kubelet-serving). It follows the
// rules of that signer in Kubernetes' documentation of certificate signing
// requests, and adds what they leave to approvers: whose addresses they are.
//
// Review and Decide are pure; Reviewer asks them with the Nodes as they are, for
// the webhook (Handler) and for requests that exist already (Late).
package admission

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Request is a CertificateSigningRequest and who made it.
type Request struct {
	// PEM is spec.request: the requester's words.
	PEM    []byte
	Usages []certificatesv1.KeyUsage
	// User and Groups are the API server's words: who was authenticated.
	User   string
	Groups []string
}

// Node is the name of the node that made the request; "" where its requester is
// no node. Nothing in the request's body counts.
func (r Request) Node() string { return kubelet.NodeOf(r.User, r.Groups) }

// Nodes knows which Node reports which address.
type Nodes interface {
	// Owners are the names of the Nodes that report a host, in order. key is a
	// verdict.HostKey.
	Owners(key string) []string
	// Reports says whether a Node is there with any address at all, and whether
	// it is labelled as one of the control plane.
	Reports(node string) (addresses, controlPlane bool)
}

// Reserved hosts belong to no kubelet.
type Reserved struct {
	// Services are the cluster IPs of the Service "kubernetes".
	Services []netip.Addr
	// Endpoints are the addresses behind it: control-plane nodes may have them.
	Endpoints []netip.Addr
	// AllowLocal lifts the ban on loopback, for tests and the demo.
	AllowLocal bool
}

// Finding is one thing that is wrong with a request.
type Finding struct {
	Reason v1alpha1.ReviewReason
	// Message for people: bounded, and the requester's words quoted.
	Message string
	// Nodes that report what was asked for, other than the requester's.
	Nodes []string
	// WarnOnly: it is never a ground to deny.
	WarnOnly bool
}

// Review gives what is wrong with a request, in the order of
// v1alpha1.ReviewReasons; nothing where it is right. Its cost does not grow with
// the number of nodes.
func Review(r Request, nodes Nodes, reserved Reserved) []Finding {
	csr, problem := parse(r.PEM)
	if problem != "" {
		return []Finding{{Reason: v1alpha1.ReviewMalformedRequest, Message: "the request " + problem}}
	}
	v := &review{request: r, node: r.Node(), csr: csr, subject: verdict.SubjectOfRequest(csr), nodes: nodes, reserved: reserved}
	v.identity()
	v.shape()
	v.addresses()
	slices.SortStableFunc(v.findings, func(a, b Finding) int { return rank(a.Reason) - rank(b.Reason) })
	return v.findings
}

func rank(r v1alpha1.ReviewReason) int { return slices.Index(v1alpha1.ReviewReasons(), r) }

// parse reads what the API server and the signer read, and no less.
func parse(text []byte) (csr *x509.CertificateRequest, problem string) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil || block.Type != "CERTIFICATE REQUEST":
		return nil, "is no PEM block CERTIFICATE REQUEST"
	case len(block.Headers) > 0:
		return nil, "has PEM headers"
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, "has something after its PEM block"
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, "cannot be parsed: " + verdict.Quote(err.Error())
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, "is not signed with its own key: " + verdict.Quote(err.Error())
	}
	return csr, ""
}

// review collects findings about one request.
type review struct {
	request  Request
	node     string
	csr      *x509.CertificateRequest
	subject  verdict.Subject
	nodes    Nodes
	reserved Reserved
	findings []Finding
}

func (v *review) add(reason v1alpha1.ReviewReason, format string, args ...any) {
	v.findings = append(v.findings, Finding{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// identity is about who asks, and in whose name.
func (v *review) identity() {
	switch {
	case v.node == "":
		v.add(v1alpha1.ReviewRequesterNotNode, "the requester %s is no node: those are system:node:<name> in the group system:nodes", verdict.Quote(v.request.User))
	case !v.subject.Identifies(v.node):
		v.add(v1alpha1.ReviewCommonNameNotRequester, "the common name is %s, but the requester is %s",
			verdict.Quote(v.subject.CommonName), verdict.Quote(v.request.User))
	}
	commonNames := 0
	for _, name := range v.csr.Subject.Names {
		if name.Type.Equal(asn1.ObjectIdentifier{2, 5, 4, 3}) {
			commonNames++
		}
	}
	if commonNames > 1 {
		v.add(v1alpha1.ReviewMultipleCommonNames, "the subject has %d common names", commonNames)
	}
	if organization := v.csr.Subject.Organization; !slices.Equal(organization, []string{"system:nodes"}) {
		v.add(v1alpha1.ReviewOrganizationInvalid, "the organization is %s, not exactly \"system:nodes\"", list(organization))
	}
}

// The two sets of usages that kube-controller-manager signs for the signer.
var (
	usages    = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	usagesRSA = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth}
)

// shape is about what the signer would refuse, or what no approver should have
// to think about.
func (v *review) shape() {
	asked := slices.Compact(slices.Sorted(slices.Values(v.request.Usages)))
	if !slices.Equal(asked, usages) && !slices.Equal(asked, usagesRSA) {
		v.add(v1alpha1.ReviewUsagesInvalid, "the usages are %s; the signer signs digital signature and server auth, with key encipherment or without", list(asked))
	}
	if len(v.csr.DNSNames)+len(v.csr.IPAddresses) == 0 {
		v.add(v1alpha1.ReviewSANRequired, "there is no DNS name and no IP address")
	}
	if other := otherNames(v.csr); other != "" {
		v.add(v1alpha1.ReviewSANTypeForbidden, "it asks for %s; a kubelet has DNS names and IP addresses", other)
	}
}

// RFC 5280, GeneralName.
const (
	emailAddress = 1
	dnsName      = 2
	uri          = 6
	ipAddress    = 7
)

// otherNames tells which other kind of SAN there is, also of those that
// crypto/x509 passes over; "" where there is none.
func otherNames(csr *x509.CertificateRequest) string {
	for _, e := range csr.Extensions {
		if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
			continue
		}
		var names []asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &names); err != nil {
			return "names that cannot be read"
		}
		for _, name := range names {
			switch name.Tag {
			case dnsName, ipAddress:
			case emailAddress:
				return "an e-mail address, " + verdict.Quote(string(name.Bytes))
			case uri:
				return "a URI, " + verdict.Quote(string(name.Bytes))
			default:
				return fmt.Sprintf("a name of another kind (%d)", name.Tag)
			}
		}
	}
	return ""
}

// addresses is about whose the names are.
func (v *review) addresses() {
	var wildcard, reserved, foreign, unreported []string
	var owners []string
	known, controlPlane := v.nodes.Reports(v.node)
	for _, host := range v.hosts() {
		others, own := v.owners(host)
		switch {
		case strings.Contains(host, "*"):
			wildcard = append(wildcard, host)
		case v.isReserved(host, own && controlPlane):
			reserved = append(reserved, host)
		case len(others) > 0:
			foreign = append(foreign, host)
			owners = append(owners, others...)
		case !own:
			unreported = append(unreported, host)
		}
	}
	if len(wildcard) > 0 {
		v.add(v1alpha1.ReviewWildcardSAN, "it asks for a wildcard, %s", list(wildcard))
	}
	if len(reserved) > 0 {
		v.add(v1alpha1.ReviewReservedAddress, "it asks for %s, reserved for the API server or for each host itself", list(reserved))
	}
	if len(foreign) > 0 {
		slices.Sort(owners)
		owners = slices.Compact(owners)
		v.add(v1alpha1.ReviewForeignAddress, "node %s reports %s, which it asks for", list(owners), list(foreign))
		v.findings[len(v.findings)-1].Nodes = owners
	}
	switch {
	case v.node == "" || len(unreported) == 0:
	case !known:
		v.add(v1alpha1.ReviewAddressesUnknown, "node %s reports no address yet, so that %s cannot be compared", verdict.Quote(v.node), list(unreported))
		v.findings[len(v.findings)-1].WarnOnly = true
	default:
		v.add(v1alpha1.ReviewAddressNotReported, "it asks for %s, which node %s does not report", list(unreported), verdict.Quote(v.node))
	}
}

// hosts are the names asked for, as text.
func (v *review) hosts() []string {
	hosts := slices.Clone(v.subject.DNSNames)
	for _, ip := range v.subject.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// owners says who else reports a host, and whether the requester's Node does.
// The name of the Node itself is its own.
func (v *review) owners(host string) (others []string, own bool) {
	key := verdict.HostKey(host)
	for _, name := range v.nodes.Owners(key) {
		if name == v.node {
			own = true
			continue
		}
		others = append(others, name)
	}
	return others, own || v.node != "" && key == verdict.HostKey(v.node)
}

// isReserved: mayBeEndpoint says that the host is the requester's own, and that
// its Node is one of the control plane, which no kubelet can say of itself.
func (v *review) isReserved(host string, mayBeEndpoint bool) bool {
	ip, err := netip.ParseAddr(verdict.HostKey(host))
	if err != nil {
		return reservedName(verdict.HostKey(host))
	}
	switch {
	case ip.IsLoopback():
		return !v.reserved.AllowLocal
	case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast():
		return true
	case slices.Contains(v.reserved.Services, ip):
		return true
	}
	return slices.Contains(v.reserved.Endpoints, ip) && !mayBeEndpoint
}

// reservedName: what clients within a cluster call the API server, and what
// means the host itself (RFC 6761).
func reservedName(name string) bool {
	switch name {
	case "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc":
		return true
	}
	return strings.HasSuffix(name, ".localhost") || strings.HasPrefix(name, "kubernetes.default.svc.")
}

// mostShown is how many names are shown in a message.
const mostShown = 4

// list shows a few of the requester's words.
func list[T ~string](words []T) string {
	shown := make([]string, 0, mostShown)
	for _, w := range words[:min(mostShown, len(words))] {
		shown = append(shown, verdict.Quote(string(w)))
	}
	switch {
	case len(words) == 0:
		return "empty"
	case len(words) > mostShown:
		return fmt.Sprintf("%s and %d more", strings.Join(shown, ", "), len(words)-mostShown)
	}
	return strings.Join(shown, ", ")
}
