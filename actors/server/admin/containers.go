package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/cri/crilog"
	"github.com/playlet-dev/playlet/messages"
)

// choose finds the container of a request, and notes its name if the request has none.
func (h *handlers) choose(w http.ResponseWriter, r *http.Request, uid, container string) (containers.ChosenContainer, error) {
	c, err := h.conf.Containers.Choose(containers.Name{
		Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), UID: uid, Container: container,
	})
	if c.Note != "" {
		w.Header().Set(api.Note, c.Note)
	}
	return c, err
}

// logs answers GET /v1/logs/NAMESPACE/POD with the text of a container's log.
func (h *handlers) logs(w http.ResponseWriter, r *http.Request) error {
	var o api.LogOptions
	if err := params(r, o.Params()); err != nil {
		return err
	}
	c, err := h.choose(w, r, o.UID, o.Container)
	if err != nil {
		return err
	}
	if why := c.NeverRan(); why != "" {
		w.Header().Set(api.Note, strings.TrimPrefix(c.Note+"; "+why, "; "))
	}
	return h.conf.Containers.Logs(w, r, c, containers.LogOptions{
		Options: crilog.Options{Tail: o.Tail, LimitBytes: o.LimitBytes, Since: o.Since, Timestamps: o.Timestamps},
		Follow:  o.Follow, Previous: o.Previous,
	})
}

// exec answers POST /v1/exec/NAMESPACE/POD: a command in a running container, over a connection that is upgraded to Kubernetes'
// protocol for remote commands.
func (h *handlers) exec(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Query().Get("command") == "" {
		return bad(errors.New("no command is given"))
	}
	return h.join(w, r, h.conf.Containers.Exec)
}

// attach answers POST /v1/attach/NAMESPACE/POD like exec, with the container's own process.
func (h *handlers) attach(w http.ResponseWriter, r *http.Request) error {
	return h.join(w, r, h.conf.Containers.Attach)
}

func (h *handlers) join(w http.ResponseWriter, r *http.Request,
	join func(http.ResponseWriter, *http.Request, containers.ChosenContainer, containers.StreamOptions) error,
) error {
	var o api.ExecOptions
	if err := params(r, o.Params()); err != nil {
		return err
	}
	c, err := h.choose(w, r, o.UID, o.Container)
	if err != nil {
		return err
	}
	return join(w, r, c, containers.StreamOptions{
		Command: o.Command, Stdin: o.Stdin, Stdout: true, Stderr: !o.TTY, TTY: o.TTY,
	})
}

// portForward answers POST /v1/portforward/NAMESPACE/POD over a connection that is upgraded to Kubernetes' protocol for ports.
func (h *handlers) portForward(w http.ResponseWriter, r *http.Request) error {
	p, err := h.conf.Containers.Pod(containers.Name{
		Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), UID: r.URL.Query().Get("uid"),
	})
	if err != nil {
		return err
	}
	return h.conf.Containers.PortForward(w, r, p, nil)
}

// restart answers POST /v1/restart/UID: it restarts containers of the pod, given in the body by name and ID.
func (h *handlers) restart(w http.ResponseWriter, r *http.Request) error {
	question := messages.RestartContainers{UID: r.PathValue("uid")}
	if err := json.NewDecoder(r.Body).Decode(&question.IDs); err != nil || len(question.IDs) == 0 {
		return bad(errors.New("the body is not the IDs of containers by name"))
	}
	taken, err := ask[messages.RestartTaken](h, r, askTimeout, messages.PodAddress(question.UID), question)
	switch {
	case err != nil:
		return err
	case taken.Refused != "":
		return refuse(http.StatusConflict, "%s", taken.Refused)
	}
	return answer(w, api.Restarts{Containers: taken.Containers})
}
