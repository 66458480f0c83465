package translate

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxString bounds an argument or a variable, and maxStrings all of them together, in bytes: the kernel starts no program
// with more (execve(2)), where the stack is limited to 8 MiB as usual. A few references could ask for gigabytes.
var maxString = 32 * os.Getpagesize()

const maxStrings = 2 << 20

// Expand replaces $(NAME) by what lookup says of NAME, in the syntax the API
// documents for command, args and env: "$$" stands for one "$" and protects what
// follows, an unclosed "$(" and a "$" before anything else stay as they are, and
// so does a reference lookup does not know. What is put in is not expanded again.
// A result that no program can be given is an error, and is never built.
func Expand(text string, lookup func(name string) (string, bool)) (string, error) {
	var out strings.Builder
	for text != "" {
		piece, reference := "", ""
		switch {
		case strings.HasPrefix(text, "$$"):
			piece, text = "$", text[2:]
		case strings.HasPrefix(text, "$(") && strings.Contains(text, ")"):
			name, rest, _ := strings.Cut(text[2:], ")")
			piece, text = text[:len(name)+3], rest
			if value, known := lookup(name); known {
				piece, reference = value, name
			}
		default: // up to the next dollar
			end := strings.IndexByte(text[1:], '$') + 1
			if end == 0 {
				end = len(text)
			}
			piece, text = text[:end], text[end:]
		}
		switch fits := out.Len()+len(piece) < maxString; { // one byte is the zero at its end
		case !fits && reference != "":
			return "", fmt.Errorf("with the value of $(%s) %w", shortened(reference), errTooLong)
		case !fits:
			return "", errTooLong
		}
		out.WriteString(piece)
	}
	return out.String(), nil
}

var (
	errTooLong = fmt.Errorf("it is longer than a program's argument or variable can be (%d bytes)", maxString)
	errTooMany = fmt.Errorf("with it the environment and the arguments are larger than a program's can be (%d bytes)", maxStrings)
)

// shortened is a name for a message: a pod can give it any length.
func shortened(name string) string {
	const limit = 256
	if len(name) > limit {
		return strings.ToValidUTF8(name[:limit], "") + "…"
	}
	return name
}

// ExpandSubPath expands a volume mount's subPathExpr by the container's environment. A
// variable that is not set, or is empty, is an error that names it, as with the kubelet:
// what is left of the path would be another container's part of the volume.
func ExpandSubPath(expr string, env []EnvVar) (string, error) {
	values := envMap(env)
	missing := map[string]bool{}
	path, err := Expand(expr, func(name string) (string, bool) {
		if values[name] == "" {
			missing[name] = true
		}
		return values[name], true
	})
	if len(missing) > 0 {
		names := slices.Sorted(maps.Keys(missing))
		return "", fmt.Errorf("the container's environment has no value for %s", strings.Join(names, ", "))
	}
	return path, err
}

// expandAll expands a command or its arguments; field is their name in an error. left is how many bytes the program can
// be given yet.
func expandAll(field string, texts []string, lookup func(string) (string, bool), left *int) ([]string, error) {
	var out []string
	for i, text := range texts {
		value, err := Expand(text, lookup)
		if *left -= len(value) + 1; err == nil && *left < 0 {
			err = errTooMany
		}
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", field, i, err)
		}
		out = append(out, value)
	}
	return out, nil
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
func ExpandCommand(command []string, env []v1.EnvVar) ([]string, error) {
	values := map[string]string{}
	for i := range env {
		if env[i].ValueFrom == nil {
			values[env[i].Name] = env[i].Value
		}
	}
	left := maxStrings
	return expandAll("command", command, lookupIn(values), &left)
}
