package config

import (
	"errors"
	"fmt"
	"strings"
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
	return fmt.Errorf("%s: invalid value %s: %s", where, shown, oneLine(fmt.Sprintf(format, args...)))
}

// problems gathers what is wrong, so that an operator learns all of it at once.
type problems struct{ found []error }

func (p *problems) add(path string, value any, format string, args ...any) {
	p.found = append(p.found, problem(path, value, format, args...))
}

// check adds a problem unless ok holds.
func (p *problems) check(ok bool, path string, value any, format string, args ...any) {
	if !ok {
		p.add(path, value, format, args...)
	}
}

func (p *problems) err() error {
	if len(p.found) == 0 {
		return nil
	}
	return lineError(p.found)
}

// lineError is several errors on one line.
type lineError []error

func (e lineError) Error() string {
	said := make([]string, len(e))
	for i, err := range e {
		said[i] = oneLine(err.Error())
	}
	return strings.Join(said, "; ")
}

// Unwrap gives errors.Is and errors.As access to the parts.
func (e lineError) Unwrap() []error { return e }

// oneLine folds a message of several lines into one.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// inFile names the file that an error is about.
func inFile(path string, err error) error {
	var pathed interface{ Timeout() bool } // *fs.PathError and *os.SyscallError name their file themselves
	if errors.As(err, &pathed) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
