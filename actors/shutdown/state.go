package shutdown

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/supervisors"
)

// stateFile has the kubelet's name and format, and is in its root folder. After a reboot it shows when pods were ended, and
// whether that was completed.
const (
	stateFile    = "graceful_node_shutdown_state"
	stateTimeout = 5 * time.Second
)

type times struct {
	Start time.Time `json:"startTime"`
	End   time.Time `json:"endTime"` // zero: it did not come to that
}

// StatePath is the path of the file, in this root folder.
func StatePath(rootDir string) string { return filepath.Join(rootDir, stateFile) }

// keep records in the file and in the metrics that pods begin to end, or have ended. A shutdown that an earlier incarnation
// began continues.
func keep(path string, began, ended time.Time, within time.Duration) error {
	t, err := read(path)
	if at := began; !at.IsZero() && (!t.End.IsZero() || at.Sub(t.Start) > within) {
		t = times{Start: at}
	}
	t.End = ended
	metrics.ShutdownStart.Set(seconds(t.Start))
	metrics.ShutdownEnd.Set(seconds(t.End))
	data, encodeErr := json.Marshal(t)
	return errors.Join(err, encodeErr, atomicfile.WriteFile(path, data, 0o644))
}

// maxState is the maximum number of bytes read from the file, which holds two times.
const maxState = 4 << 10

// read returns the times of the last shutdown; an absent file is no error.
func read(path string) (t times, err error) {
	data, err := atomicfile.ReadFile(path, maxState)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	return t, err
}

func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.Unix())
}

// keepTimes does that outside the mailbox. A disk that does not take it delays no shutdown.
func (a *actor) keepTimes(ctx supervisors.Context, began, ended time.Time) {
	path, within := a.opts.StatePath, total(a.opts.Groups)
	ctx.Do(supervisors.Work{Name: "keep the times of the shutdown", Timeout: stateTimeout, Run: func(context.Context) any {
		return workDone{"the times of the machine's shutdown are not kept whole", keep(path, began, ended, within)}
	}})
}

// State holds the reason why shutdowns are not delayed, or not for long enough, for readers that must not wait for the actor.
// The zero value has none. Safe for concurrent use.
type State struct{ p atomic.Pointer[string] }

// Problems is that as sentences.
func (s *State) Problems() []string {
	if p := s.p.Load(); p != nil && *p != "" {
		return []string{*p}
	}
	return nil
}

func (s *State) store(text string) { s.p.Store(&text) }
