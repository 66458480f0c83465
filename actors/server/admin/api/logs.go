package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// LogOptions choose what is read of a container's log. The zero value is all that its latest run has written so far.
type LogOptions struct {
	UID        string // of the pod; empty: the one of this name that is wanted
	Container  string // empty: the pod's default one
	Follow     bool   // go on until the container ends
	Previous   bool   // of the run before the latest
	Timestamps bool   // each line begins with its time, RFC 3339
	Since      time.Time
	Tail       *int64 // lines from the end; nil: all
	LimitBytes *int64 // nil: no limit
}

// Query is the form in which the options are sent.
func (o LogOptions) Query() string {
	q := url.Values{}
	setSome(q, "container", o.Container)
	setSome(q, "uid", o.UID)
	for name, on := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	if !o.Since.IsZero() {
		q.Set("sinceTime", o.Since.Format(time.RFC3339Nano))
	}
	for name, n := range map[string]*int64{"tailLines": o.Tail, "limitBytes": o.LimitBytes} {
		if n != nil {
			q.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	return q.Encode()
}

// ParseLogOptions reads what Query wrote. The error names the parameter.
func ParseLogOptions(q url.Values) (LogOptions, error) {
	o := LogOptions{}
	for name, values := range q {
		text := values[len(values)-1]
		var err error
		switch name {
		case "container":
			o.Container = text
		case "uid":
			o.UID = text
		case "follow":
			o.Follow, err = strconv.ParseBool(text)
		case "previous":
			o.Previous, err = strconv.ParseBool(text)
		case "timestamps":
			o.Timestamps, err = strconv.ParseBool(text)
		case "sinceTime":
			o.Since, err = time.Parse(time.RFC3339Nano, text)
		case "tailLines":
			o.Tail, err = count(text)
		case "limitBytes":
			o.LimitBytes, err = count(text)
		default:
			return o, fmt.Errorf("unknown parameter %q", name)
		}
		if err != nil {
			return o, fmt.Errorf("%s=%q: %w", name, text, err)
		}
	}
	return o, nil
}

func count(text string) (*int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && n < 0 {
		err = errors.New("it must not be negative")
	}
	return &n, err
}

// Logs writes a container's log to out, and what is worth saying beside it to note: which container was chosen where none
// was named. It returns when the log ends, with an error where it was broken off.
func (c *Client) Logs(ctx context.Context, namespace, pod string, o LogOptions, out io.Writer, note func(string)) error {
	body, header, err := c.open(ctx, http.MethodGet, podPath("/v1/logs/", namespace, pod), o.Query(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // only read from
	if text := header.Get(LogNote); text != "" {
		note(text)
	}
	if _, err := io.Copy(out, body); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the log broke off: %w", err)
	}
	return nil
}

// LogNote is the header of an answer with a log that says what is worth saying beside it.
const LogNote = "X-Playlet-Note"
