package server

import (
	"context"
	"net/http"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/cri"
)

// Commands is the part of the runtime's client that running commands needs; *cri.Client implements it.
type Commands interface {
	Exec(ctx context.Context, req *runtimeapi.ExecRequest) (url string, err error)
}

// maxStreams is how many commands are run at once.
const maxStreams = 32

// exec answers POST /v1/exec/NAMESPACE/POD: a command in a container that runs, over a connection that is upgraded to
// Kubernetes' protocol for remote commands.
func (a *api) exec(w http.ResponseWriter, r *http.Request) {
	options, err := admin.ParseExecOptions(r.URL.Query())
	if err != nil {
		fail(w, bad("%v", err))
		return
	}
	release, err := a.slot(w)
	if err != nil {
		return
	}
	defer release()
	c, err := a.choose(r.PathValue("namespace"), r.PathValue("pod"), options.Container)
	if err != nil {
		fail(w, err)
		return
	}
	switch state := c.status.State; {
	case state.Running != nil:
	case state.Terminated != nil:
		fail(w, bad("container %q of pod %q does not run: it ended with exit code %d (%s)",
			c.container, c.pod, state.Terminated.ExitCode, state.Terminated.Reason))
		return
	default:
		fail(w, bad("container %q of pod %q does not run: %s", c.container, c.pod, c.waits()))
		return
	}
	if c.note != "" {
		w.Header().Set(admin.Note, c.note)
	}
	a.execIn(w, r, runOf(c.status, false), options)
}

// execIn runs a command in a container, for any listener: whoever asks has been let in by then.
func (a *api) execIn(w http.ResponseWriter, r *http.Request, id string, o admin.ExecOptions) {
	ctx, cancel := context.WithTimeout(r.Context(), execTimeout)
	defer cancel()
	url, err := a.l.conf.Commands.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: o.Command, Tty: o.TTY, Stdin: o.Stdin, Stdout: true, Stderr: !o.TTY,
	})
	if err != nil {
		status := http.StatusServiceUnavailable
		if cri.IsNotFound(err) {
			status = http.StatusNotFound
		}
		fail(w, refuse(status, "the container runtime does not run a command in container %s: %v", id, err))
		return
	}
	a.stream(w, r, url)
}

// slot takes one of the streams there may be.
func (a *api) slot(w http.ResponseWriter) (release func(), err error) {
	select {
	case a.streams <- struct{}{}:
		return func() { <-a.streams }, nil
	default:
		err := refuse(http.StatusTooManyRequests, "%d commands are run already, which is the limit", maxStreams)
		fail(w, err)
		return nil, err
	}
}
