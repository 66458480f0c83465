package manifest

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
)

// locator finds the line of a field within the text of one document. It reads the text again only when asked, as most
// manifests have nothing wrong.
type locator struct {
	text []byte
	root place
}

// place is a value in a document: an object, a list or neither.
type place interface {
	// line is where the value stands, or its key if it has one; 1 is the first.
	line() int
	// child returns the place of a key, or of an item where the place is a list; nil if there is none.
	child(key string) place
}

// find returns the line of a field, or of the innermost thing around it that is there.
func (l *locator) find(field string) int {
	if l.root == nil {
		l.root = readPlaces(l.text)
	}
	here := l.root
	for _, key := range splitField(field) {
		next := here.child(key)
		if next == nil {
			break
		}
		here = next
	}
	if _, isYAML := here.(*yamlPlace); isYAML {
		return fromYAMLLine(l.text, here.line())
	}
	return here.line()
}

// splitField takes spec.containers[0].resources.limits[example.com/gpu] apart into its keys.
func splitField(field string) []string {
	var keys []string
	for field != "" {
		if inside, ok := strings.CutPrefix(field, "["); ok {
			key, rest, _ := strings.Cut(inside, "]")
			keys, field = append(keys, key), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(field, ".[")
		if end < 0 {
			return append(keys, field)
		}
		keys = append(keys, field[:end])
		field = strings.TrimPrefix(field[end:], ".")
	}
	return keys
}

func readPlaces(text []byte) place {
	if looksLikeJSON(text) && json.Valid(text) {
		reader := &jsonReader{text: text, decoder: json.NewDecoder(bytes.NewReader(text))}
		return reader.value(0)
	}
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(text, &document); err != nil || len(document.Content) == 0 {
		return &jsonPlace{at: firstLine(text)}
	}
	return &yamlPlace{node: document.Content[0], at: document.Content[0].Line}
}

// yamlPlace follows aliases and merge keys as they are asked for, since there may be exponentially many ways through
// them.
type yamlPlace struct {
	node *yamlnode.Node
	at   int
}

func (p *yamlPlace) line() int { return p.at }

func (p *yamlPlace) child(key string) place {
	node := p.node
	for node.Kind == yamlnode.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yamlnode.SequenceNode:
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(node.Content) {
			return nil
		}
		return &yamlPlace{node: node.Content[i], at: node.Content[i].Line}
	case yamlnode.MappingNode:
		return childOf(node, key, 0)
	}
	return nil
}

// mergesDeep bounds how far merge keys are followed: one that merges itself has no end.
const mergesDeep = 10

func childOf(node *yamlnode.Node, key string, depth int) place {
	var merged place
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if name.Value == key {
			return &yamlPlace{node: value, at: name.Line}
		}
		if name.Tag == "!!merge" && merged == nil {
			merged = childOfMerged(value, key, depth)
		}
	}
	return merged
}

func childOfMerged(value *yamlnode.Node, key string, depth int) place {
	if depth >= mergesDeep {
		return nil
	}
	for value.Kind == yamlnode.AliasNode {
		value = value.Alias
	}
	switch value.Kind {
	case yamlnode.MappingNode:
		return childOf(value, key, depth+1)
	case yamlnode.SequenceNode:
		for _, item := range value.Content {
			if found := childOfMerged(item, key, depth+1); found != nil {
				return found
			}
		}
	}
	return nil
}

// jsonPlace is a place of a JSON text, read whole.
type jsonPlace struct {
	at     int
	keys   map[string]*jsonPlace
	values []*jsonPlace
}

func (p *jsonPlace) line() int { return p.at }

func (p *jsonPlace) child(key string) place {
	if found, ok := p.keys[key]; ok {
		return found
	}
	if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(p.values) {
		return p.values[i]
	}
	return nil
}

// jsonReader reads a text that is known to be valid JSON, so that its tokens need no checks.
type jsonReader struct {
	text    []byte
	decoder *json.Decoder
	counted int // how far lines were counted
	lines   int
}

// next returns the next token and its line.
func (r *jsonReader) next() (json.Token, int) {
	begin := int(r.decoder.InputOffset())
	for begin < len(r.text) && bytes.IndexByte([]byte(" \t\r\n,:"), r.text[begin]) >= 0 {
		begin++
	}
	r.lines += bytes.Count(r.text[r.counted:begin], []byte("\n"))
	r.counted = begin
	token, err := r.decoder.Token()
	if err != nil {
		return nil, r.lines + 1
	}
	return token, r.lines + 1
}

// value reads one value; keyLine is the line of its key, 0 where it has none.
func (r *jsonReader) value(keyLine int) *jsonPlace {
	token, line := r.next()
	here := &jsonPlace{at: line}
	if keyLine > 0 {
		here.at = keyLine
	}
	switch token {
	case json.Delim('{'):
		here.keys = map[string]*jsonPlace{}
		for r.decoder.More() {
			token, line := r.next()
			key, ok := token.(string)
			if !ok {
				return here
			}
			here.keys[key] = r.value(line)
		}
		r.next()
	case json.Delim('['):
		for r.decoder.More() {
			here.values = append(here.values, r.value(0))
		}
		r.next()
	}
	return here
}
