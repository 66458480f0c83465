package containers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/crilog"
)

// LogOptions choose what is read of a container's log. The zero value is all that its latest run has written so far.
type LogOptions struct {
	crilog.Options
	Follow   bool // go on until the container ends
	Previous bool // of the run before the latest
}

// Logs answers with the text of a container's log.
func (h *Handlers) Logs(w http.ResponseWriter, r *http.Request, c Chosen, o LogOptions) error {
	release, err := take(h.logs, r, c.Pod)
	if err != nil {
		return err
	}
	defer release()
	id, err := c.logged(o.Previous)
	if err != nil {
		return err
	}
	run, err := h.loggedRun(r.Context(), id)
	if err != nil {
		return err
	}
	path := run.LogPath
	dir, err := h.logFolder(path)
	if err == nil {
		defer func() { _ = dir.Close() }() // only read from
		err = crilog.Readable(dir, filepath.Base(path))
	}
	if err != nil {
		return refuse(http.StatusNotFound, "the log of container %s cannot be read: %v", id, err)
	}
	if !o.Follow {
		h.awaitOutput(r.Context(), run, func() bool {
			info, err := dir.Lstat(filepath.Base(path))
			return err != nil || info.Size() > 0
		})
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := &logStream{w: w, control: http.NewResponseController(w), live: o.Follow, timeout: h.conf.WriteTimeout}
	out.begin() // before the first line, which may be far into a big log, or be written tomorrow
	who := c.Pod.Pod.Namespace + "/" + c.Pod.Pod.Name
	o.PassedOver = func(name string, why error) {
		h.conf.Log.Warn("a rotated part of a log cannot be read, and is passed over",
			"pod", who, "container", id, "file", name, "error", why)
	}
	if o.Follow {
		o.Live = func(ctx context.Context) bool { return h.live(ctx, id) }
	}
	if err = crilog.Read(r.Context(), dir, filepath.Base(path), o.Options, out); err != nil && r.Context().Err() == nil {
		h.conf.Log.Warn("reading the log of a container failed", "pod", who, "container", id, "error", err)
		panic(http.ErrAbortHandler) // what was sent is not all: who reads it must not take it for the end
	}
	out.end()
	return nil
}

// logged is the run of the container whose log is meant.
func (c Chosen) logged(previous bool) (string, error) {
	if id := c.run(previous); id != "" {
		return id, nil
	}
	if previous {
		return "", bad("container %q of pod %q has had no earlier run, or nothing is left of it", c.Container, c.Pod.Pod.Name)
	}
	return "", bad("container %q of pod %q has not been started yet: %s", c.Container, c.Pod.Pod.Name, c.waits())
}

// logFolder opens the folder of a log, which the runtime names. Below the folder of all logs, no link is followed: a pod that
// may write there could have put it.
func (h *Handlers) logFolder(path string) (*safepath.Root, error) {
	below, ours := strings.CutPrefix(filepath.Dir(path), strings.TrimSuffix(h.conf.PodLogsDir, "/")+"/")
	if h.conf.PodLogsDir == "" || !ours {
		return safepath.OpenRoot(filepath.Dir(path))
	}
	root, err := safepath.OpenRoot(h.conf.PodLogsDir)
	if err != nil {
		return nil, err
	}
	dir, err := root.Sub(below)
	return dir, errors.Join(err, root.Close())
}

// live says whether a container may still write. A runtime that cannot be asked does not say that it has ended; one that
// knows it no more does.
func (h *Handlers) live(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := h.conf.Runtime.ContainerStatus(ctx, id, false)
	if err != nil {
		return !cri.IsNotFound(err)
	}
	return got.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// firstOutput is how long after a container's start an empty log may be because nothing could be written yet. The kubelet learns
// of a start when it looks once a second, so that scripts and Kubernetes' conformance tests read the log of a container as soon
// as it is told to run, and expect its first line.
const firstOutput = time.Second

// awaitOutput waits while a container that has just been started has written nothing.
func (h *Handlers) awaitOutput(ctx context.Context, run *runtimeapi.ContainerStatus, written func() bool) {
	ctx, cancel := context.WithDeadline(ctx, time.Unix(0, run.StartedAt).Add(firstOutput))
	defer cancel()
	look := time.NewTicker(firstOutput / 50)
	defer look.Stop()
	for run.State == runtimeapi.ContainerState_CONTAINER_RUNNING && !written() {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// loggedRun asks the runtime for a run of a container that keeps a log.
func (h *Handlers) loggedRun(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := h.conf.Runtime.ContainerStatus(ctx, id, false)
	if err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "the container runtime does not say where the log is: %v", err)
	}
	if got.GetStatus().GetLogPath() == "" {
		return nil, refuse(http.StatusNotFound, "container %s keeps no log", id)
	}
	return got.Status, nil
}

// logStream writes to a client that may be slow: one that does not read for the timeout is let go.
type logStream struct {
	w       io.Writer
	control *http.ResponseController
	live    bool // each piece is sent at once
	timeout time.Duration
	next    time.Time
}

// begin sends the header, so that the client knows that the log is read. A client that is gone is found out later.
func (s *logStream) begin() {
	s.allow(time.Now())
	_ = s.control.Flush()
}

// end sends the last bytes apart from the end of the answer: for a WebSocket, the API server drops bytes that it reads together
// with that end. The time for the last line may have passed long ago, so the client gets it again.
func (s *logStream) end() {
	s.allow(time.Now())
	_ = s.control.Flush() // a client that is gone needs no end
}

// allow gives the client its time again.
func (s *logStream) allow(now time.Time) {
	_ = s.control.SetWriteDeadline(now.Add(s.timeout)) // a recorder in a test has none
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
