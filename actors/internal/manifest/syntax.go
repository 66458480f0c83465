package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// toJSON converts a document into JSON. repeated are the keys that a map has twice, where the last one is used. Faults have lines
// within the document.
func toJSON(text []byte) (converted []byte, faults, repeated []fault) {
	if looksLikeJSON(text) && json.Valid(text) {
		return text, nil, nil
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil && strings.Contains(err.Error(), "already set in map") {
		if unfit, twice := wrongKeys(text); len(unfit) == 0 { // a key that overrides a merged one is no repetition
			repeated = twice
			converted, err = yaml.YAMLToJSON(text)
		}
	}
	if err != nil {
		if syntax := jsonFault(text); syntax != nil {
			return nil, []fault{*syntax}, nil
		}
		return nil, slips(text, yamlFaults(text, err)), nil
	}
	if line := secondDocument(text); line > 0 {
		return nil, []fault{{line: line, message: "another document begins here without a line of --- before it"}}, nil
	}
	return converted, nil, repeated
}

// jsonFault finds where text stops being JSON, if it began as JSON and not as YAML in braces.
func jsonFault(text []byte) *fault {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte("{"))
	if !ok || !bytes.HasPrefix(bytes.TrimSpace(rest), []byte(`"`)) {
		return nil
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, new(any)); !errors.As(err, &syntax) {
		return nil
	}
	return &fault{line: lineAt(text, int(syntax.Offset)-1), message: "is not JSON: " + syntax.Error()}
}

// slips replaces the faults caused by a tab or a template by one that names the cause.
func slips(text []byte, faults []fault) []fault {
	lines := bytes.Split(text, []byte("\n"))
	about := func(line int) string {
		if line < 1 || line > len(lines) {
			return ""
		}
		switch l := lines[line-1]; {
		case bytes.ContainsRune(l[:len(l)-len(bytes.TrimLeft(l, " \t"))], '\t'):
			return "is indented by a tab: YAML takes spaces only"
		case bytes.Contains(l, []byte("{{")):
			return "has a template that was not rendered: {{ (helm template renders a chart)"
		}
		return ""
	}
	for _, f := range faults {
		for _, line := range []int{f.line, f.line + 1, f.line - 1} { // the parser may be one off
			if message := about(line); message != "" {
				return []fault{{line: line, message: message}}
			}
		}
	}
	return faults
}

// yamlFaults finds the lines of an error of the YAML parser. The parser reports the line of the unexpected token, counted from 0
// or from 1 depending on its layer, and no line for the first one. For invalid keys it reports no place.
func yamlFaults(text []byte, err error) []fault {
	if unfit, twice := wrongKeys(text); len(unfit) > 0 || len(twice) > 0 {
		return append(unfit, twice...)
	}
	message := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ", "")
	line, what := cutLine(message)
	switch {
	case strings.HasPrefix(what, "did not find expected"):
		line++
	case strings.HasPrefix(what, "could not find expected ':'"), strings.HasPrefix(what, "found unexpected end of"):
		// The other parser gives the line where the fault begins, which helps more than the line where this one gave up.
		if err := yamlnode.Unmarshal(text, new(yamlnode.Node)); err != nil {
			line, _ = cutLine(strings.TrimPrefix(err.Error(), "yaml: "))
		}
	case line == 0:
		return []fault{{line: lineOfCulprit(text), message: "is not YAML: " + what}}
	}
	return []fault{{line: fromYAMLLine(text, line), message: "is not YAML: " + what}}
}

func cutLine(message string) (line int, rest string) {
	found := yamlLine.FindStringSubmatch(message)
	if found == nil {
		return 0, message
	}
	line, err := strconv.Atoi(found[1])
	if err != nil {
		return 0, message
	}
	return line, message[len(found[0]):]
}

// lineOfCulprit returns the line of bytes that the parser reports without a line. It is the first line for any other fault, such
// as an alias of an unknown anchor.
func lineOfCulprit(text []byte) int {
	for offset := 0; offset < len(text); {
		r, size := utf8.DecodeRune(text[offset:])
		if (r == utf8.RuneError && size == 1) || (r < ' ' && r != '\t' && r != '\n' && r != '\r') || r == 0x7f {
			return lineAt(text, offset)
		}
		offset += size
	}
	return firstLine(text)
}

// secondDocument returns the line of something behind the end of a document in braces, which the parser would leave
// unread, or 0.
func secondDocument(text []byte) int {
	trimmed := bytes.TrimSpace(text)
	if len(trimmed) == 0 || !bytes.ContainsRune([]byte("{[\"'-"), rune(trimmed[0])) {
		return 0
	}
	decoder := yamlnode.NewDecoder(bytes.NewReader(text))
	var first, second yamlnode.Node
	if err := decoder.Decode(&first); err != nil {
		return 0
	}
	switch err := decoder.Decode(&second); {
	case errors.Is(err, io.EOF):
		return 0
	case err != nil:
		line, _ := cutLine(strings.TrimPrefix(err.Error(), "yaml: "))
		return fromYAMLLine(text, line+1)
	default:
		return fromYAMLLine(text, second.Line)
	}
}

// wrongKeys returns the keys of a YAML document that are not text, and those that a map has twice. It visits each node once
// and does not follow aliases.
func wrongKeys(text []byte) (unfit, twice []fault) {
	var document yamlnode.Node
	if err := yamlnode.Unmarshal(text, &document); err != nil {
		return nil, nil
	}
	wrong := func(faults *[]fault, key *yamlnode.Node, at, message string) {
		if len(*faults) < maxProblems {
			*faults = append(*faults, fault{field: at, line: fromYAMLLine(text, key.Line), message: message})
		}
	}
	var check func(node *yamlnode.Node, at string)
	checkMap := func(node *yamlnode.Node, at string) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			if key.Kind == yamlnode.MappingNode || key.Kind == yamlnode.SequenceNode {
				wrong(&unfit, key, at, "a key must be text, not a map or a list")
				continue
			}
			child := strings.TrimPrefix(at+"."+key.Value, ".")
			if seen[key.Value] && key.Tag != "!!merge" {
				wrong(&twice, key, child, "is there twice")
			}
			seen[key.Value] = true
			check(node.Content[i+1], child)
		}
	}
	check = func(node *yamlnode.Node, at string) {
		switch node.Kind {
		case yamlnode.DocumentNode:
			for _, content := range node.Content {
				check(content, at)
			}
		case yamlnode.SequenceNode:
			for i, item := range node.Content {
				check(item, at+"["+strconv.Itoa(i)+"]")
			}
		case yamlnode.MappingNode:
			checkMap(node, at)
		}
	}
	check(&document, "")
	return unfit, twice
}
