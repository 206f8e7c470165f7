package audit

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"time"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/api/v1alpha1"
	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/verdict"
)

// Report is the answer of a sweep. Its JSON is a published contract.
type Report struct {
	APIVersion            string            `json:"apiVersion"`
	Kind                  string            `json:"kind"`
	Time                  time.Time         `json:"time"`
	What                  verdict.What      `json:"what"`
	Readiness             verdict.Readiness `json:"readiness"`
	Selector              string            `json:"selector"`
	TrustBundle           TrustBundle       `json:"trustBundle"`
	PreferredAddressTypes []string          `json:"preferredAddressTypes"`
	Summary               Summary           `json:"summary"`
	Findings              []Finding         `json:"findings"`
	Nodes                 []Node            `json:"nodes"`

	// Answer is the readiness as far as What goes; it decides the exit code.
	Answer verdict.Readiness `json:"-"`
	// ClusterCA says that the bundle is the cluster's, by default.
	ClusterCA bool `json:"-"`
	// Interrupted says that the sweep was not finished.
	Interrupted bool `json:"-"`
}

// TrustBundle that was judged by.
type TrustBundle struct {
	Source       string   `json:"source"`
	SHA256       string   `json:"sha256"`
	Certificates int      `json:"certificates"`
	Warnings     []string `json:"warnings"`
}

// Summary counts nodes and check results.
type Summary struct {
	Total             int                                  `json:"total"`
	Verified          int                                  `json:"verified"`
	BreaksWhenEnabled int                                  `json:"breaksWhenEnabled"`
	RejectedToday     int                                  `json:"rejectedToday"`
	Unknown           int                                  `json:"unknown"`
	Excluded          int                                  `json:"excluded"`
	Checks            map[v1alpha1.CheckName]*CheckSummary `json:"checks"`
}

// CheckSummary counts the results of one check.
type CheckSummary struct {
	Pass   int `json:"pass"`
	Fail   int `json:"fail"`
	NotRun int `json:"notRun"`
}

// Finding is a pattern over several nodes.
type Finding struct {
	Kind    string   `json:"kind"`
	Message string   `json:"message"`
	Nodes   []string `json:"nodes"`
}

// Node is the answer for one node.
type Node struct {
	Name        string          `json:"name"`
	UID         string          `json:"uid"`
	Status      string          `json:"status"`
	Reason      v1alpha1.Reason `json:"reason"`
	Message     string          `json:"message"`
	Hint        string          `json:"hint"`
	Address     string          `json:"address"`
	AddressType string          `json:"addressType"`
	Port        int32           `json:"port"`
	Checks      []Check         `json:"checks"`
	// Certificate is null where none was seen.
	Certificate *Certificate `json:"certificate"`
	// TLSVersion such as "TLS 1.3"; empty where none was agreed on.
	TLSVersion           string `json:"tlsVersion"`
	DurationMilliseconds int64  `json:"durationMilliseconds"`

	// Answer is the status as far as Report.What goes.
	Answer verdict.Status `json:"-"`
	// Group is what the verdict means for the cluster.
	Group verdict.Group `json:"-"`
}

// Check is the result of one check.
type Check struct {
	Name    v1alpha1.CheckName `json:"name"`
	Result  string             `json:"result"`
	Message string             `json:"message"`
}

// Certificate is the leaf as served. Its strings are the peer's: hostile input.
type Certificate struct {
	CommonName    string    `json:"commonName"`
	Organizations []string  `json:"organizations"`
	Issuer        string    `json:"issuer"`
	SerialNumber  string    `json:"serialNumber"`
	NotBefore     time.Time `json:"notBefore"`
	NotAfter      time.Time `json:"notAfter"`
	DNSNames      []string  `json:"dnsNames"`
	IPAddresses   []string  `json:"ipAddresses"`
	SHA256        string    `json:"sha256"`
}

// NewReport is about one node, however it was looked at.
func NewReport(looked Looked, opts Options) *Report {
	return newReport([]*seen{newSeen(looked, opts.What)}, opts)
}

