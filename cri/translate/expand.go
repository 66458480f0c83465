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

// maxString bounds an argument or a variable, in bytes: the kernel starts no program with a longer one (execve(2)).
var maxString = 32 * os.Getpagesize()

// maxStrings bounds all of them together: the kernel starts no program with more, however large its stack may be. With the usual
// stack of 8 MiB it takes 2 MiB.
const maxStrings = 6 << 20

// Expand replaces $(NAME) by what lookup says of NAME, in the syntax the API
// documents for command, args and env: "$$" stands for one "$" and protects what
// follows, an unclosed "$(" and a "$" before anything else stay as they are, and
// so does a reference lookup does not know. What is put in is not expanded again.
// A result that no program can be given is cut: no program starts with that
// either. A few references could make gigabytes.
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
		default: // up to the next dollar
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

// cutString is as much of a text as is too long for a program; a shorter text is whole. It ends with a whole character: commands
// are sent to the runtime as UTF-8 only, and another text would not be sent at all.
func cutString(text string) string {
	end := min(len(text), maxString)
	for end < len(text) && end < maxString+utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end++
	}
	return text[:end]
}

// TooLarge returns why no program can start with the container's environment and arguments; empty where one may.
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

// expandAll expands a command or its arguments. left is how many bytes the program can be given yet; the texts after the one that
// exceeds it are left out.
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
	left := maxStrings
	return expandAll(command, lookupIn(values), &left)
}
