package translate

import (
	"fmt"
	"strings"
	"testing"

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
		if got, err := Expand(in, lookup); got != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

// FuzzExpand checks what holds of every text: without a dollar nothing changes,
// doubled dollars protect everything, and unknown names stay.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "$", "$$", "$(A)", "$(", "$(A", "a$(A)$$(A)$x", "\xff$\xff"} {
		f.Add(seed)
	}
	nothing := func(string) (string, bool) { return "", false }
	everything := func(string) (string, bool) { return "X", true }
	f.Fuzz(func(t *testing.T, text string) {
		if !strings.Contains(text, "$$") {
			if got, err := Expand(text, nothing); got != text && err == nil {
				t.Errorf("unknown names: %q became %q", text, got)
			}
		}
		if got, err := Expand(strings.ReplaceAll(text, "$", "$$"), everything); got != text && err == nil {
			t.Errorf("protected: %q became %q", text, got)
		}
	})
}

// Twenty doublings of a kilobyte would be a gigabyte: the variable that no program could be given is named, and nothing larger is
// built on the way.
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
	command := []string{"echo", strings.Repeat("$(M0)", 1<<16)}
	for name, c := range map[string]struct {
		container v1.Container
		want      string // "": no error
	}{
		"one value": {v1.Container{Env: env}, "environment variable V7: with the value of $(V6) it is longer"},
		"a plain value": {v1.Container{Env: []v1.EnvVar{{Name: "P", Value: strings.Repeat("x", maxString)}}},
			"environment variable P: it is longer"},
		"the name counts": {v1.Container{Env: []v1.EnvVar{{Name: "P", Value: strings.Repeat("x", maxString-2)}}},
			"environment variable P: it is longer"},
		"as long as can be": {v1.Container{Env: []v1.EnvVar{{Name: "P", Value: strings.Repeat("x", maxString-3)}}}, ""},
		"all together": {v1.Container{Env: many(21)},
			"environment variable M20: with it the environment and the arguments"},
		"no more than there is": {v1.Container{Env: many(20), Command: []string{"echo"}}, ""},
		"the same name again":   {v1.Container{Env: append(many(20), many(20)...)}, ""},
		"a command": {v1.Container{Env: many(1), Command: command},
			"command[1]: with the value of $(M0) it is longer"},
		"arguments": {v1.Container{Env: many(15),
			Args: []string{"", "$(M1)", "$(M2)", "$(M3)", "$(M4)", "$(M5)", "$(M6)"}}, "args[6]: with it"},
	} {
		pod := &v1.Pod{}
		env, err := ResolveEnv(pod, &c.container, EnvSources{})
		if err == nil {
			_, err = NewContainerConfig(pod, &c.container, NodeFacts{}, ContainerParams{Env: env})
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := ExpandCommand(command, many(1)); err == nil {
		t.Error("the command of a probe is not bounded")
	}
	if _, err := ExpandSubPath(command[1], []EnvVar{{Name: "M0", Value: strings.Repeat("x", 4096)}}); err == nil {
		t.Error("a subPathExpr is not bounded")
	}
}
