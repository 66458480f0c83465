package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	yamlnode "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/supervisors/chaos"
)

const (
	experimentVersion = "playlet.dev/v1alpha1"
	experimentKind    = "ChaosExperiment"
	defaultSettle     = 30 * time.Second
)

// experiment is a file of "playlet chaos run".
type experiment struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		Seed       uint64           `yaml:"seed"`       // of the steps that have none
		MaxTargets int              `yaml:"maxTargets"` // more actors than this are not put at risk; 0: any number
		Steady     steadyState      `yaml:"steady"`
		Abort      int              `yaml:"abortAfter"` // so many violations end it early; 0: the first
		Steps      []experimentStep `yaml:"steps"`
	} `yaml:"spec"`
}

// steadyState is what must hold beside what always must: pods stay ready, containers are left alone, the node is ready.
type steadyState struct {
	Pods    int           `yaml:"pods"`    // at least so many are ready
	Command []string      `yaml:"command"` // succeeds before and after; run as it stands, without a shell
	Settle  time.Duration `yaml:"settle"`  // how long after the last step the node may take to be steady
}

// experimentStep is one rule. The next step begins when it is over, unless it is in the background, and Then has passed.
type experimentStep struct {
	Name        string        `yaml:"name"`
	Verb        chaos.Verb    `yaml:"verb"`
	Target      string        `yaml:"target"`
	Message     string        `yaml:"message"`
	Count       int           `yaml:"count"`
	Probability float64       `yaml:"probability"`
	Duration    time.Duration `yaml:"duration"`
	For         time.Duration `yaml:"for"`
	Seed        uint64        `yaml:"seed"`
	Background  bool          `yaml:"background"` // it lasts beside those that follow, and ends with the last
	Then        time.Duration `yaml:"then"`
}

func (s *experimentStep) rule(seed uint64) chaos.Rule {
	if s.Seed != 0 {
		seed = s.Seed
	}
	return chaos.Rule{Verb: s.Verb, Target: s.Target, Message: s.Message, Count: s.Count, Probability: s.Probability,
		Duration: metav1.Duration{Duration: s.Duration}, For: metav1.Duration{Duration: s.For}, Seed: seed}
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// readExperiment decodes and checks a file. The error has a line FILE:LINE: FIELD: TEXT for each fault.
func readExperiment(file string, data []byte) (*experiment, error) {
	e, root := &experiment{}, yamlnode.Node{}
	if err := yamlnode.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	lines := map[string]int{}
	if len(root.Content) > 0 {
		fieldLines(root.Content[0], "", lines)
	}
	var errs []error
	wrong := func(field, format string, args ...any) {
		at := lines[field]
		for above := field; at == 0 && above != ""; at = lines[above] { // what is missing is missed where it belongs
			above = above[:max(strings.LastIndexAny(above, ".["), 0)]
		}
		errs = append(errs, fmt.Errorf("%s:%d: %s: %s", file, max(at, 1), field, fmt.Sprintf(format, args...)))
	}
	decoder := yamlnode.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	err := decoder.Decode(e)
	if misfits, ok := errors.AsType[*yamlnode.TypeError](err); ok {
		for _, text := range misfits.Errors {
			at, what, _ := strings.Cut(strings.TrimPrefix(text, "line "), ": ")
			field := ""
			for f, line := range lines {
				if strconv.Itoa(line) == at && len(f) > len(field) {
					field = f
				}
			}
			errs = append(errs, fmt.Errorf("%s:%s: %s: %s", file, at, field, unknownField.ReplaceAllString(what, `unknown field "$1"`)))
		}
		return nil, errors.Join(errs...)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
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
		for _, err := range faultsOf(rule.Complete()) {
			wrong(fmt.Sprintf("spec.steps[%d].%s", i, err.Field), "%s", err.Text)
		}
	}
	if e.Spec.Seed == 0 {
		e.Spec.Seed = chaos.RandomSeed()
	}
	if e.Spec.Steady.Settle == 0 {
		e.Spec.Steady.Settle = defaultSettle
	}
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

// fieldLines notes the line of each field below a node.
func fieldLines(n *yamlnode.Node, path string, lines map[string]int) {
	lines[path] = max(n.Line, 1)
	for i := range n.Content {
		switch {
		case n.Kind == yamlnode.SequenceNode:
			fieldLines(n.Content[i], fmt.Sprintf("%s[%d]", path, i), lines)
		case n.Kind == yamlnode.MappingNode && i%2 == 1:
			key := strings.TrimPrefix(path+"."+n.Content[i-1].Value, ".")
			fieldLines(n.Content[i], key, lines)
			lines[key] = n.Content[i-1].Line
		}
	}
}
