package cri

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// Expand replaces $(NAME) by what lookup says of NAME, in the syntax the API
// documents for command, args and env: "$$" stands for one "$" and protects what
// follows, an unclosed "$(" and a "$" before anything else stay as they are, and
// so does a reference lookup does not know. What is put in is not expanded again.
func Expand(text string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String()
		case after == "":
			out.WriteByte('$')
			return out.String()
		case after[0] == '$':
			out.WriteByte('$')
			text = after[1:]
		case after[0] == '(':
			text = expandReference(&out, after[1:], lookup)
		default:
			_, size := utf8.DecodeRuneInString(after)
			out.WriteByte('$')
			out.WriteString(after[:size])
			text = after[size:]
		}
	}
}

// expandReference writes the value of the reference whose opening was just read
// and returns the text after it.
func expandReference(out *strings.Builder, text string, lookup func(string) (string, bool)) string {
	name, rest, closed := strings.Cut(text, ")")
	if !closed {
		out.WriteString("$(")
		return text
	}
	if value, ok := lookup(name); ok {
		out.WriteString(value)
	} else {
		out.WriteString("$(" + name + ")")
	}
	return rest
}

// ExpandSubPath expands a volume mount's subPathExpr by the container's environment. A
// variable that is not set, or is empty, is an error that names it, as with the kubelet:
// what is left of the path would be another container's part of the volume.
func ExpandSubPath(expr string, env []EnvVar) (string, error) {
	values := envMap(env)
	missing := map[string]bool{}
	path := Expand(expr, func(name string) (string, bool) {
		if values[name] == "" {
			missing[name] = true
		}
		return values[name], true
	})
	if len(missing) > 0 {
		names := slices.Sorted(maps.Keys(missing))
		return "", fmt.Errorf("the container's environment has no value for %s", strings.Join(names, ", "))
	}
	return path, nil
}

func expandAll(texts []string, lookup func(string) (string, bool)) []string {
	var out []string
	for _, text := range texts {
		out = append(out, Expand(text, lookup))
	}
	return out
}

// lookupIn looks a name up in the maps, the first that has it.
func lookupIn(maps ...map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, m := range maps {
			if value, ok := m[name]; ok {
				return value, true
			}
		}
		return "", false
	}
}

// ExpandCommand expands a command that runs in a container that is there already: by what the container's spec says of its
// environment word for word, since nothing else is looked up again.
func ExpandCommand(command []string, env []v1.EnvVar) []string {
	values := map[string]string{}
	for i := range env {
		if env[i].ValueFrom == nil {
			values[env[i].Name] = env[i].Value
		}
	}
	return expandAll(command, lookupIn(values))
}
