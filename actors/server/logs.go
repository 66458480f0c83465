package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/server/admin"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/crilog"
)

// Containers is the part of the runtime's client that logs need; *cri.Client implements it.
type Containers interface {
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
}

// maxLogs is how many logs are read at once.
const maxLogs = 32

// logTimeout is writeTimeout; tests have less.
var logTimeout = writeTimeout

// readLogs answers GET /v1/logs/NAMESPACE/POD with the text of a container's log.
func (a *api) readLogs(w http.ResponseWriter, r *http.Request) {
	options, err := admin.ParseLogOptions(r.URL.Query())
	if err != nil {
		fail(w, &admin.Error{Status: http.StatusBadRequest, Text: err.Error()})
		return
	}
	select {
	case a.logs <- struct{}{}:
		defer func() { <-a.logs }()
	default:
		fail(w, refuse(http.StatusTooManyRequests, "%d logs are read already, which is the limit", maxLogs))
		return
	}
	id, note, err := a.loggedContainer(r.PathValue("namespace"), r.PathValue("pod"), options)
	if err != nil {
		fail(w, err)
		return
	}
	path, err := a.logPath(r.Context(), id)
	if err != nil {
		fail(w, err)
		return
	}
	dir, err := a.logFolder(path)
	if err == nil {
		defer func() { _ = dir.Close() }() // only read from
		err = crilog.Readable(dir, filepath.Base(path))
	}
	if err != nil {
		fail(w, refuse(http.StatusNotFound, "the log of container %s cannot be read: %v", id, err))
		return
	}
	if note != "" {
		w.Header().Set(admin.LogNote, note)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := &logStream{w: w, control: http.NewResponseController(w), live: options.Follow}
	out.begin() // before the first line, which may be far into a big log, or be written tomorrow
	o := crilog.Options{Tail: options.Tail, LimitBytes: options.LimitBytes, Since: options.Since, Timestamps: options.Timestamps}
	who := r.PathValue("namespace") + "/" + r.PathValue("pod")
	o.PassedOver = func(name string, why error) {
		a.l.log.Warn("a rotated part of a log cannot be read, and is passed over",
			"pod", who, "container", id, "file", name, "error", why)
	}
	if options.Follow {
		o.Live = func(ctx context.Context) bool { return a.live(ctx, id) }
	}
	if err = crilog.Read(r.Context(), dir, filepath.Base(path), o, out); err != nil && r.Context().Err() == nil {
		a.l.log.Warn("a log broke off", "pod", who, "container", id, "error", err)
		panic(http.ErrAbortHandler) // what was sent is not all: who reads it must not take it for the end
	}
	out.allow(time.Now()) // for the end of the answer: the time for the last line may be over long since
}

// logFolder opens the folder of a log, which the runtime names. Below the folder of all logs, no link is followed: a pod that
// may write there could have put it.
func (a *api) logFolder(path string) (*safepath.Root, error) {
	below, ours := strings.CutPrefix(filepath.Dir(path), strings.TrimSuffix(a.l.conf.PodLogsDir, "/")+"/")
	if a.l.conf.PodLogsDir == "" || !ours {
		return safepath.OpenRoot(filepath.Dir(path))
	}
	root, err := safepath.OpenRoot(a.l.conf.PodLogsDir)
	if err != nil {
		return nil, err
	}
	dir, err := root.Sub(below)
	return dir, errors.Join(err, root.Close())
}

// live says whether a container may still write. A runtime that cannot be asked does not say that it has ended; one that
// knows it no more does.
func (a *api) live(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := a.l.conf.Containers.ContainerStatus(ctx, id, false)
	if err != nil {
		return !cri.IsNotFound(err)
	}
	return got.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// loggedContainer finds the run of the container whose log is meant.
func (a *api) loggedContainer(namespace, name string, o admin.LogOptions) (id, note string, err error) {
	c, err := a.choose(namespace, name, o.Container)
	if err != nil {
		return "", "", err
	}
	if id = runOf(c.status, o.Previous); id != "" {
		return id, c.note, nil
	}
	if o.Previous {
		return "", "", bad("container %q of pod %q has had no earlier run, or nothing is left of it", c.container, name)
	}
	return "", "", bad("container %q of pod %q has not been started yet: %s", c.container, name, c.waits())
}

// runOf is the ID of a container's latest run, or of the one before; empty when there is none.
func runOf(s *v1.ContainerStatus, previous bool) string {
	last := ""
	if t := s.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	now := s.ContainerID
	switch {
	case s.State.Running != nil:
	case s.State.Terminated != nil:
		now = s.State.Terminated.ContainerID
	default: // it waits for its next start: its latest run is the last one
		now = last
	}
	if previous {
		now = last
	}
	_, id, _ := strings.Cut(now, "://")
	return id
}

// logPath asks the runtime where a run's log is.
func (a *api) logPath(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := a.l.conf.Containers.ContainerStatus(ctx, id, false)
	if err != nil {
		return "", refuse(http.StatusServiceUnavailable, "the container runtime does not say where the log is: %v", err)
	}
	path := got.GetStatus().GetLogPath()
	if path == "" {
		return "", refuse(http.StatusNotFound, "container %s keeps no log", id)
	}
	return path, nil
}

// defaultContainer is the one that is meant where none is named, as for kubectl. It is empty for a pod that names none: one
// that was found running is known by what the runtime says of it.
func defaultContainer(pod *v1.Pod) string {
	if name := pod.Annotations["kubectl.kubernetes.io/default-container"]; slices.Contains(containerNames(pod), name) {
		return name
	}
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Name
}

func containerNames(pod *v1.Pod) []string {
	var out []string
	for _, c := range pod.Spec.Containers {
		out = append(out, c.Name)
	}
	for _, c := range pod.Spec.InitContainers {
		out = append(out, c.Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		out = append(out, pod.Spec.EphemeralContainers[i].Name)
	}
	return out
}

func containerStatus(pod *board.Pod, name string) *v1.ContainerStatus {
	if pod.Status == nil {
		return nil
	}
	st := pod.Status
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses, st.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// logStream writes to a client that may be slow: one that does not read for logTimeout is let go.
type logStream struct {
	w       io.Writer
	control *http.ResponseController
	live    bool // each piece is sent at once
	next    time.Time
}

// begin sends the header, so that the client knows that the log is read. A client that is gone is found out later.
func (s *logStream) begin() { _ = s.control.Flush() }

// allow gives the client its time anew.
func (s *logStream) allow(now time.Time) {
	_ = s.control.SetWriteDeadline(now.Add(logTimeout)) // a recorder in a test has none
}

// Write implements io.Writer.
func (s *logStream) Write(p []byte) (int, error) {
	if now := time.Now(); now.After(s.next) { // not at each line: it is a system call
		s.next = now.Add(time.Second)
		s.allow(now)
	}
	n, err := s.w.Write(p)
	if err == nil && s.live {
		err = s.control.Flush()
	}
	if errors.Is(err, http.ErrNotSupported) {
		err = nil
	}
	return n, err
}
