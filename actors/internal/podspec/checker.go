package podspec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker collects errors in the order in which they are found.
type checker struct {
	errs field.ErrorList
}

func (c *checker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

func (c *checker) required(at *field.Path, why string) { c.add(field.Required(at, why)) }

func (c *checker) forbidden(at *field.Path, why string) { c.add(field.Forbidden(at, why)) }

func (c *checker) duplicate(at *field.Path, value any) { c.add(field.Duplicate(at, value)) }

// invalid adds one error for each of the messages; its signature fits the results of apimachinery's name checkers.
func (c *checker) invalid(at *field.Path, value any, messages ...string) {
	for _, message := range messages {
		c.add(field.Invalid(at, value, message))
	}
}

// between checks a number against its bounds.
func (c *checker) between(at *field.Path, value, low, high int64) {
	if value < low || value > high {
		c.invalid(at, value, fmt.Sprintf("must be between %d and %d", low, high))
	}
}

func (c *checker) atLeast(at *field.Path, value, low int64) {
	if value < low {
		c.invalid(at, value, fmt.Sprintf("must be %d or more", low))
	}
}

// atMost checks the length of a list.
func (c *checker) atMost(at *field.Path, n, most int) {
	if n > most {
		c.add(field.TooMany(at, n, most))
	}
}

// name checks a required value by one of apimachinery's name checkers.
func (c *checker) name(at *field.Path, value string, check func(string) []string) {
	if value == "" {
		c.required(at, "")
		return
	}
	c.invalid(at, value, check(value)...)
}

func (c *checker) label(at *field.Path, value string) { c.name(at, value, validation.IsDNS1123Label) }

func (c *checker) subdomain(at *field.Path, value string) {
	c.name(at, value, validation.IsDNS1123Subdomain)
}

// unique reports a value that was seen before, and records it. Another check covers the empty value.
func (c *checker) unique(at *field.Path, seen map[string]bool, value string) {
	if value == "" {
		return
	}
	if seen[value] {
		c.duplicate(at, value)
	}
	seen[value] = true
}

// noStepsBack rejects a path with "..".
func (c *checker) noStepsBack(at *field.Path, value string) {
	if slices.Contains(strings.Split(value, "/"), "..") {
		c.invalid(at, value, "must not contain a step back ('..')")
	}
}

// pathInside checks a path relative to a volume.
func (c *checker) pathInside(at *field.Path, value string) {
	if path.IsAbs(value) {
		c.invalid(at, value, "must be relative")
	}
	c.noStepsBack(at, value)
}

// fileInside checks a path that a volume plugin writes: names with a prefix of two dots are its own, for the links by which it
// exchanges all files at once.
func (c *checker) fileInside(at *field.Path, value string) {
	if value == "" {
		c.required(at, "")
		return
	}
	c.pathInside(at, value)
	if strings.HasPrefix(value, "..") && value != ".." && !strings.HasPrefix(value, "../") {
		c.invalid(at, value, "must not begin with '..'")
	}
}

// fileMode checks permission bits.
func (c *checker) fileMode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(at, *mode, "must be between 0 and 0777 (decimal 511)")
	}
}

// oneOf checks a required value against a list.
func oneOf[T ~string](c *checker, at *field.Path, value T, valid ...T) {
	if value == "" {
		c.add(field.Required(at, ""))
		return
	}
	ifSet(c, at, &value, valid...)
}

// ifSet checks an optional value against a list.
func ifSet[T ~string](c *checker, at *field.Path, value *T, valid ...T) {
	if value != nil && !slices.Contains(valid, *value) {
		c.add(field.NotSupported(at, *value, valid))
	}
}
