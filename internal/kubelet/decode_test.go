package kubelet_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubelet-cert-auditor/kubelet-cert-auditor/internal/kubelet"
)

// inputs that hold the nodes n1 and n2, or as many as want says.
var inputs = map[string]struct {
	text string
	want []string
}{
	"JSON, a List as kubectl prints it": {
		`{"apiVersion":"v1","items":[{"kind":"Node","metadata":{"name":"n1"}},{"kind":"Node","metadata":{"name":"n2"}}],"kind":"List","metadata":{"resourceVersion":""}}`,
		[]string{"n1", "n2"},
	},
	"JSON, a NodeList from the raw API": {
		`{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"n1"}},{"metadata":{"name":"n2"}}]}`,
		[]string{"n1", "n2"},
	},
	"JSON, a Node":             {`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{}}`, []string{"n1"}},
	"JSON, several documents":  {`{"kind":"Node","metadata":{"name":"n1"}}` + "\n\n" + `{"kind":"NodeList","items":[{"metadata":{"name":"n2"}}]}`, []string{"n1", "n2"}},
	"JSON, an empty list":      {`{"kind":"List","items":[]}`, nil},
	"JSON, null items":         {`{"kind":"NodeList","items":null}`, nil},
	"JSON, white space around": {" \r\n\t{\"kind\":\"List\",\"items\":[]}\r\n \n", nil},
	"JSON, a byte order mark":  {"\ufeff" + `{"kind":"List","items":[{"metadata":{"name":"n1"}}]}`, []string{"n1"}},

	"YAML, a List as kubectl prints it": {
		"apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n1\n  status:\n    addresses:\n    - address: a\n- kind: Node\n  metadata:\n    name: n2\nkind: List\nmetadata:\n  resourceVersion: \"\"\n",
		[]string{"n1", "n2"},
	},
	"YAML, an indented block list": {"kind: NodeList\nitems:\n  - metadata:\n      name: n1\n\n  - metadata:\n      name: n2\n", []string{"n1", "n2"}},
	"YAML, a flow list":            {"kind: NodeList\nitems: [{metadata: {name: n1}}, {metadata: {name: n2}}]\n", []string{"n1", "n2"}},
	"YAML, a Node without a line end": {
		"kind: Node\nmetadata:\n  name: n1", []string{"n1"},
	},
	"YAML, several documents": {"---\nkind: Node\nmetadata:\n  name: n1\n--- # the next\nkind: List\nitems:\n- metadata:\n    name: n2\n---\n", []string{"n1", "n2"}},
	"YAML, a document that begins on its marker, and one after an end": {
		"--- {kind: Node, metadata: {name: n1}}\n...\nkind: Node\nmetadata: {name: n2}\n", []string{"n1", "n2"},
	},
	"YAML, JSON in a document": {"---\n" + `{"kind":"Node","metadata":{"name":"n1"}}` + "\n", []string{"n1"}},
	"YAML, comments everywhere": {
		"# nodes\n---\n# of\nkind: List # all\nitems: # here\n# first\n- metadata:\n    name: n1\n# second\n- metadata:\n    # its name\n    name: n2\n# end\n",
		[]string{"n1", "n2"},
	},
	"YAML, comments before and between streamed items": {
		"kind: List\nitems:\n# first\n- metadata:\n    name: n1\n# second\n\n- metadata:\n    name: n2\n  # end\n", []string{"n1", "n2"},
	},
	"YAML, CRLF":            {"kind: List\r\nitems:\r\n- metadata:\r\n    name: n1\r\n- metadata:\r\n    name: n2\r\n", []string{"n1", "n2"}},
	"YAML, trailing spaces": {"kind: List \nitems: \t\n- metadata: \n    name: n1 \n", []string{"n1"}},
	"YAML, dashes in a text": {
		"items:\n- metadata:\n    annotations:\n      a: |\n        ---\n        - x\n        items:\n    name: n1\n- metadata:\n    name: n2\nkind: List\n", []string{"n1", "n2"},
	},
	"YAML, an empty list":      {"kind: List\nitems: []\n", nil},
	"YAML, null items":         {"kind: NodeList\nitems: null\n", nil},
	"YAML, items with nothing": {"kind: NodeList\nitems:\n", nil},
}

func namesIn(text string) ([]string, error) {
	var names []string
	err := kubelet.Decode(strings.NewReader(text), func(n *corev1.Node) error {
		names = append(names, n.Name)
		return nil
	})
	return names, err
}

