package configfile

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
)

// Closest is the one of the known words that a mistyped one probably means, and empty where none is near enough. It
// takes no notice of case, and allows one wrong letter in a word of up to three, two in one of up to eight, and then one in
// three.
func Closest(word string, known []string) string {
	best, least := "", max(len(word)/3, min(2, len(word)/2))+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of letters that have to be put in, taken out or replaced to make one word of the other
// (Levenshtein's).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

var fieldIndex = regexp.MustCompile(`\[\d+\]`)

// MeantField is the path of the field of a structure that an unknown one, as spec.containers[0].imag, probably means, or empty.
func MeantField(t reflect.Type, path string) string {
	all, name := levels(t, path)
	if len(all) == 0 {
		return ""
	}
	at := all[len(all)-1]
	if meant := Closest(name, slices.Collect(maps.Keys(at.fields))); meant != "" {
		return at.path + meant
	}
	return ""
}

// Misplaced returns advice for an unknown field that exists at another level, such as image in spec: "indent it below
// spec.containers[0]". It is empty if there is no such level, or more than one. prefix is added to the paths in the advice.
func Misplaced(t reflect.Type, path, prefix string) string {
	all, name := levels(t, path)
	if len(all) == 0 {
		return ""
	}
	at := all[len(all)-1]
	if below := at.below(name); below != "" {
		return "indent it below " + prefix + below
	}
	for _, up := range slices.Backward(all[:len(all)-1]) {
		if _, there := up.fields[name]; there {
			if up.path+prefix == "" {
				return "move it up to the top level"
			}
			return "move it up to " + strings.TrimSuffix(prefix+up.path, ".")
		}
		if below := up.structBelow(name); below != "" {
			return "move it below " + prefix + below
		}
	}
	return ""
}

// level is one of the structures that a path leads through.
type level struct {
	path   string // with a dot at its end; empty for the top
	fields map[string]reflect.Type
}

// below returns the path of the field of l whose structure, or whose items, have a field of this name, or "".
func (l level) below(name string) string {
	if name == "name" { // almost everything has one
		return ""
	}
	if field := l.structBelow(name); field != "" {
		return field
	}
	const usual = "containers" // init and ephemeral containers, and volumes with the same field, are rarer
	switch lists := l.with(name, reflect.Slice); {
	case len(lists) == 1:
		return l.path + lists[0] + "[0]"
	case slices.Contains(lists, usual):
		return l.path + usual + "[0]"
	}
	return ""
}

// structBelow returns the path of the one field of l whose structure has a field of this name, or "". A status is not the user's.
func (l level) structBelow(name string) string {
	found := slices.DeleteFunc(l.with(name, reflect.Struct), func(field string) bool { return field == "status" })
	if len(found) != 1 {
		return ""
	}
	return l.path + found[0]
}

// with returns the fields of l that are structures, or lists of structures, with a field of this name, sorted.
func (l level) with(name string, kind reflect.Kind) (out []string) {
	for _, beside := range slices.Sorted(maps.Keys(l.fields)) {
		of := l.fields[beside]
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if _, there := jsonFields(of)[name]; there && of.Kind() == kind {
			out = append(out, beside)
		}
	}
	return out
}

// levels returns the structures that a path leads through, from the top, and the name at its end.
func levels(t reflect.Type, path string) (all []level, name string) {
	keys := strings.Split(path, ".")
	at := level{"", jsonFields(t)}
	for _, key := range keys[:len(keys)-1] {
		all = append(all, at)
		next, ok := at.fields[fieldIndex.ReplaceAllString(key, "")]
		if !ok {
			return nil, ""
		}
		at = level{at.path + key + ".", jsonFields(next)}
	}
	return append(all, at), keys[len(keys)-1]
}

// jsonFields are the fields of a structure, or of the items of a list of structures, by their names in the file.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	out := map[string]reflect.Type{}
	var named [][]int // embedded structures that are fields in the file, such as metadata
	for _, f := range reflect.VisibleFields(t) {
		within := func(in []int) bool { return len(f.Index) > len(in) && slices.Equal(f.Index[:len(in)], in) }
		if slices.ContainsFunc(named, within) {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name != "" {
			named = append(named, f.Index)
		}
		if name != "" && name != "-" {
			out[name] = f.Type
		}
	}
	return out
}

// Line is the line of a field in a file of YAML or JSON, or of the innermost one around it that is there; 0 where there is none.
func Line(data []byte, path string) int {
	var document yamlnode.Node
	if yamlnode.Unmarshal(data, &document) != nil || len(document.Content) == 0 {
		return 0
	}
	node, line := document.Content[0], 0
	for key := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		if node.Kind == yamlnode.SequenceNode {
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(node.Content) {
				return line
			}
			node, line = node.Content[i], node.Content[i].Line
			continue
		}
		found := false
		for i := 0; i+1 < len(node.Content) && node.Kind == yamlnode.MappingNode; i += 2 {
			if node.Content[i].Value == key {
				line, node, found = node.Content[i].Line, node.Content[i+1], true
				break
			}
		}
		if !found {
			return line
		}
	}
	return line
}
