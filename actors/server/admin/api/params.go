package api

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Params are the parameters of a request: by their names, pointers to a string, a []string, a bool, a time.Time, or a *int64 that
// is a number from 0 on.
type Params map[string]any

// Encode writes those that are not zero.
func (p Params) Encode() string {
	q := url.Values{}
	for name, at := range p {
		switch at := at.(type) {
		case *string:
			if *at != "" {
				q.Set(name, *at)
			}
		case *[]string:
			q[name] = *at
		case *bool:
			if *at {
				q.Set(name, "true")
			}
		case *time.Time:
			if !at.IsZero() {
				q.Set(name, at.Format(time.RFC3339Nano))
			}
		case **int64:
			if *at != nil {
				q.Set(name, strconv.FormatInt(**at, 10))
			}
		}
	}
	return q.Encode()
}

// Decode reads the output of Encode. The error names the parameter.
func (p Params) Decode(q url.Values) (err error) {
	for name, values := range q {
		text, wrong := values[len(values)-1], ""
		switch at := p[name].(type) {
		case *string:
			*at = text
		case *[]string:
			*at = values
		case *bool:
			if *at, err = strconv.ParseBool(cmp.Or(text, "false")); err != nil {
				wrong = "is neither true nor false"
			}
		case *time.Time:
			if *at, err = time.Parse(time.RFC3339Nano, text); err != nil {
				wrong = "is no time of RFC 3339"
			}
		case **int64:
			if text == "" {
				continue
			}
			n, err := strconv.ParseInt(text, 10, 64)
			if *at = &n; err != nil || n < 0 {
				wrong = "is no number; it must not be negative"
			}
		default:
			return fmt.Errorf("unknown parameter %q", name)
		}
		if wrong != "" {
			return fmt.Errorf("%s=%q %s", name, text, wrong)
		}
	}
	return nil
}
