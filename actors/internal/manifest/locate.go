package manifest

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlnode "go.yaml.in/yaml/v3"
)

// locator finds the line of a field within the text of one document. It reads the text again only when asked, as most
// manifests have nothing wrong. JSON is read as YAML, which it is, but for characters beyond Unicode's first plane that are
// written as two escapes.
type locator struct {
	text []byte
	root *place // nil: it was not read yet
}

// place is a value in a document, and the line where it stands, or its key if it has one; 1 is the first.
type place struct {
	node *yamlnode.Node
	line int
}

// find returns the line of a field, or of the innermost thing around it that is there.
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

// child returns the place of a key, or of an item where the place is a list; nil if there is none. Aliases and merge keys are
// followed as they are asked for, since there may be exponentially many ways through them.
func (p *place) child(key string) *place {
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
		return &place{node.Content[i], node.Content[i].Line}
	case yamlnode.MappingNode:
		return childOf(node, key, 0)
	}
	return nil
}

// mergesDeep bounds how far merge keys are followed: one that merges itself has no end.
const mergesDeep = 10

// childOf is the last of this key: that is what is wrong where JSON has it twice.
func childOf(node *yamlnode.Node, key string, depth int) (found *place) {
	var merged *place
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if name.Value == key {
			found = &place{value, name.Line}
		}
		if name.Tag == "!!merge" && merged == nil {
			merged = childOfMerged(value, key, depth)
		}
	}
	return cmp.Or(found, merged)
}

func childOfMerged(value *yamlnode.Node, key string, depth int) *place {
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

// fromYAMLLine turns a line as the YAML parser counts them into one as editors do. YAML 1.1 has more ways to end a line
// than the line feed, and the parser may stop behind the last line.
func fromYAMLLine(text []byte, line int) int {
	offset := 0
	for ; line > 1 && offset < len(text); line-- {
		offset += lineLength(text[offset:])
	}
	return min(lineAt(text, offset), lastLine(text))
}

// lineLength returns how many bytes the first line of text has, with what ends it.
func lineLength(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		at += size
		switch r {
		case '\r':
			if at < len(text) && text[at] == '\n' {
				at++
			}
			return at
		case '\n', '\u0085', '\u2028', '\u2029':
			return at
		}
	}
	return len(text)
}
