package chaos

import (
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

const goodExperiment = `apiVersion: playlet.dev/v1alpha1
kind: ChaosExperiment
metadata:
  name: a
spec:
  seed: 3
  steps:
  - verb: kill
    target: pods/**
    count: 2
`

func TestAnExperimentIsRefusedWithLineAndField(t *testing.T) {
	if e, err := readExperiment("f", []byte(goodExperiment)); err != nil || e.Spec.Seed != 3 || e.Spec.Steps[0].Count != 2 {
		t.Fatal(e, err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"v1alpha1", "v2", `f:1: apiVersion: "playlet.dev/v2" is not playlet.dev/v1alpha1`},
		{"ChaosExperiment", "Pod", `f:2: kind: "Pod" is not ChaosExperiment`},
		{"verb: kill", "verb: break", `f:8: spec.steps[0].verb: "break" is unknown; it may be kill, pause`},
		{"verb: kill", "name: x", `f:8: spec.steps[0].verb: "" is unknown`},
		{"target: pods/**", "target: kind/pd", `f:9: spec.steps[0].target: there is no kind of actor "pd"`},
		{"    count: 2", "    cuont: 2", `f:10: spec.steps[0].cuont: unknown field "cuont"`},
		{"count: 2", "count: two", "f:10: spec.steps[0].count: must be a whole number"},
		{"count: 2", "for: 5", "f:10: spec.steps[0].for: it must be a duration"},
		{"count: 2", "message: MountVolume", `f:10: spec.steps[0].message: no message matches "MountVolume"; did you mean MountVolumes?`},
		{"count: 2", "force: true", "f:10: spec.steps[0].force: an experiment leaves alive"},
		{"count: 2", "probability: half", "f:10: spec.steps[0].probability: must be a number"},
		{"seed: 3", "seed: -1", "spec.seed: must not be negative"},
		{"count: 2", "duration: 5s", "f:10: spec.steps[0].duration: kill has none"},
		{"count: 2", "probability: 3", "f:10: spec.steps[0].probability: 3 is not between 0 and 1"},
		{"seed: 3", "seed: [", "f: line "},
		{"  steps:\n", "  stops:\n", `f:7: spec.stops: unknown field "stops"`},
		{goodExperiment, "", `f:1: apiVersion: "" is not`},
		{goodExperiment[strings.Index(goodExperiment, "  steps"):], "", "f:5: spec.steps: there is none"},
	} {
		_, err := readExperiment("f", []byte(strings.Replace(goodExperiment, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v\nwant %s", c.new, c.old, err, c.want)
		}
	}
}

// The experiments that come with the program can be read, and printed to be copied.
func TestBuiltinExperiments(t *testing.T) {
	if names := builtins(); !slices.Equal(names, []string{"builtin:kills", "builtin:messages", "builtin:staging"}) {
		t.Errorf("got %v", names)
	}
	for _, name := range builtins() {
		data, err := readFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readExperiment(name, data); err != nil {
			t.Error(err)
		}
		if out, notes, code := fake.Run([]string{"chaos", "show", name}, NewCommand); out != string(data) || code != 0 {
			t.Errorf("%s: %d %s%s", name, code, out, notes)
		}
	}
	_, notes, code := fake.Run([]string{"chaos", "run", "builtin:nope"}, NewCommand)
	if want := "playlet: there is no experiment \"builtin:nope\"; there are builtin:kills, builtin:messages, builtin:staging\n"; notes != want || code != 1 {
		t.Errorf("%d %q", code, notes)
	}
}
