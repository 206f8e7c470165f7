package kubelet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Decode reads what "kubectl get nodes -o json" or "-o yaml" prints: a List, a
// NodeList, single Nodes, or several such documents. It holds one Node at a
// time, so the size of the input does not matter, and calls each with every
// Node, stripped. The error says which item is no Node.
func Decode(r io.Reader, each func(*corev1.Node) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	d := &decoder{each: each}
	first, err := firstByte(in)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case err != nil:
		return err
	case first == '{' || first == '[':
		err = d.json(in)
	default:
		err = d.yaml(in)
	}
	if err != nil {
		return err
	}
	if !d.recognised {
		return errors.New("it holds neither a Node nor a list of Nodes")
	}
	return nil
}

type decoder struct {
	each       func(*corev1.Node) error
	items      int
	recognised bool // a Node or a list was seen, be it empty
}

// firstByte peeks at the first byte that is no white space.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if strings.IndexByte(" \t\r\n\ufeff", b) < 0 {
			return b, in.UnreadByte()
		}
	}
}

func (d *decoder) node(node *corev1.Node) error {
	d.items++
	switch {
	case node.Kind != "" && node.Kind != "Node":
		return fmt.Errorf("item %d is a %.60q, not a Node", d.items, node.Kind)
	case node.Name == "":
		return fmt.Errorf("item %d is a Node without a name", d.items)
	}
	d.recognised = true
	return d.each(Stripped(node))
}

// list checks the kind of an object that holds items.
func (d *decoder) list(kind string) error {
	if kind == "" {
		return errors.New("it has items but no kind: it may be cut off")
	}
	if kind != "List" && kind != "NodeList" {
		return fmt.Errorf("it is a %.60q, not a list of Nodes", kind)
	}
	d.recognised = true
	return nil
}

func (d *decoder) json(in io.Reader) error {
	decoder := json.NewDecoder(in)
	for {
		err := d.jsonDocument(decoder)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("the JSON is cut off after %d bytes", decoder.InputOffset())
		case err != nil:
			return err
		}
	}
}

// jsonDocument reads one top-level object field by field, so that the items of
// a list need not fit into memory. io.EOF means that there is none left.
func (d *decoder) jsonDocument(in *json.Decoder) error {
	open, err := in.Token()
	if err != nil {
		return err
	}
	if open != json.Delim('{') {
		return errors.New("it is no object, so it is neither a Node nor a list of Nodes")
	}
	fields := map[string]json.RawMessage{}
	listed := false
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return unexpected(err)
		}
		if key == "items" {
			listed = true
			if err := d.jsonItems(in); err != nil {
				return err
			}
			continue
		}
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return unexpected(err)
		}
		fields[key.(string)] = value //nolint:forcetypeassert // a key of an object is a string
	}
	if _, err := in.Token(); err != nil {
		return unexpected(err)
	}
	if listed {
		var kind string
		_ = json.Unmarshal(fields["kind"], &kind)
		return d.list(kind)
	}
	whole, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	node := &corev1.Node{}
	if err := json.Unmarshal(whole, node); err != nil {
		return err
	}
	return d.node(node)
}

func (d *decoder) jsonItems(in *json.Decoder) error {
	open, err := in.Token()
	if err != nil {
		return unexpected(err)
	}
	switch open {
	case nil: // null, as an empty list may be written
		return nil
	case json.Delim('['):
	default:
		return errors.New("items is not a list")
	}
	for in.More() {
		node := &corev1.Node{}
		if err := in.Decode(node); err != nil {
			return fmt.Errorf("item %d: %w", d.items+1, unexpected(err))
		}
		if err := d.node(node); err != nil {
			return err
		}
	}
	_, err = in.Token()
	return unexpected(err)
}

// unexpected turns the end of the input within an object into what it is.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// yaml splits the text into documents, and a document's items from each other,
// by their lines: a YAML parser would want all of it in memory.
func (d *decoder) yaml(in *bufio.Reader) error {
	s := splitter{decoder: d}
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			if err := s.line(line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.endDocument()
		case err != nil:
			return err
		}
	}
}

// splitter gathers the lines of one item, and those of the document around it.
type splitter struct {
	decoder *decoder
	around  bytes.Buffer // the document without its items
	item    bytes.Buffer
	// within the items of a list; dash is the indentation of its "- ", -1
	// before the first one.
	within bool
	dash   int
}

func (s *splitter) line(line []byte) error {
	text := bytes.TrimRight(line, " \t\r\n")
	indent := len(text) - len(bytes.TrimLeft(text, " "))
	content, marked := afterMarker(text)
	switch {
	case marked:
		err := s.endDocument()
		s.around.Write(content)
		return err
	case !s.within && string(text) == "items:":
		s.within, s.dash = true, -1
		s.around.WriteString("items: []\n")
		return nil
	case !s.within:
		s.around.Write(line)
		return nil
	case indent == len(text) || text[indent] == '#':
		s.item.Write(line)
		return nil
	}
	starts := text[indent] == '-' && (s.dash < 0 || indent == s.dash)
	if starts {
		if err := s.endItem(); err != nil {
			return err
		}
		s.dash = indent
	} else if indent <= s.dash || s.dash < 0 {
		s.within = false
		if err := s.endItem(); err != nil {
			return err
		}
		s.around.Write(line)
		return nil
	}
	s.item.Write(line)
	return nil
}

// afterMarker recognises "---" and "...", which end a document, and gives what
// follows on the line.
func afterMarker(text []byte) ([]byte, bool) {
	if !bytes.HasPrefix(text, []byte("---")) && !bytes.HasPrefix(text, []byte("...")) {
		return nil, false
	}
	content := text[3:]
	if len(content) > 0 && content[0] != ' ' && content[0] != '\t' {
		return nil, false
	}
	return append(bytes.Clone(content), '\n'), true
}

func (s *splitter) endItem() error {
	defer s.item.Reset()
	if len(bytes.TrimSpace(s.item.Bytes())) == 0 {
		return nil
	}
	var nodes []corev1.Node
	if err := yaml.Unmarshal(s.item.Bytes(), &nodes); err != nil {
		return fmt.Errorf("item %d: %w", s.decoder.items+1, err)
	}
	for i := range nodes {
		if err := s.decoder.node(&nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *splitter) endDocument() error {
	if err := s.endItem(); err != nil {
		return err
	}
	defer func() {
		s.around.Reset()
		s.within = false
	}()
	text, err := yaml.YAMLToJSON(s.around.Bytes())
	switch {
	case err != nil:
		return fmt.Errorf("it is neither JSON nor YAML of Nodes: %w", err)
	case string(text) == "null": // nothing, or comments alone
		return nil
	}
	return s.decoder.json(bytes.NewReader(text))
}
