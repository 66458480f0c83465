package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/cri"
)

// choose finds the container in the path.
func (a *api) choose(r *http.Request) (containers.ChosenContainer, error) {
	return a.conf.Containers.Choose(containers.Name{
		Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), UID: r.PathValue("uid"),
		Container: r.PathValue("container"),
	})
}

func (a *api) containerLogs(w http.ResponseWriter, r *http.Request) error {
	o, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		return err
	}
	c, err := a.choose(r)
	if err != nil {
		return err
	}
	return a.conf.Containers.Logs(w, r, c, o)
}

// stream answers exec, which needs a command, and attach.
func (a *api) stream(command bool,
	open func(http.ResponseWriter, *http.Request, containers.ChosenContainer, containers.StreamOptions) error,
) http.Handler {
	return only(func(w http.ResponseWriter, r *http.Request) error {
		o, err := parseStreamOptions(r.URL.Query())
		if err != nil {
			return err
		}
		if command && len(o.Command) == 0 {
			return refuse(http.StatusBadRequest, "no command is given")
		}
		c, err := a.choose(r)
		if err != nil {
			return err
		}
		return open(w, r, c, o)
	}, http.MethodGet, http.MethodPost)
}

// parseStreamOptions reads the parameters of exec and attach, whose names differ from the API server's.
func parseStreamOptions(q url.Values) (containers.StreamOptions, error) {
	on := func(name string) bool { return q.Get(name) == "1" }
	o := containers.StreamOptions{
		Command: q["command"], Stdin: on("input"), Stdout: on("output"), Stderr: on("error"), TTY: on("tty"),
	}
	o.Stderr = o.Stderr && !o.TTY // a terminal has one output
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, refuse(http.StatusBadRequest, "you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

func (a *api) portForward(w http.ResponseWriter, r *http.Request) error {
	var ports []int32
	if wsstream.IsWebSocketRequest(r) && !wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		var err error
		if ports, err = parsePorts(r.URL.Query()["port"]); err != nil {
			return refuse(http.StatusBadRequest, err.Error())
		}
	}
	pod, err := a.conf.Containers.Pod(containers.Name{
		Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), UID: r.PathValue("uid"),
	})
	if err != nil {
		return err
	}
	return a.conf.Containers.PortForward(w, r, pod, ports)
}

// parsePorts reads lists of ports, "80,443".
func parsePorts(lists []string) ([]int32, error) {
	var out []int32
	for _, list := range lists {
		for text := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil || port == 0 {
				return nil, fmt.Errorf("port %q is not a number from 1 to 65535", text)
			}
			out = append(out, int32(port))
		}
	}
	if len(out) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	return out, nil
}

// run answers POST /run with the output of a command. Its words are separated by spaces, as in the kubelet.
func (a *api) run(w http.ResponseWriter, r *http.Request) error {
	c, err := a.choose(r)
	if err != nil {
		return err
	}
	id, err := c.ID()
	if err != nil {
		return err
	}
	command := r.URL.Query().Get("cmd")
	if command == "" {
		return refuse(http.StatusBadRequest, "no command is given")
	}
	// Probes and hooks need the runtime's slots, and must not wait for commands of users; slow requests have their own limit.
	ctx, cancel := context.WithTimeout(cri.WithoutSlot(r.Context()), longTimeout)
	defer cancel()
	result, err := a.conf.Runtime.ExecSync(ctx, id, strings.Split(command, " "), longTimeout-shortTimeout)
	if err != nil {
		return err
	}
	if result.ExitCode != 0 {
		return fmt.Errorf("command %q exited with %d: %s%s", command, result.ExitCode, result.Stdout, result.Stderr)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(result.Stdout, result.Stderr...)) // fails if the client has left
	return nil
}

// checkpoint answers POST /checkpoint: the runtime writes the container's state to a file of this node (KEP-2008).
func (a *api) checkpoint(w http.ResponseWriter, r *http.Request) error {
	c, err := a.choose(r)
	if err != nil {
		return err
	}
	var seconds int64
	if values := r.URL.Query()["timeout"]; len(values) > 0 {
		seconds, err = strconv.ParseInt(values[len(values)-1], 10, 64)
		if err != nil || seconds < 0 || seconds > int64(longTimeout.Seconds()) {
			return refuse(http.StatusNotFound, "cannot parse value of timeout parameter") // the kubelet's status
		}
	}
	id, err := c.ID()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(a.conf.CheckpointDir, 0o700); err != nil {
		return err
	}
	pod := c.Pod.Pod
	file := filepath.Join(a.conf.CheckpointDir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, c.Container,
		time.Now().Format(time.RFC3339)))
	if err := a.conf.Runtime.CheckpointContainer(cri.WithoutSlot(r.Context()), id, file, seconds); err != nil {
		if cri.IsUnimplemented(err) {
			return refuse(http.StatusNotImplemented, "the container runtime cannot checkpoint containers")
		}
		return fmt.Errorf("checkpointing of %s/%s/%s failed (%w)", pod.Namespace, pod.Name, c.Container, err)
	}
	return containers.JSON(w, map[string][]string{"items": {file}})
}

// parseLogOptions reads v1.PodLogOptions as sent by clients. Malformed values are a 400, invalid ones a 422; unknown parameters
// are ignored, as in the kubelet.
func parseLogOptions(q url.Values, now time.Time) (containers.LogOptions, error) {
	var o containers.LogOptions
	p := parameters{q: q}
	o.Follow, o.Previous, o.Timestamps = p.on("follow"), p.on("previous"), p.on("timestamps")
	o.Tail, o.LimitBytes = p.number("tailLines"), p.number("limitBytes")
	if old := q.Get("tail"); old == "all" { // its former name
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

// maxSince is longer than any log, and short enough for the arithmetic of times.
const maxSince = 100 * 365 * 24 * time.Hour

// parameters reads values like Kubernetes' decoder of parameters.
type parameters struct {
	q      url.Values
	failed bool
}

// on returns false if the parameter is missing, "0" or "false"; anything else is true.
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
