package translate

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxString limits an argument or a variable, in bytes: the kernel starts no program with a longer one (execve(2)).
var maxString = 32 * os.Getpagesize()

// maxStrings limits all of them together: the kernel starts no program with more, regardless of its stack. With the usual stack
// of 8 MiB the limit is 2 MiB.
const maxStrings = 6 << 20

// Expand replaces $(NAME) by the result of lookup, in the syntax that the API documents for command, args and env: "$$" stands
// for one "$" and protects the text after it. An unclosed "$(", a "$" before anything else, and a reference unknown to lookup
// remain unchanged. Values are not expanded again. A few references could make gigabytes, so a result that is too long for any
// program is cut, but stays too long.
func Expand(text string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for text != "" {
		piece := ""
		switch {
		case strings.HasPrefix(text, "$$"):
			piece, text = "$", text[2:]
		case strings.HasPrefix(text, "$(") && strings.Contains(text, ")"):
			name, rest, _ := strings.Cut(text[2:], ")")
			piece, text = text[:len(name)+3], rest
			if value, known := lookup(name); known {
				piece = value
			}
		default: // up to the next dollar sign
			end := strings.IndexByte(text[1:], '$') + 1
			if end == 0 {
				end = len(text)
			}
			piece, text = text[:end], text[end:]
		}
		out.WriteString(cutString(piece))
		if out.Len() >= maxString {
			break
		}
	}
	return cutString(out.String())
}

// cutString shortens a text, but leaves it too long for a program; a shorter text remains whole. The result ends with a whole
// character: gRPC sends commands as UTF-8 only, and rejects other text.
func cutString(text string) string {
	end := min(len(text), maxString)
	for end < len(text) && end < maxString+utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end++
	}
	return text[:end]
}

// TooLarge returns the reason that no program can start with the container's environment and arguments, or "".
func TooLarge(c *runtimeapi.ContainerConfig) string {
	total := 0
	for _, e := range c.GetEnvs() {
		size := envSize(e.GetKey(), string(e.GetValue()))
		if total += size; size > maxString {
			return fmt.Sprintf("environment variable %s is longer than a program's can be (%d bytes)",
				shortened(e.GetKey()), maxString)
		}
	}
	for _, text := range slices.Concat(c.GetCommand(), c.GetArgs()) {
		if total += len(text) + 1; len(text) >= maxString {
			return fmt.Sprintf("an argument of the command is longer than a program's can be (%d bytes)", maxString)
		}
	}
	if total > maxStrings {
		return fmt.Sprintf("the environment and the arguments are larger than a program's can be (%d bytes)", maxStrings)
	}
	return ""
}

// shortened returns a name for use in a message: a pod can give it any length.
func shortened(name string) string {
	const limit = 256
	if len(name) > limit {
		return strings.ToValidUTF8(name[:limit], "") + "…"
	}
	return name
}

// ExpandSubPath expands a volume mount's subPathExpr by the container's environment. A variable that is unset or empty is an
// error that names it, as in the kubelet: the remaining path would be another container's part of the volume.
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

// expandAll expands a command or its arguments. left is the remaining number of bytes for the program; texts after the first one
// that exceeds it are omitted.
func expandAll(texts []string, lookup func(string) (string, bool), left *int) []string {
	var out []string
	for _, text := range texts {
		if *left < 0 {
			break
		}
		value := Expand(text, lookup)
		*left -= len(value) + 1
		out = append(out, value)
	}
	return out
}

// lookupIn looks a name up in the first map that has it.
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

// ExpandCommand expands a command that runs in an existing container. It uses the literal values of the container's spec, since
// no other source is read again.
func ExpandCommand(command []string, env []v1.EnvVar) []string {
	values := map[string]string{}
	for i := range env {
		if env[i].ValueFrom == nil {
			values[env[i].Name] = env[i].Value
		}
	}
	left := maxStrings
	return expandAll(command, lookupIn(values), &left)
}
