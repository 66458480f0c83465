// Package notify reports to the service manager how the agent is.
package notify

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
	recovery "github.com/playlet-dev/playlet/supervisors/guard"
)

// ServiceManager reports to systemd by the protocol of sd_notify(3): READY when the tree is up, STATUS as text, WATCHDOG while
// the tree answers, STOPPING. It does nothing if NOTIFY_SOCKET is not set.
//
// Answers feed the watchdog: each actor without which a node cannot work is queried through its mailbox. An agent that is alive
// but has a stuck tree does not feed it and is restarted.
type ServiceManager struct {
	log    *slog.Logger
	board  *pods.Board
	ask    func(ctx context.Context, actor messages.Address) error
	actors []messages.Address // that must answer
	send   func(state string)
	// watchdog is the interval within which systemd expects a message; zero for none.
	watchdog time.Duration
	// listening is false when NOTIFY_SOCKET is not set.
	listening bool
}

const (
	// idleRound is how often the actors are asked where there is no watchdog.
	idleRound = 10 * time.Second
	// firstRound is how long the tree is given to answer before it is asked again, while it starts.
	firstRound = time.Second
	// statusPause is the least time between two words of status.
	statusPause = time.Second
)

// New reads NOTIFY_SOCKET and WATCHDOG_USEC. The status is the board's, and the answers are the system's.
func New(board *pods.Board, system *supervisors.System, log *slog.Logger) *ServiceManager {
	s := &ServiceManager{log: log, board: board, actors: system.Indispensable()}
	s.ask = func(ctx context.Context, actor messages.Address) error {
		_, err := system.Ask(ctx, actor, messages.GetInspection{})
		return err
	}
	var broken sync.Once
	s.send = func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			broken.Do(func() { log.Warn("reporting to the service manager failed", "error", err) })
		}
	}
	var err error
	if s.watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("cannot notify the service manager's watchdog", "error", err)
	}
	s.listening = os.Getenv("NOTIFY_SOCKET") != ""
	return s
}

// Run reports until ctx ends.
func (s *ServiceManager) Run(ctx context.Context) {
	if !s.listening {
		return
	}
	var both sync.WaitGroup
	defer both.Wait()
	if !s.becomeReady(ctx) {
		return
	}
	both.Go(func() { recovery.GoOn(ctx, s.log, "the status line", s.status) })
	every := idleRound
	if s.watchdog > 0 {
		every = s.watchdog / 3
	}
	for {
		if silent := s.round(ctx, every); len(silent) == 0 {
			s.send(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			s.log.Warn("actors do not answer; not notifying the service manager's watchdog", "actors", silent)
		}
		if !cli.Pause(ctx, every) {
			return
		}
	}
}

// becomeReady asks until all answer.
func (s *ServiceManager) becomeReady(ctx context.Context) bool {
	for ctx.Err() == nil {
		if silent := s.round(ctx, firstRound); len(silent) == 0 {
			s.send(daemon.SdNotifyReady + "\nSTATUS=" + statusLine(s.board.Now()))
			return true
		}
	}
	return false
}

// round asks all actors side by side, and gives those that did not answer in time.
func (s *ServiceManager) round(ctx context.Context, limit time.Duration) []string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	silent := make([]string, len(s.actors))
	var all sync.WaitGroup
	for i, actor := range s.actors {
		all.Go(func() {
			if err := s.ask(ctx, actor); err != nil {
				silent[i] = actor.String()
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(silent, func(name string) bool { return name == "" })
}

// status sends the state of the board when it changes.
func (s *ServiceManager) status(ctx context.Context) {
	last := ""
	for version := uint64(0); ; {
		now, err := s.board.After(ctx, version)
		if err != nil {
			return
		}
		version = now.Version
		if line := statusLine(now); line != last {
			last = line
			s.send("STATUS=" + line)
		}
		if !cli.Pause(ctx, statusPause) {
			return
		}
	}
}

// Stopping reports that the agent ends, and why.
func (s *ServiceManager) Stopping(why string) {
	s.send(daemon.SdNotifyStopping + "\nSTATUS=" + why + "; containers go on running")
}

// statusLine is the node in a line.
func statusLine(now *pods.Snapshot) string {
	if now.Version == 0 {
		return "starting"
	}
	phases := map[v1.PodPhase]int{}
	for _, p := range now.Pods {
		if p.Status != nil {
			phases[p.Status.Phase]++
		}
	}
	parts := []string{cli.Count(len(now.Pods), "pod")}
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodSucceeded, v1.PodFailed} {
		if n := phases[phase]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(string(phase))))
		}
	}
	line := strings.Join(parts, ", ")
	if !now.Runtime.Ready {
		line += "; the container runtime is not ready"
	}
	if n := len(now.Unheard); n > 0 {
		line += "; " + cli.Count(n, "source") + " not heard yet"
	}
	faults, warnings := 0, 0
	for _, p := range now.Problems {
		if p.Warning {
			warnings++
		} else {
			faults++
		}
	}
	if faults > 0 {
		line += fmt.Sprintf("; %d problems with manifests", faults)
	}
	if warnings > 0 {
		line += fmt.Sprintf("; %d warnings about manifests", warnings)
	}
	return line
}
