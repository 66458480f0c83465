package translate

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
)

func TestExpand(t *testing.T) {
	lookup := lookupIn(map[string]string{"A": "a", "REF": "$(A)", "EMPTY": ""},
		map[string]string{"A": "hidden", "S": "s", "": "nameless"})
	for in, want := range map[string]string{
		"":               "",
		"plain":          "plain",
		"$(A)":           "a",
		"x$(A)y$(S)z":    "xaysz",
		"$(EMPTY)":       "",
		"$(REF)":         "$(A)", // not expanded again
		"$(MISSING)":     "$(MISSING)",
		"$$(A)":          "$(A)",
		"$$$(A)":         "$a",
		"$$$$(A)":        "$$(A)",
		"$":              "$",
		"$$":             "$",
		"a$":             "a$",
		"$A":             "$A",
		"$(A":            "$(A",
		"$($(A)":         "$($(A)", // the name is "$(A"
		"$(A)$(":         "a$(",
		"$()":            "nameless",
		"$ü(A)":          "$ü(A)",
		"$\xff$(A)":      "$\xffa",
		"$(A))":          "a)",
		"-$(MISSING$(A)": "-$(MISSING$(A)",
	} {
		if got := Expand(in, lookup); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// FuzzExpand checks invariants for any text: without a dollar sign nothing changes, doubled signs protect everything, and unknown
// names stay.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "$", "$$", "$(A)", "$(", "$(A", "a$(A)$$(A)$x", "\xff$\xff"} {
		f.Add(seed)
	}
	nothing := func(string) (string, bool) { return "", false }
	everything := func(string) (string, bool) { return "X", true }
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.Contains(text, "$$") {
			if got := Expand(text, nothing); got != cutString(text) {
				t.Errorf("unknown names: %q became %q", text, got)
			}
		}
		if got := Expand(strings.ReplaceAll(text, "$", "$$"), everything); got != cutString(text) {
			t.Errorf("protected: %q became %q", text, got)
		}
	})
}

// Twenty doublings of a kilobyte would be a gigabyte. An environment or command too large for any program stays too large, but
// the expansion does not become much larger.
func TestExpansionIsBounded(t *testing.T) {
	env := []v1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 1024)}}
	for i := range 20 {
		env = append(env, v1.EnvVar{Name: fmt.Sprintf("V%d", i+1), Value: strings.Repeat(fmt.Sprintf("$(V%d)", i), 2)})
	}
	many := func(values int) (env []v1.EnvVar) {
		for i := range values {
			env = append(env, v1.EnvVar{Name: fmt.Sprintf("M%d", i), Value: strings.Repeat("x", 100<<10)})
		}
		return env
	}
	one := func(length int) []v1.EnvVar { return []v1.EnvVar{{Name: "P", Value: strings.Repeat("x", length)}} }
	command := []string{"echo", strings.Repeat("$(M0)", 1<<16)}
	for name, c := range map[string]struct {
		container v1.Container
		want      string // "": a program may start
	}{
		"one value":         {v1.Container{Env: env}, "environment variable V7 is longer"},
		"a plain value":     {v1.Container{Env: one(maxString)}, "environment variable P is longer"},
		"the name counts":   {v1.Container{Env: one(maxString - 2)}, "environment variable P is longer"},
		"as long as can be": {v1.Container{Env: one(maxString - 3)}, ""},
		"all together":      {v1.Container{Env: many(62)}, "the environment and the arguments are larger"},
		"far too many":      {v1.Container{Env: many(1000)}, "the environment and the arguments are larger"},
		"set again":         {v1.Container{Env: append(many(1000), many(10)...)}, "the environment and the arguments are larger"},
		"not too many":      {v1.Container{Env: many(61), Command: []string{"echo"}}, ""},
		"the same name":     {v1.Container{Env: append(many(61), many(61)...)}, ""},
		"a command":         {v1.Container{Env: many(1), Command: command}, "an argument of the command is longer"},
		"arguments": {v1.Container{Env: many(60), Args: []string{"$(M1)", "$(M2)", "$(M3)", "$(M4)"}},
			"the environment and the arguments are larger"},
	} {
		pod := &v1.Pod{}
		env, err := ResolveEnv(pod, &c.container, EnvSources{})
		if err != nil {
			t.Fatal(err)
		}
		config, err := NewContainerConfig(pod, &c.container, NodeFacts{}, ContainerParams{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		if got := TooLarge(config); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if size := proto.Size(config); size > maxStrings+2*maxString {
			t.Errorf("%s: it has %d bytes", name, size)
		}
	}
	if got := ExpandCommand(command, many(1)); len(got[1]) != maxString {
		t.Errorf("the command of a probe has %d bytes", len(got[1]))
	}
	if got, _ := ExpandSubPath(command[1], []EnvVar{{Name: "M0", Value: strings.Repeat("x", 4096)}}); len(got) != maxString {
		t.Errorf("a subPathExpr has %d bytes", len(got))
	}
}

// TestAnArgumentIsCutBehindACharacter: gRPC sends commands as UTF-8 only.
func TestAnArgumentIsCutBehindACharacter(t *testing.T) {
	euros := strings.Repeat("€", 50000)
	for _, text := range []string{euros, "x" + euros, "xx" + euros, "$(E)", "x$(E)", "xx$(E)"} {
		env := []EnvVar{{Name: "E", Value: euros}}
		if !strings.Contains(text, "$") {
			env = nil
		}
		config, err := NewContainerConfig(&v1.Pod{}, &v1.Container{Command: []string{text}, Args: []string{text}}, NodeFacts{},
			ContainerParams{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proto.Marshal(config); err != nil || TooLarge(config) == "" {
			t.Errorf("%.8q: %v; too large: %q", text, err, TooLarge(config))
		}
	}
	if got := cutString(strings.Repeat("\x80", 2*maxString)); len(got) > maxString+utf8.UTFMax {
		t.Errorf("a text without a character has %d bytes", len(got))
	}
}
