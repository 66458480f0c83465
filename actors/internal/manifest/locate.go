package manifest

import (
	"bytes"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
)

// locator finds the line of a field within the text of one document. It parses the text on demand, since most manifests have no
// faults. JSON is parsed as YAML. They differ only in characters beyond Unicode's first plane that are written as two escapes.
type locator struct {
	text []byte
	root *place // nil: not parsed yet
}

// place is a value in a document, and the line of its key, or else of itself; 1 is the first.
type place struct {
	node *yamlnode.Node
	line int
}

// find returns the line of a field, or of its innermost parent that exists.
func (l *locator) find(field string) int {
	if l.root == nil {
		var document yamlnode.Node
		if err := yamlnode.Unmarshal(l.text, &document); err != nil || len(document.Content) == 0 {
			return firstLine(l.text)
		}
		l.root = &place{document.Content[0], document.Content[0].Line}
	}
	here := l.root
	for _, key := range splitField(field) {
		next := here.child(key)
		if next == nil {
			break
		}
		here = next
	}
	return fromYAMLLine(l.text, here.line)
}

// splitField returns the keys of a path like spec.containers[0].resources.limits[example.com/gpu].
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

// child returns the place of a key, or of an item of a list; nil if there is none. It does not follow aliases and merge keys: the
// line is the one of the alias.
func (p *place) child(key string) (found *place) {
	switch p.node.Kind {
	case yamlnode.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(p.node.Content) {
			return &place{p.node.Content[i], p.node.Content[i].Line}
		}
	case yamlnode.MappingNode: // the last of this key, which is the fault where JSON has it twice
		for i := 0; i+1 < len(p.node.Content); i += 2 {
			if name := p.node.Content[i]; name.Value == key {
				found = &place{p.node.Content[i+1], name.Line}
			}
		}
	}
	return found
}

// lineAt returns the line of an offset, 1 for the first.
func lineAt(data []byte, offset int) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), len(data))], []byte("\n"))
}

// lastLine returns the last line of text that is not empty, 1 for the first.
func lastLine(text []byte) int { return lineAt(text, len(bytes.TrimRight(text, " \t\r\n"))) }

// firstLine returns the first line of text that is not empty, 1 for the first.
func firstLine(text []byte) int {
	return lineAt(text, len(text)-len(bytes.TrimLeft(text, " \t\r\n")))
}

// fromYAMLLine converts a line of the YAML parser, which may be one behind the last.
func fromYAMLLine(text []byte, line int) int { return min(max(line, 1), lastLine(text)) }
