package main

import (
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestEveryKindOfActorHasItsImportRule prevents a folder of actors/ without a rule of its own in .golangci.yml, which could
// import another kind unnoticed.
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
	const actors = "github.com/playlet-dev/playlet/actors"
	check := func(folder, ruleName string, shared ...string) {
		rule := config.Linters.Settings.Depguard.Rules[ruleName]
		own := actors + "/" + folder
		if !slices.Equal(rule.Files, []string{"${base-path}/actors/" + folder + "/**"}) ||
			!slices.Equal(rule.Allow, slices.Concat([]string{actors + "/internal"}, shared, []string{own + "$", own + "/"})) ||
			len(rule.Deny) == 0 || rule.Deny[0].Pkg != actors {
			t.Errorf("actors/%s has no import rule in .golangci.yml, or not that of the others: %+v", folder, rule)
		}
	}
	for _, kind := range folders(t, "../../actors") {
		if kind != "internal" {
			check(kind, kind)
		}
	}
	for _, kind := range folders(t, "../../actors/sources") {
		if kind != "base" { // shared by all sources
			check("sources/"+kind, "source-"+kind, actors+"/sources/base$")
		}
	}
}

func folders(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
