package verdict

import (
	"crypto/sha256"
	"crypto/x509"
	"net"
	"strconv"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
)

// Endpoint is the place that kube-apiserver dials for a node.
type Endpoint struct {
	// AddressType of the chosen entry of status.addresses, such as InternalIP.
	AddressType string
	// Host is the chosen address as it stands there; empty where the Node has
	// none of the preferred types. Written by the node itself: hostile input.
	Host string
	// Port is 1 to 65535.
	Port int32
}

// HostPort is the endpoint as net.Dial takes it.
func (e Endpoint) HostPort() string {
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// Identity is what a verdict belongs to: a digest of the Node's UID and of all
// that its endpoint follows from. Nodes with the same one have the same endpoint
// under the same spec.
type Identity [sha256.Size]byte

// Expectation is what one Node's kubelet should show.
type Expectation struct {
	NodeName string
	Endpoint Endpoint
	// Created is the Node's creation time; zero where unknown, which makes it old.
	Created time.Time
	// NotReady says that the Node's Ready condition is not True.
	NotReady bool
	// Request is the node's latest, where requests are looked at: it changes what
	// is advised, never what is judged.
	Request Request
}

// CommonName is the only Subject Common Name that KEP-4872 accepts.
func (e Expectation) CommonName() string { return CommonNameOf(e.NodeName) }

// CommonNameOf is the identity that KEP-4872 demands of a node's certificate.
func CommonNameOf(nodeName string) string { return commonNamePrefix + nodeName }

const commonNamePrefix = "system:node:"

// Outcome says how far the connection to a kubelet went.
type Outcome uint8

const (
	// OutcomeNone: not probed. The zero value, so that nothing looks like evidence.
	OutcomeNone Outcome = iota
	// OutcomeCompleted: the handshake finished, the peer holds its key.
	OutcomeCompleted
	// OutcomeAddressNotAllowed: the address is not dialled.
	OutcomeAddressNotAllowed
	// OutcomeUnresolved: the host name did not resolve.
	OutcomeUnresolved
	// OutcomeUnconnected: refused or unreachable.
	OutcomeUnconnected
	// OutcomeClosed: EOF or reset within the handshake.
	OutcomeClosed
	// OutcomeTimeout: no answer in time.
	OutcomeTimeout
	// OutcomeNotTLS: the answer is no TLS record.
	OutcomeNotTLS
	// OutcomeInternalError: TLS alert internal_error, which is how a kubelet
	// without a serving certificate answers.
	OutcomeInternalError
	// OutcomeHandshakeFailed: any other alert, or a failure on our side.
	OutcomeHandshakeFailed
	// OutcomeBadCertificate: crypto/tls refuses the certificate itself before
	// any verification (unparsable, RSA key above 8192 bits, key type).
	OutcomeBadCertificate
)

// Outcomes lists every outcome of a probe.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeCompleted, OutcomeAddressNotAllowed, OutcomeUnresolved, OutcomeUnconnected, OutcomeClosed,
		OutcomeTimeout, OutcomeNotTLS, OutcomeInternalError, OutcomeHandshakeFailed, OutcomeBadCertificate,
	}
}

// String is the outcome as a metric's label.
func (o Outcome) String() string {
	switch o {
	case OutcomeCompleted:
		return "completed"
	case OutcomeAddressNotAllowed:
		return "address_not_allowed"
	case OutcomeUnresolved:
		return "unresolved"
	case OutcomeUnconnected:
		return "unconnected"
	case OutcomeClosed:
		return "closed"
	case OutcomeTimeout:
		return "timeout"
	case OutcomeNotTLS:
		return "not_tls"
	case OutcomeInternalError:
		return "no_certificate"
	case OutcomeHandshakeFailed:
		return "handshake_failed"
	case OutcomeBadCertificate:
		return "bad_certificate"
	case OutcomeNone:
	}
	return "none"
}

