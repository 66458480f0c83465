package nodeapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/containers"
)

// parseLogOptions reads v1.PodLogOptions as clients send them. What is not understood is a 400, what is understood and not
// valid a 422; parameters of other names are passed over, as the kubelet does.
func parseLogOptions(q url.Values, now time.Time) (containers.LogOptions, error) {
	var o containers.LogOptions
	p := parameters{q: q}
	o.Follow, o.Previous, o.Timestamps = p.on("follow"), p.on("previous"), p.on("timestamps")
	o.Tail, o.LimitBytes = p.number("tailLines"), p.number("limitBytes")
	if old := q.Get("tail"); old == "all" { // its name of old
		o.Tail = nil
	} else if old != "" {
		o.Tail = p.number("tail")
	}
	seconds := p.number("sinceSeconds")
	if text := q.Get("sinceTime"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		p.failed = p.failed || err != nil
		o.Since = at
	}
	stream := q.Get("stream")
	if p.failed {
		return o, refuse(http.StatusBadRequest, `{"message": "Unable to decode query."}`)
	}
	var wrong string
	switch {
	case o.Tail != nil && *o.Tail < 0:
		wrong = "tailLines must not be negative"
	case o.LimitBytes != nil && *o.LimitBytes < 1:
		wrong = "limitBytes must be greater than 0"
	case seconds != nil && *seconds < 1:
		wrong = "sinceSeconds must be greater than 0"
	case seconds != nil && !o.Since.IsZero():
		wrong = "at most one of sinceTime and sinceSeconds may be given"
	case stream != "" && stream != v1.LogStreamAll && stream != v1.LogStreamStdout && stream != v1.LogStreamStderr:
		wrong = "stream must be All, Stdout or Stderr"
	case stream != "" && stream != v1.LogStreamAll && o.Tail != nil:
		wrong = "tailLines and a stream are mutually exclusive"
	}
	if wrong != "" {
		return o, refuse(http.StatusUnprocessableEntity, fmt.Sprintf(`{"message": "Invalid request: %s."}`, wrong))
	}
	if stream != v1.LogStreamAll {
		o.Stream = strings.ToLower(stream)
	}
	if seconds != nil {
		o.Since = now.Add(-time.Duration(min(*seconds, int64(maxSince.Seconds()))) * time.Second)
	}
	return o, nil
}

// maxSince is longer than any log lasts, and short enough for the arithmetic of times.
const maxSince = 100 * 365 * 24 * time.Hour

// parameters reads values as Kubernetes' decoder of parameters does.
type parameters struct {
	q      url.Values
	failed bool
}

// on is false where the parameter is missing, "0" or "false"; anything else is true.
func (p *parameters) on(name string) bool {
	values := p.q[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

func (p *parameters) number(name string) *int64 {
	text := p.q.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	p.failed = p.failed || err != nil
	return &n
}
