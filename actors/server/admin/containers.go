package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/cri/crilog"
	"github.com/playlet-dev/playlet/messages"
)

func bad(err error) error { return &api.Error{Status: http.StatusBadRequest, Text: err.Error()} }

// choose finds the container that a request means, and notes which one it is where none was named.
func (h *handlers) choose(w http.ResponseWriter, r *http.Request, uid, container string) (containers.Chosen, error) {
	c, err := h.conf.Containers.Choose(containers.Name{
		Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), UID: uid, Container: container,
	})
	if c.Note != "" {
		w.Header().Set(api.Note, c.Note)
	}
	return c, err
}

// logs answers GET /v1/logs/NAMESPACE/POD with the text of a container's log.
func (h *handlers) logs(w http.ResponseWriter, r *http.Request) {
	o, err := api.ParseLogOptions(r.URL.Query())
	if err != nil {
		fail(w, bad(err))
		return
	}
	c, err := h.choose(w, r, o.UID, o.Container)
	if err == nil {
		if why := c.NeverRan(); why != "" {
			w.Header().Set(api.Note, strings.TrimPrefix(c.Note+"; "+why, "; "))
		}
		err = h.conf.Containers.Logs(w, r, c, containers.LogOptions{
			Options: crilog.Options{Tail: o.Tail, LimitBytes: o.LimitBytes, Since: o.Since, Timestamps: o.Timestamps},
			Follow:  o.Follow, Previous: o.Previous,
		})
	}
	if err != nil {
		fail(w, err)
	}
}

// exec answers POST /v1/exec/NAMESPACE/POD: a command in a container that runs, over a connection that is upgraded to
// Kubernetes' protocol for remote commands.
func (h *handlers) exec(w http.ResponseWriter, r *http.Request) {
	o, err := api.ParseExecOptions(r.URL.Query())
	if err == nil && len(o.Command) == 0 {
		err = errors.New("no command is given")
	}
	h.stream(w, r, o, err, h.conf.Containers.Exec)
}

// attach answers POST /v1/attach/NAMESPACE/POD as exec does: the process is the container's own.
func (h *handlers) attach(w http.ResponseWriter, r *http.Request) {
	o, err := api.ParseExecOptions(r.URL.Query())
	h.stream(w, r, o, err, h.conf.Containers.Attach)
}

func (h *handlers) stream(w http.ResponseWriter, r *http.Request, o api.ExecOptions, err error,
	join func(http.ResponseWriter, *http.Request, containers.Chosen, containers.StreamOptions) error) {
	if err != nil {
		fail(w, bad(err))
		return
	}
	c, err := h.choose(w, r, o.UID, o.Container)
	if err == nil {
		err = join(w, r, c, containers.StreamOptions{
			Command: o.Command, Stdin: o.Stdin, Stdout: true, Stderr: !o.TTY, TTY: o.TTY,
		})
	}
	if err != nil {
		fail(w, err)
	}
}

// portForward answers POST /v1/portforward/NAMESPACE/POD over a connection that is upgraded to Kubernetes' protocol for ports.
func (h *handlers) portForward(w http.ResponseWriter, r *http.Request) {
	p, err := h.conf.Containers.Pod(containers.Name{
		Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), UID: r.URL.Query().Get("uid"),
	})
	if err == nil {
		err = h.conf.Containers.PortForward(w, r, p, nil)
	}
	if err != nil {
		fail(w, err)
	}
}

// restart answers POST /v1/restart/UID: containers of the pod are ended and started again, those in the body by name and ID.
func (h *handlers) restart(w http.ResponseWriter, r *http.Request) {
	question := messages.RestartContainers{UID: r.PathValue("uid")}
	if err := json.NewDecoder(r.Body).Decode(&question.IDs); err != nil || len(question.IDs) == 0 {
		fail(w, bad(errors.New("the body is not the IDs of containers by name")))
		return
	}
	got, err := h.ask(r.Context(), messages.PodAddress(question.UID), question)
	if err != nil {
		fail(w, err)
		return
	}
	taken, ok := got.(messages.RestartTaken)
	switch {
	case !ok:
		fail(w, fmt.Errorf("the pod's actor answered with a %T", got))
	case taken.Refused != "":
		fail(w, &api.Error{Status: http.StatusConflict, Text: taken.Refused})
	default:
		answer(w, http.StatusOK, api.Restarted{Containers: taken.Containers})
	}
}
