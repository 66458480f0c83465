package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin"
)

// chosen is the container of a pod that a request means.
type chosen struct {
	pod       string
	container string
	status    *v1.ContainerStatus
	note      string // which one was chosen, where none was named and there are several
}

func bad(format string, args ...any) error { return refuse(http.StatusBadRequest, format, args...) }

// refuse is the error of a request that is answered with a status.
func refuse(status int, format string, args ...any) *admin.Error {
	return &admin.Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

// choose finds a container that was made, by the names of its pod and its own; an empty one means the default container.
func (a *api) choose(namespace, name, container string) (chosen, error) {
	found := filter{namespace, name}.choose(a.l.conf.Board.Now())
	if len(found) == 0 {
		return chosen{}, refuse(http.StatusNotFound, "there is no pod %q in namespace %q", name, namespace)
	}
	pod := found[0]
	all := containerNames(pod.Pod)
	out := chosen{pod: name, container: container}
	if container == "" {
		if out.container = defaultContainer(pod.Pod); len(all) > 1 {
			out.note = fmt.Sprintf("container %q of %s; -c names another", out.container, strings.Join(all, ", "))
		}
	}
	out.status = containerStatus(pod, out.container)
	switch {
	case out.status == nil && len(all) == 0: // it was found, and is being ended
		return chosen{}, bad("pod %q has no container known here", name)
	case out.status == nil && !slices.Contains(all, out.container):
		return chosen{}, bad("pod %q has no container %q; it has %s", name, out.container, strings.Join(all, ", "))
	case out.status == nil:
		return chosen{}, bad("container %q of pod %q has not been made yet", out.container, name)
	}
	return out, nil
}

// waits says why the container does not run.
func (c chosen) waits() string {
	if w := c.status.State.Waiting; w != nil {
		return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	}
	return "ContainerCreating"
}
