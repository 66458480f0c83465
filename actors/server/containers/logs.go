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

// LogOptions select a part of a container's log. The zero value is all output so far of its latest run.
type LogOptions struct {
	crilog.Options
	Follow   bool // continue until the container ends
	Previous bool // of the run before the latest
}

// Logs answers with the text of a container's log.
func (h *Handlers) Logs(w http.ResponseWriter, r *http.Request, c ChosenContainer, o LogOptions) error {
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
		defer func() { _ = dir.Close() }() // read-only
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
		panic(http.ErrAbortHandler) // the output is incomplete: the client must not take it for the end
	}
	out.end()
	return nil
}

// logged returns the run of the container whose log is requested.
func (c ChosenContainer) logged(previous bool) (string, error) {
	if id := c.run(previous); id != "" {
		return id, nil
	}
	if previous {
		return "", bad("container %q of pod %q has had no earlier run, or nothing is left of it", c.Container, c.Pod.Pod.Name)
	}
	return "", bad("container %q of pod %q has not been started yet: %s", c.Container, c.Pod.Pod.Name, c.waits())
}

// logFolder opens the folder of a log, which the runtime names. It follows no link below the folder of all logs: a pod with write
// access could have created it.
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

// live reports whether a container may still write. It is true if the runtime does not answer, and false if the container is
// unknown.
func (h *Handlers) live(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := h.conf.Runtime.ContainerStatus(ctx, id, false)
	if err != nil {
		return !cri.IsNotFound(err)
	}
	return got.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// firstOutput is how long after a container's start an empty log may mean that the first output is still to come. The kubelet
// notices a start with a delay of up to a second, so that scripts and Kubernetes' conformance tests read a log as soon as the
// container is reported running, and expect its first line.
const firstOutput = time.Second

// outputWait returns the rest of firstOutput, and no more than that if the clock was set back since the start.
func outputWait(started, now time.Time) time.Duration {
	return min(started.Add(firstOutput).Sub(now), firstOutput)
}

// awaitOutput waits while a container that has just been started has written nothing.
func (h *Handlers) awaitOutput(ctx context.Context, run *runtimeapi.ContainerStatus, written func() bool) {
	ctx, cancel := context.WithTimeout(ctx, outputWait(time.Unix(0, run.StartedAt), time.Now()))
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

// loggedRun requests the status of a container's run that has a log.
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

// logStream writes to a client that may be slow; a client that does not read for the timeout is disconnected.
type logStream struct {
	w       io.Writer
	control *http.ResponseController
	live    bool // send each piece at once
	timeout time.Duration
	next    time.Time
}

// begin sends the header, which confirms the request to the client. It ignores a client that has left.
func (s *logStream) begin() {
	s.allow(time.Now())
	_ = s.control.Flush()
}

// end sends the last bytes separately from the end of the answer: for a WebSocket, the API server drops bytes that it reads
// together with that end. It renews the deadline, which may have passed before the last line.
func (s *logStream) end() {
	s.allow(time.Now())
	_ = s.control.Flush() // irrelevant if the client has left
}

// allow renews the client's deadline.
func (s *logStream) allow(now time.Time) {
	_ = s.control.SetWriteDeadline(now.Add(s.timeout)) // not supported by a test's recorder
}

// Write implements io.Writer.
func (s *logStream) Write(p []byte) (int, error) {
	if now := time.Now(); now.After(s.next) { // not for each line: it is a system call
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