func TestDecodeReadsWhatKubectlPrints(t *testing.T) {
	for name, c := range inputs {
		if got, err := namesIn(c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// badInputs and what their error says.
var badInputs = map[string]struct{ text, want string }{
	"empty":                           {"", "it is empty"},
	"white space only":                {" \n\t\r\n", "it is empty"},
	"comments only":                   {"# nothing\n---\n# here\n", "neither a Node nor a list"},
	"JSON cut off in an item":         {`{"kind":"List","items":[{"kind":"Node","metadata":{"name":"n1"}},{"kind":"No`, "cut off"},
	"JSON cut off between items":      {`{"kind":"List","items":[{"kind":"Node","metadata":{"name":"n1"}},`, "cut off"},
	"JSON cut off after the items":    {`{"kind":"List","items":[{"kind":"Node","metadata":{"name":"n1"}}]`, "cut off"},
	"JSON cut off in a key":           {`{"kind":"List","ite`, "cut off"},
	"JSON cut off after a key":        {`{"kind":"List","items"`, "cut off"},
	"JSON cut off in a value":         {`{"kind":"Li`, "cut off"},
	"YAML cut off before the kind":    {"apiVersion: v1\nitems:\n- kind: Node\n  metadata:\n    name: n1\n", "no kind: it may be cut off"},
	"JSON with garbage after it":      {`{"kind":"List","items":[]} garbage`, "invalid character 'g'"},
	"JSON with garbage between":       {`{"kind":"List" "items":[]}`, "invalid character"},
	"JSON with a wrong end":           {`{"kind":"List","items":[}`, "invalid character"},
	"JSON list at the top":            {`[{"kind":"Node","metadata":{"name":"n1"}}]`, "it is no object"},
	"items that are no list, in JSON": {`{"kind":"List","items":{"a":1}}`, "items is not a list"},
	"items that are no list, in YAML": {"kind: List\nitems: {a: 1}\n", "items is not a list"},
	"a Pod list as kubectl prints it": {`{"apiVersion":"v1","items":[{"kind":"Pod","metadata":{"name":"p"}}],"kind":"List"}`, `item 1 is a "Pod", not a Node`},
	"a Pod list from the raw API":     {`{"kind":"PodList","items":[{"metadata":{"name":"p"}}]}`, `it is a "PodList", not a list of Nodes`},
	"a Pod list in YAML":              {"items:\n- kind: Node\n  metadata:\n    name: n1\n- kind: Pod\n  metadata:\n    name: p\nkind: List\n", `item 2 is a "Pod", not a Node`},
	"a Pod":                           {`{"kind":"Pod","metadata":{"name":"p"}}`, `item 1 is a "Pod", not a Node`},
	"a Pod in YAML":                   {"kind: Pod\nmetadata:\n  name: p\n", `item 1 is a "Pod", not a Node`},
	"a Pod after a Node":              {"kind: Node\nmetadata:\n  name: n1\n---\nkind: Pod\nmetadata:\n  name: p\n", `item 2 is a "Pod", not a Node`},
	"a list without items":            {`{"kind":"List"}`, `item 1 is a "List", not a Node`},
	"a Node without a name":           {`{"kind":"List","items":[{"kind":"Node","metadata":{}}]}`, "item 1 is a Node without a name"},
	"a Node without a name, in YAML":  {"kind: Node\n", "item 1 is a Node without a name"},
	"null as an item":                 {`{"kind":"List","items":[null]}`, "item 1 is a Node without a name"},
	"a wrong type in JSON":            {`{"kind":"List","items":[{"metadata":{"name":"n1"}},{"metadata":{"name":5}}]}`, "item 2: json: cannot unmarshal number"},
	"a wrong type in YAML":            {"kind: List\nitems:\n- metadata:\n    name: n1\n- metadata:\n    name: [5]\n", "item 2: "},
	"a wrong type in a Node":          {`{"kind":"Node","metadata":"n1"}`, "cannot unmarshal string"},
	"an item that is text":            {"kind: List\nitems:\n- n1\n", "item 1: "},
	"text":                            {"hello world\n", "it is no object"},
	"no YAML":                         {"a: b: c\n", "neither JSON nor YAML"},
	"no YAML within an item":          {"kind: List\nitems:\n- a: b: c\n", "item 1: "},
	"a hostile kind":                  {`{"kind":"\u001b[2J` + strings.Repeat("x", 200) + `","metadata":{"name":"p"}}`, `item 1 is a "\x1b[2Jxxx`},
	"a table":                         {"NAME   STATUS   ROLES\nn1     Ready    <none>\n", "it is no object"},
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	for name, c := range badInputs {
		_, err := namesIn(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestDecodePassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{inputs["JSON, a Node"].text, inputs["YAML, CRLF"].text} {
		if err := kubelet.Decode(strings.NewReader(text), func(*corev1.Node) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("the callback's error became %v", err)
		}
	}
	for _, text := range []string{"", `{"kind":"List",`, "kind: List\n"} {
		in := io.MultiReader(strings.NewReader(text), failingReader{broken})
		if err := kubelet.Decode(in, func(*corev1.Node) error { return nil }); !errors.Is(err, broken) {
			t.Errorf("after %q the reader's error became %v", text, err)
		}
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestJSONAndYAMLGiveTheSameNodes(t *testing.T) {
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	for i := range 3 {
		node := nodeAt(int32(10250+i), corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00::1"})
		node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		node.Name = fmt.Sprintf("n%d: - #", i)
		node.Labels = map[string]string{"yes": "on", "number": "012", "text": "a\n- b\n---\nitems:\n"}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True"}}
		list.Items = append(list.Items, *node)
	}
	asYAML, err := yaml.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(asYAML)
	if err != nil {
		t.Fatal(err)
	}
	decode := func(text []byte) (nodes []*corev1.Node) {
		err := kubelet.Decode(strings.NewReader(string(text)), func(n *corev1.Node) error {
			nodes = append(nodes, n)
			return nil
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return nodes
	}
	fromYAML, fromJSON := decode(asYAML), decode(asJSON)
	if len(fromYAML) != 3 || !reflect.DeepEqual(fromYAML, fromJSON) {
		t.Errorf("YAML gave %+v\nJSON gave %+v", fromYAML, fromJSON)
	}
}

// generated gives a list of n items, made as they are read.
type generated struct {
	head, tail string
	item       func(i int) string
	n, given   int
	text       string
	done       bool
}

func (g *generated) Read(p []byte) (int, error) {
	for g.text == "" {
		switch {
		case g.head != "":
			g.text, g.head = g.head, ""
		case g.given < g.n:
			g.text = g.item(g.given)
			g.given++
		case g.done:
			return 0, io.EOF
		default:
			g.text, g.done = g.tail, true
		}
	}
	n := copy(p, g.text)
	g.text = g.text[n:]
	return n, nil
}

// ballast stands for the images and annotations of a real Node.
var ballast = strings.Repeat("x", 20_000)

func generatedJSON(n int) *generated {
	return &generated{head: `{"apiVersion":"v1","items":[`, tail: `],"kind":"List"}`, n: n, item: func(i int) string {
		comma := ","
		if i == 0 {
			comma = ""
		}
		return fmt.Sprintf(`%s{"kind":"Node","metadata":{"name":"n%d","annotations":{"a":%q}}}`, comma, i, ballast)
	}}
}

func generatedYAML(n int) *generated {
	return &generated{head: "apiVersion: v1\nitems:\n", tail: "kind: List\n", n: n, item: func(i int) string {
		return fmt.Sprintf("- kind: Node\n  metadata:\n    name: n%d\n    annotations:\n      a: %s\n", i, ballast)
	}}
}

func TestDecodeHoldsOneNodeAtATime(t *testing.T) {
	for name, g := range map[string]*generated{
		"60 MB of JSON": generatedJSON(3000),
		"10 MB of YAML": generatedYAML(500),
	} {
		t.Run(name, func(t *testing.T) {
			decoded, ahead := 0, 0
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			err := kubelet.Decode(g, func(*corev1.Node) error {
				decoded++
				ahead = max(ahead, g.given-decoded)
				if decoded%250 == 0 {
					runtime.GC()
					runtime.ReadMemStats(&now)
					if grown := int64(now.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
						t.Errorf("%d bytes are held after %d nodes", grown, decoded)
					}
				}
				return nil
			})
			if err != nil || decoded != g.n {
				t.Fatalf("%d nodes, %v", decoded, err)
			}
			// The buffers before the decoder hold a few items.
			if ahead > 20 {
				t.Errorf("%d items were read ahead of the callback", ahead)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range inputs {
		f.Add(c.text)
	}
	for _, c := range badInputs {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		seen := 0
		err := kubelet.Decode(strings.NewReader(text), func(n *corev1.Node) error {
			seen++
			if n.Name == "" {
				t.Error("a Node without a name")
			}
			return nil
		})
		if err == nil && strings.TrimSpace(text) == "" {
			t.Error("nothing was taken for Nodes")
		}
		if err != nil && len(err.Error()) > 64<<10 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
