package config

import (
	"fmt"
	"strings"

	"github.com/playlet-dev/playlet/config/configfile"
)

// problem returns the error for a refused value, on one line. It has the path of the field or the flag, the flag that sets
// the field, if any, the value, and the reason.
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

// problems collects errors, so that an operator sees all at once. It formats as one line.
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

// Warning tells an operator about an accepted setting that should be changed. Load returns warnings as values; the command
// logs them.
type Warning struct {
	// Flag is the flag with its dashes ("--network-plugin"), or the path of a configuration field
	// ("featureGates.DynamicKubeletConfig").
	Flag string
	// Message describes the effect and the replacement, on one line.
	Message string
	// Mistake marks a setting that an administrator surely meant otherwise. The agent starts as a kubelet does; the commands
	// doctor and install refuse it.
	Mistake bool
}
