package audit_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/audit"
)

// published is the contract: every key of the JSON, and no other.
const published = `{"apiVersion":"kubeletcert.dev/v1alpha1","kind":"AuditReport","time":"","what":"both",
 "readiness":"Unknown","selector":"",
 "trustBundle":{"source":"","sha256":"","certificates":0,"warnings":[]},
 "preferredAddressTypes":[],
 "summary":{"total":0,"verified":0,"breaksWhenEnabled":0,"rejectedToday":0,"unknown":0,"excluded":0,
            "checks":{"CommonName":{"pass":0,"fail":0,"notRun":0},"Chain":{"pass":0,"fail":0,"notRun":0},
                      "Address":{"pass":0,"fail":0,"notRun":0},"Validity":{"pass":0,"fail":0,"notRun":0},
                      "KeyUsage":{"pass":0,"fail":0,"notRun":0}}},
 "findings":[{"kind":"","message":"","nodes":[]}],
 "nodes":[{"name":"","uid":"","status":"","reason":"","message":"","hint":"",
           "address":"","addressType":"","port":0,
           "checks":[{"name":"","result":"","message":""}],
           "certificate":{"commonName":"","organizations":[],"issuer":"","serialNumber":"","notBefore":"","notAfter":"",
                          "dnsNames":[],"ipAddresses":[],"sha256":""},
           "tlsVersion":"","durationMilliseconds":0}]}`

// paths are those of every key, with the kind of its value.
func paths(value any, at string, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			paths(inner, at+"."+key, into)
		}
	case []any:
		into[at+" list"] = true
		for _, inner := range v {
			if _, ok := inner.(map[string]any); ok {
				paths(inner, at+"[]", into)
			}
		}
	case string:
		into[at+" string"] = true
	case float64:
		into[at+" number"] = true
	case nil:
		into[at+" null"] = true
	}
}

func pathsOf(t *testing.T, text []byte) []string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	paths(value, "", found)
	return slices.Sorted(maps.Keys(found))
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestJSONHasThePublishedKeysAndNoOther(t *testing.T) {
	_, r := everyDefect()
	if len(r.Findings) == 0 {
		t.Fatal("no finding to look at")
	}
	want := append(pathsOf(t, []byte(published)), ".nodes[].certificate null") // where none was seen
	slices.Sort(want)
	if got := pathsOf(t, marshal(t, r)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The keys do not depend on what was found: no omitempty anywhere.
func TestEveryNodeHasEveryKey(t *testing.T) {
	_, r := everyDefect()
	var whole, without []string // with and without a certificate
	for _, n := range r.Nodes {
		got, first := pathsOf(t, marshal(t, n)), &whole
		if n.Certificate == nil {
			first = &without
		}
		if *first == nil {
			*first = got
		}
		if !slices.Equal(got, *first) {
			t.Errorf("%s has %q, want %q", n.Name, got, *first)
		}
	}
	if whole == nil || without == nil {
		t.Fatal("not both kinds of nodes were seen")
	}
}

func TestEmptyListsAreNotNull(t *testing.T) {
	empty := clusterOf()
	bare := clusterOf("a no-san")
	bare.shows["10.0.0.1"].Chain[0].Subject.Organization = nil
	for name, c := range map[string]*cluster{"no node": empty, "a certificate without names": bare} {
		opts := options(c)
		opts.Endpoints.PreferredAddressTypes = options(nil).Endpoints.PreferredAddressTypes
		if name == "no node" {
			opts.Endpoints.PreferredAddressTypes = nil
		}
		text := string(marshal(t, audit.Run(t.Context(), c.nodes, opts)))
		if strings.Contains(text, "null") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestJSONSpeaksInPublishedWords(t *testing.T) {
	c := clusterOf("a good")
	opts := options(c)
	opts.Policy.Bundle.Warnings = []string{"block 2 was skipped"}
	opts.Clock = clockAt("2026-03-01T13:00:00.9+01:00")
	var got map[string]any
	if err := json.Unmarshal(marshal(t, audit.Run(t.Context(), c.nodes, opts)), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"apiVersion": `"kubeletcert.dev/v1alpha1"`, "kind": `"AuditReport"`, "time": `"2026-03-01T12:00:00Z"`, "what": `"both"`,
		"readiness": `"Ready"`, "selector": `""`, "preferredAddressTypes": `["InternalIP"]`, "findings": `[]`,
		"trustBundle": `{"certificates":1,"sha256":"5ha","source":"test","warnings":["block 2 was skipped"]}`,
	} {
		if text := string(marshal(t, got[key])); text != want {
			t.Errorf("%s: %s, want %s", key, text, want)
		}
	}
}
