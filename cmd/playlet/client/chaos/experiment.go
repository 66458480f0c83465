package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/config/configfile"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

const (
	experimentVersion = "playlet.dev/v1alpha1"
	experimentKind    = "ChaosExperiment"
	defaultSettle     = 30 * time.Second
)

// experiment is a file of "playlet chaos run".
type experiment struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Seed       uint64           `json:"seed"`       // of the steps that have none
		MaxTargets int              `json:"maxTargets"` // more actors than this are not put at risk; 0: any number
		Steady     steadyState      `json:"steady"`
		Abort      int              `json:"abortAfter"` // so many violations end it early; 0: the first
		Steps      []experimentStep `json:"steps"`
	} `json:"spec"`
}

// steadyState has the conditions in addition to the fixed ones: pods stay ready, containers are not restarted, the node is
// ready.
type steadyState struct {
	Pods    int             `json:"pods"`    // at least so many are ready
	Command []string        `json:"command"` // succeeds before and after; run as it stands, without a shell
	Settle  metav1.Duration `json:"settle"`  // how long after the last step the node may take to be steady
}

// experimentStep is one rule. The next step begins when it is over, unless it is in the background, and Then has passed.
type experimentStep struct {
	chaos.Rule
	Name       string          `json:"name"`
	Background bool            `json:"background"` // it lasts beside those that follow, and ends with the last
	Then       metav1.Duration `json:"then"`
}

func (s *experimentStep) rule(seed uint64) chaos.Rule {
	out := s.Rule
	out.Seed = cmp.Or(out.Seed, seed)
	return out
}

// readExperiment decodes and checks a file. The error has a line FILE:LINE: FIELD: TEXT for each fault.
func readExperiment(file string, data []byte) (*experiment, error) {
	e := &experiment{}
	var errs []error
	wrong := func(field, format string, args ...any) {
		at := max(configfile.Line(data, field), 1)
		errs = append(errs, fmt.Errorf("%s:%d: %s: %s", file, at, field, fmt.Sprintf(format, args...)))
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", file, configfile.Folded(strings.TrimPrefix(err.Error(), "yaml: ")))
	}
	strict, err := kjson.UnmarshalStrict(asJSON, e)
	if err != nil {
		for _, m := range configfile.Misfits(asJSON, e, "") {
			wrong(m.Field, "%s", m.Wanted)
		}
		return nil, cmp.Or(errors.Join(errs...), err)
	}
	for _, err := range strict {
		if at, ok := errors.AsType[kjson.FieldError](err); ok {
			wrong(at.FieldPath(), "unknown field %q", at.FieldPath()[strings.LastIndex(at.FieldPath(), ".")+1:])
		}
	}
	if len(strict) > 0 {
		return nil, errors.Join(errs...)
	}
	if e.APIVersion != experimentVersion {
		wrong("apiVersion", "%q is not %s", e.APIVersion, experimentVersion)
	}
	if e.Kind != experimentKind {
		wrong("kind", "%q is not %s", e.Kind, experimentKind)
	}
	if len(e.Spec.Steps) == 0 {
		wrong("spec.steps", "there is none")
	}
	for i := range e.Spec.Steps {
		rule := e.Spec.Steps[i].rule(1)
		if rule.Force {
			wrong(fmt.Sprintf("spec.steps[%d].force", i), "an experiment leaves alive what its supervisor would give up")
		}
		if err := checkMessage(rule.Message); err != nil {
			wrong(fmt.Sprintf("spec.steps[%d].message", i), "%v", err)
		}
		for _, err := range faultsOf(rule.Complete()) {
			wrong(fmt.Sprintf("spec.steps[%d].%s", i, err.Field), "%s", err.Text)
		}
	}
	e.Spec.Seed = cmp.Or(e.Spec.Seed, chaos.RandomSeed())
	e.Spec.Steady.Settle.Duration = cmp.Or(e.Spec.Steady.Settle.Duration, defaultSettle)
	e.Spec.Abort = max(e.Spec.Abort, 1)
	return e, errors.Join(errs...)
}

// faultsOf are the errors that a rule's Complete has joined.
func faultsOf(err error) (out []*chaos.FieldError) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if f, ok := errors.AsType[*chaos.FieldError](e); ok {
				out = append(out, f)
			}
		}
	}
	return out
}