// Observation is what one handshake showed.
type Observation struct {
	Outcome Outcome
	// Chain as served, leaf first; empty where none was received.
	Chain []*x509.Certificate
	// KeyProven says that the peer proved to hold the leaf's key: the handshake
	// finished, or went as far as asking for our certificate. Without it the
	// chain may be anybody's.
	KeyProven bool
	// Detail is the error in words without changing parts such as local ports;
	// it may hold the peer's bytes and is quoted wherever it is shown.
	Detail string
	// TLSVersion as in crypto/tls; 0 where none was agreed on.
	TLSVersion uint16
	// Duration of the probe.
	Duration time.Duration
	// Smaller is what the peer showed to a ClientHello without post-quantum key
	// shares, where it gave no answer to the full one; nil where that was not
	// tried or got no answer either. It is no evidence: kube-apiserver sends the
	// full one.
	Smaller *Observation
}

// Bundle is a set of trust anchors. The zero Bundle trusts nobody.
type Bundle struct {
	// Roots and Certificates hold the same anchors.
	Roots        *x509.CertPool
	Certificates []*x509.Certificate
	// Source in words; SHA256 of the certificates in hexadecimal. Warnings name
	// what was skipped because it could not be parsed, Skipped in number, and
	// anchors that can vouch for nobody but themselves.
	Source   string
	SHA256   string
	Skipped  int
	Warnings []string
}

// Empty says that there is nothing to judge by.
func (b Bundle) Empty() bool { return b.Roots == nil || len(b.Certificates) == 0 }

// Policy is what an observation is judged by.
type Policy struct {
	Bundle Bundle
	// NewNodeGrace is the age of a Node up to which a kubelet without a
	// certificate is Unknown.
	NewNodeGrace time.Duration
	// Known is the Path of an earlier verdict on the node; nil without one. It
	// saves time, and changes no verdict.
	Known *Path
}

// Status is a verdict in one word. The zero value is Unknown.
type Status uint8

// The three answers.
const (
	Unknown Status = iota
	False
	True
)

// String is the status of a Kubernetes condition.
func (s Status) String() string {
	switch s {
	case True:
		return "True"
	case False:
		return "False"
	case Unknown:
		return "Unknown"
	}
	return "Unknown"
}

// Result of one check. The zero value is NotRun, which is never a pass.
type Result uint8

// The three results.
const (
	NotRun Result = iota
	Fail
	Pass
)

// String is the word of the reports.
func (r Result) String() string {
	switch r {
	case Pass:
		return "Pass"
	case Fail:
		return "Fail"
	case NotRun:
		return "NotRun"
	}
	return "NotRun"
}

// Check is the result of one check and, where it failed, why.
type Check struct {
	Name    v1alpha1.CheckName
	Result  Result
	Message string
}

// Finding is one refusal: which check, by what reason, in words.
type Finding struct {
	Check   v1alpha1.CheckName
	Reason  v1alpha1.Reason
	Message string
}

// Verdict is the judge's answer. The zero Verdict is Unknown.
type Verdict struct {
	Status Status
	Reason v1alpha1.Reason
	// Message for people: bounded, quoted, and the same as long as the verdict
	// is the same.
	Message string
	// Hint names the known pattern behind a failure; part of Message.
	Hint string
	// Checks in the order of v1alpha1.CheckNames.
	Checks []Check
	// Leaf as served, also where the peer did not prove to own it; nil without.
	Leaf *x509.Certificate
	// Path that was verified; nil where there is none.
	Path *Path
	// NextLook is the first time at which the clock alone may change the
	// verdict; zero where it cannot.
	NextLook time.Time
}

// Evidence says that the verdict rests on something the peer showed.
func (v Verdict) Evidence() bool { return v.Status != Unknown }

// Check returns the result of one check.
func (v Verdict) Check(name v1alpha1.CheckName) Check {
	for _, c := range v.Checks {
		if c.Name == name {
			return c
		}
	}
	return Check{Name: name}
}

// Group of nodes, by what would happen to them.
type Group uint8

// The four groups; the zero value is the one without evidence.
const (
	GroupUnknown Group = iota
	GroupVerified
	GroupBreaksWhenEnabled
	GroupRejectedToday
)

// Group that the node belongs to.
func (v Verdict) Group() Group {
	switch {
	case v.Status == True:
		return GroupVerified
	case v.Status == False && v.Reason == v1alpha1.ReasonCommonNameMismatch:
		return GroupBreaksWhenEnabled
	case v.Status == False:
		return GroupRejectedToday
	}
	return GroupUnknown
}
