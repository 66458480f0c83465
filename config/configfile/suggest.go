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
// takes no notice of case, and allows two wrong letters, or one in three.
func Closest(word string, known []string) string {
	best, least := "", max(len(word)/3, min(2, len(word)-1))+1
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
	above, name, fields := around(t, path)
	if meant := Closest(name, slices.Collect(maps.Keys(fields))); meant != "" {
		return above + meant
	}
	return ""
}

// FieldBelow is the name of a field beside an unknown one that has a field of its name, as spec of containers at the top; or
// empty.
func FieldBelow(t reflect.Type, path string) string {
	_, name, fields := around(t, path)
	for _, beside := range slices.Sorted(maps.Keys(fields)) {
		if at := fields[beside]; beside != "status" && at.Kind() != reflect.Slice {
			if _, there := jsonFields(at)[name]; there {
				return beside
			}
		}
	}
	return ""
}

// around splits a path before the name of its field, and returns the fields of the structure that the name is in.
func around(t reflect.Type, path string) (above, name string, fields map[string]reflect.Type) {
	name = path
	if i := strings.LastIndex(path, "."); i >= 0 {
		above, name = path[:i+1], path[i+1:]
	}
	for _, key := range strings.Split(above, ".") {
		if key == "" {
			continue
		}
		next, ok := jsonFields(t)[fieldIndex.ReplaceAllString(key, "")]
		if !ok {
			return above, name, nil
		}
		t = next
	}
	return above, name, jsonFields(t)
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
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
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
