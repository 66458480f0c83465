package config

import (
	"fmt"
	"strings"

	"github.com/playlet-dev/playlet/config/configfile"
)

// problem is one refused value: the path of its field (or the flag), the flag that sets the field where there is one,
// the value, and what is wrong with it, on one line.
func problem(path string, value any, format string, args ...any) error {
	where := path
	if flag := flagOfField(path); flag != "" {
		where += " (" + flag + ")"
	}
	shown := fmt.Sprint(value)
	switch value.(type) {
	case bool, int, int32, int64, float64, uint32:
	default:
		shown = fmt.Sprintf("%q", shown)
	}
	return fmt.Errorf("%s: invalid value %s: %s", where, shown, configfile.Folded(fmt.Sprintf(format, args...)))
}

// problems gathers what is wrong, so that an operator learns all of it at once. It is an error of one line.
type problems []error

func (p *problems) add(path string, value any, format string, args ...any) {
	*p = append(*p, problem(path, value, format, args...))
}

// check adds a problem unless ok holds.
func (p *problems) check(ok bool, path string, value any, format string, args ...any) {
	if !ok {
		p.add(path, value, format, args...)
	}
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// Error implements error.
func (p problems) Error() string {
	said := make([]string, len(p))
	for i, err := range p {
		said[i] = configfile.Folded(err.Error())
	}
	return strings.Join(said, "; ")
}

// Unwrap gives errors.Is and errors.As access to the parts.
func (p problems) Unwrap() []error { return p }

// Warning says to an operator that something was accepted but should be said differently. Load returns warnings as values;
// the command logs them.
type Warning struct {
	// Flag is the flag with its dashes ("--network-plugin"), or the path of a configuration field
	// ("featureGates.DynamicKubeletConfig").
	Flag string
	// Message says on one line what was done and what replaces the flag.
	Message string
	// Mistake marks a setting that an administrator surely meant otherwise. The agent starts as a kubelet does; the commands
	// doctor and install refuse it.
	Mistake bool
}