// newReport sums up what was seen; it orders all, worst first.
func newReport(all []*seen, opts Options) *Report {
	worstFirst(all)
	r := &Report{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "AuditReport",
		Time: opts.Clock.Now().UTC().Truncate(time.Second), What: opts.What, Selector: opts.Selector,
		TrustBundle: TrustBundle{
			Source: opts.Policy.Bundle.Source, SHA256: opts.Policy.Bundle.SHA256,
			Certificates: len(opts.Policy.Bundle.Certificates), Warnings: orEmpty(opts.Policy.Bundle.Warnings),
		},
		PreferredAddressTypes: []string{},
		Findings:              []Finding{},
		Nodes:                 make([]Node, 0, len(all)),
		ClusterCA:             opts.ClusterCA,
	}
	for _, t := range opts.Endpoints.PreferredAddressTypes {
		r.PreferredAddressTypes = append(r.PreferredAddressTypes, string(t))
	}
	var servers verdict.APIServersAnswer
	if opts.APIServers != nil {
		servers = verdict.JudgeAPIServers(*opts.APIServers, r.PreferredAddressTypes)
		r.Findings = append(r.Findings, serverFindings(servers, opts.APIServers.Obscure)...)
	}
	r.Findings = append(r.Findings, findings(all, opts.Policy.Bundle)...)
	r.summarize(all, opts)
	r.Readiness, r.Answer = r.Readiness.AtBest(servers.AtBest(verdict.WhatBoth)), r.Answer.AtBest(servers.AtBest(opts.What))
	for _, s := range all {
		r.Nodes = append(r.Nodes, s.Node)
	}
	return r
}

func (r *Report) summarize(all []*seen, opts Options) {
	checks := map[v1alpha1.CheckName]*CheckSummary{}
	for _, name := range v1alpha1.CheckNames() {
		checks[name] = &CheckSummary{}
	}
	var tally verdict.Tally
	answers := make([]verdict.Status, 0, len(all))
	for _, s := range all {
		answers = append(answers, s.Answer)
		tally.Add(s.Group)
		for _, c := range s.Checks {
			checks[c.Name].add(c.Result)
		}
	}
	r.Readiness, r.Answer = tally.Readiness(), verdict.ReadinessOf(answers)
	r.Summary = Summary{
		Total: tally.Total(), Verified: tally.Verified, BreaksWhenEnabled: tally.BreaksWhenEnabled,
		RejectedToday: tally.RejectedToday, Unknown: tally.Unknown, Excluded: opts.Excluded, Checks: checks,
	}
}

func (s *CheckSummary) add(result string) {
	switch result {
	case verdict.Pass.String():
		s.Pass++
	case verdict.Fail.String():
		s.Fail++
	case verdict.NotRun.String():
		s.NotRun++
	}
}

// seen is what the report says of one node, and what findings read besides.
type seen struct {
	Node

	// chain as served, where it did not pass: findings look at whose it is. Others
	// are not kept: in memory, a certificate takes many times what it says.
	chain []*x509.Certificate
	// chainFailed, rather than that the check did not run.
	chainFailed bool
	// answersSmaller says that only a smaller ClientHello got an answer.
	answersSmaller bool
	virtual        bool
}

func newSeen(l Looked, what verdict.What) *seen {
	s := &seen{
		Node:           newNode(l, what),
		answersSmaller: l.Observation.Smaller != nil,
		virtual:        l.Node.Labels[kindLabel] == "virtual-kubelet",
	}
	if result := l.Verdict.Check(v1alpha1.CheckChain).Result; result != verdict.Pass {
		s.chain, s.chainFailed = l.Observation.Chain, result == verdict.Fail
	}
	return s
}

func newNode(l Looked, what verdict.What) Node {
	n := Node{
		Name: l.Node.Name, UID: string(l.Node.UID),
		Status: l.Verdict.Status.String(), Reason: l.Verdict.Reason, Message: l.Verdict.Message, Hint: l.Verdict.Hint,
		Address: l.Expectation.Endpoint.Host, AddressType: l.Expectation.Endpoint.AddressType, Port: l.Expectation.Endpoint.Port,
		Checks: make([]Check, 0, len(l.Verdict.Checks)), DurationMilliseconds: l.Observation.Duration.Milliseconds(),
		Answer: l.Verdict.Answer(what), Group: l.Verdict.Group(),
	}
	for _, c := range l.Verdict.Checks {
		n.Checks = append(n.Checks, Check{Name: c.Name, Result: c.Result.String(), Message: c.Message})
	}
	if v := l.Observation.TLSVersion; v != 0 {
		n.TLSVersion = tls.VersionName(v)
	}
	if l.Verdict.Leaf != nil {
		n.Certificate = newCertificate(l.Verdict.Leaf)
	}
	return n
}

func newCertificate(c *x509.Certificate) *Certificate {
	ips := make([]string, 0, len(c.IPAddresses))
	for _, ip := range c.IPAddresses {
		ips = append(ips, ip.String())
	}
	return &Certificate{
		CommonName: c.Subject.CommonName, Organizations: orEmpty(c.Subject.Organization), Issuer: c.Issuer.String(),
		SerialNumber: c.SerialNumber.Text(16), NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
		DNSNames: orEmpty(c.DNSNames), IPAddresses: ips, SHA256: fingerprint(c),
	}
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// orEmpty makes JSON show an empty list as one.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
