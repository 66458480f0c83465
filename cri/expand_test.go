package cri

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	lookup := lookupIn(map[string]string{"A": "a", "REF": "$(A)", "EMPTY": ""}, map[string]string{"A": "hidden", "S": "s", "": "nameless"})
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
			if got := Expand(text, nothing); got != text {
				t.Errorf("unknown names: %q became %q", text, got)
			}
		}
		if got := Expand(strings.ReplaceAll(text, "$", "$$"), everything); got != text {
			t.Errorf("protected: %q became %q", text, got)
		}
	})
}
