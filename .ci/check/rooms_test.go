package main

import (
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestEveryKindOfActorHasItsImportRule: a folder of actors/ without a rule of its own in .golangci.yml could import
// another kind, and nobody would notice.
func TestEveryKindOfActorHasItsImportRule(t *testing.T) {
	text, err := os.ReadFile("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Files []string `json:"files"`
						Deny  []struct {
							Pkg string `json:"pkg"`
						} `json:"deny"`
						Allow []string `json:"allow"`
					} `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	kinds, err := os.ReadDir("../../actors")
	if err != nil {
		t.Fatal(err)
	}
	const actors = "github.com/playlet-dev/playlet/actors"
	for _, kind := range kinds {
		if kind.Name() == "internal" || !kind.IsDir() {
			continue
		}
		rule := config.Linters.Settings.Depguard.Rules[kind.Name()]
		own := actors + "/" + kind.Name()
		if !slices.Equal(rule.Files, []string{"${base-path}/actors/" + kind.Name() + "/**"}) ||
			!slices.Equal(rule.Allow, []string{actors + "/internal", own + "$", own + "/"}) ||
			len(rule.Deny) == 0 || rule.Deny[0].Pkg != actors {
			t.Errorf("actors/%s has no import rule in .golangci.yml, or not that of the others: %+v", kind.Name(), rule)
		}
	}
}
