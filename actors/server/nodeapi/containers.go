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

	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/cri"
)

// choose finds the container that the path names.
func (a *api) choose(r *http.Request) (containers.Chosen, error) {
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

func (a *api) exec(w http.ResponseWriter, r *http.Request) error {
	o, err := parseStreamOptions(r.URL.Query())
	if err != nil {
		return err
	}
	if len(o.Command) == 0 {
		return refuse(http.StatusBadRequest, "no command is given")
	}
	c, err := a.choose(r)
	if err != nil {
		return err
	}
	return a.conf.Containers.Exec(w, r, c, o)
}

func (a *api) attach(w http.ResponseWriter, r *http.Request) error {
	o, err := parseStreamOptions(r.URL.Query())
	if err != nil {
		return err
	}
	c, err := a.choose(r)
	if err != nil {
		return err
	}
	return a.conf.Containers.Attach(w, r, c, o)
}

// parseStreamOptions reads the parameters of exec and attach, which have other names than those of the API server.
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

// run answers POST /run: a command whose output is the answer. Its words are separated by spaces, as the kubelet takes them.
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
	// Probes and hooks need the runtime's slots, and may not wait for what people run; there is a limit of slow requests.
	ctx, cancel := context.WithTimeout(cri.WithoutSlot(r.Context()), patiently)
	defer cancel()
	result, err := a.conf.Runtime.ExecSync(ctx, id, strings.Split(command, " "), patiently-quickly)
	if err != nil {
		return err
	}
	if result.ExitCode != 0 {
		return fmt.Errorf("command %q exited with %d: %s%s", command, result.ExitCode, result.Stdout, result.Stderr)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(append(result.Stdout, result.Stderr...)) // who does not read it has gone
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
		if err != nil || seconds < 0 || seconds > int64(patiently.Seconds()) {
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
	return answer(w, map[string][]string{"items": {file}})
}
