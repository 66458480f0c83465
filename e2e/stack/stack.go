// Package stack runs real parts for tests and benchmarks: a containerd of its own with CNI networking, a registry with
// the project's images, and the agent's binary. A program that uses it begins with Main, which puts it into namespaces
// of its own (package isolate), so that nothing reaches the machine around it.
package stack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
	"github.com/playlet-dev/playlet/e2e/daemon"
	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// waitLimit bounds every wait for a part; it is reached only when something is broken, however slow the machine.
const waitLimit = 5 * time.Minute

// Runtime is the container runtime of a stack.
type Runtime = install.Kind

// Containerd2 is built from source: it has GetContainerEvents and RuntimeConfig. Containerd1 is Debian 12's 1.6.20,
// which has neither.
const (
	Containerd2 = install.New
	Containerd1 = install.Old
)

// Runtimes are both, for tests that run over each.
var Runtimes = []Runtime{Containerd2, Containerd1}

// Options configure a stack.
type Options struct {
	// Runtime is Containerd2 where it is empty.
	Runtime Runtime
	// RuntimeEnv is added to the runtime's environment, as "NAME=value".
	RuntimeEnv []string
	// Second is the program of SecondHandler; runc where it is empty.
	Second string
	// Mirrored are names of registries whose images the runtime gets from the stack's registry.
	Mirrored []string
	// Subnet, unless empty, has the addresses of pods in place of the one that Subnet computes.
	Subnet string
	// DiskMiB, unless 0, is the size of a file system on which the runtime alone has its images and containers.
	DiskMiB int64
	// Logf takes a line of progress; nil means none.
	Logf func(format string, args ...any)
}

// TB is the part of testing.TB that Start uses.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(f func())
	Failed() bool
}

// Stack is a running containerd with its requirements. Its methods may be called from several goroutines, but methods that stop
// and start the runtime only one at a time.
type Stack struct {
	// Registry holds the images pause and hello; more can be pushed.
	Registry *devimages.Registry
	// Dir holds everything this stack writes.
	Dir string

	number  int // from 1, within the process
	kind    Runtime
	env     []string // of the runtime
	mirrors []string
	second  string // program of SecondHandler, or empty
	subnet  string
	diskMiB int64
	parts   install.Runtime
	logf    func(format string, args ...any)
	client  *CRI
	daemon  *daemon.Daemon // the runtime
	agents  []*Agent
	agentMu sync.Mutex
	stop    func() error
}

// live counts the stacks of this process that have not stopped; numbered gives each a number.
var live, numbered atomic.Int32

// Start starts a stack for a test, which stops it at its end and fails if it leaves traces. A failed test logs the last lines of
// the runtime and the agents.
func Start(t TB, o Options) *Stack {
	t.Helper()
	if o.Logf == nil {
		o.Logf = t.Logf
	}
	s, err := New(context.Background(), o)
	if err != nil {
		t.Fatalf("stack: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.tellLogs(t.Logf)
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stopping the stack: %v", err)
			s.tellStories(err.Error(), t.Logf)
		}
	})
	return s
}

// New starts a stack: when it returns, the runtime reports itself and its network as ready. The caller calls Stop.
func New(ctx context.Context, o Options) (*Stack, error) {
	if !isolate.Inside() {
		return nil, errors.New("not in namespaces of its own: begin the program with stack.Main")
	}
	if o.Runtime == "" {
		o.Runtime = Containerd2
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	parts, err := install.Locate(o.Runtime)
	if err != nil {
		return nil, err
	}
	n := int(numbered.Add(1))
	s := &Stack{
		Dir:    filepath.Join(isolate.Dir(), fmt.Sprint("s", n)),
		number: n,
		kind:   o.Runtime,
		env:    o.RuntimeEnv,
		parts:  parts,
		logf:   o.Logf,

		mirrors: o.Mirrored,
		second:  o.Second,
		subnet:  o.Subnet,
		diskMiB: o.DiskMiB,
	}
	s.daemon = &daemon.Daemon{Name: "the runtime", Log: filepath.Join(s.Dir, "containerd.log")}
	live.Add(1)
	s.stop = sync.OnceValue(s.tearDown)
	if err := s.setUp(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// Kind is the runtime that was asked for.
func (s *Stack) Kind() Runtime { return s.kind }

// CRI is the runtime's own API.
func (s *Stack) CRI() *CRI { return s.client }

// HasEvents reports whether the runtime has GetContainerEvents.
func (s *Stack) HasEvents() bool { return s.kind == Containerd2 }

func (s *Stack) setUp(ctx context.Context) error {
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		return err
	}
	if err := errors.Join(s.makeGroups(), s.mountRoot()); err != nil {
		return err
	}
	registry, err := devimages.StartRegistry(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	s.Registry = registry
	if err := s.writeConfig(); err != nil {
		return err
	}
	if s.client, err = dial(s.Socket()); err != nil {
		return err
	}
	return s.StartRuntime()
}

// Stop ends the agents, the pods and the runtime, and removes their traces. It may be called again. The error also reports
// objects that could only be removed by force.
func (s *Stack) Stop() error { return s.stop() }

// tearDown goes on after each failure, so that as little as possible is left.
func (s *Stack) tearDown() error {
	var errs []error
	s.agentMu.Lock()
	agents := s.agents
	s.agentMu.Unlock()
	for _, a := range agents {
		// Not by SIGKILL: it would interrupt a start in progress, which can leave objects in the runtime that cannot be removed.
		_, err := a.Term()
		errs = append(errs, err)
	}
	if s.client != nil {
		errs = append(errs, s.removePods(), s.TermRuntime())
		s.dropPodGroups()
	}
	errs = append(errs, s.sweep(), s.unmountRoot())
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.Registry != nil {
		errs = append(errs, s.Registry.Close())
	}
	s.daemon.Keep()
	for _, a := range agents {
		a.daemon.Keep()
	}
	if os.Getenv("PLAYLET_E2E_KEEP") == "" {
		errs = append(errs, os.RemoveAll(s.Dir))
	}
	live.Add(-1)
	return errors.Join(errs...)
}

// removePods removes every sandbox and container, with a runtime started for that where there is none.
func (s *Stack) removePods() error {
	if !s.daemon.Running() {
		if err := s.StartRuntime(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	// A runtime that is still executing a killed agent's call may fail once.
	var err error
	for range 5 {
		if err = s.removeSandboxes(ctx); err == nil {
			break
		}
	}
	return err
}

func (s *Stack) removeSandboxes(ctx context.Context) error {
	sandboxes, err := s.Sandboxes(ctx)
	errs := []error{err}
	for _, sandbox := range sandboxes {
		errs = append(errs, s.RemoveSandbox(ctx, sandbox.Id))
	}
	return errors.Join(errs...)
}

func (s *Stack) tellLogs(logf func(format string, args ...any)) {
	logf("last lines of %s:\n%s", s.kind, s.daemon.Last(60))
	s.agentMu.Lock()
	defer s.agentMu.Unlock()
	for _, a := range s.agents {
		logf("last lines of agent %s:\n%s", a.Name, a.daemon.Last(120))
	}
}

// tellStories logs the messages of the runtime and the agents about each container and pod whose ID is in a text.
func (s *Stack) tellStories(text string, logf func(format string, args ...any)) {
	logs := map[string]string{string(s.kind): s.RuntimeLog()}
	s.agentMu.Lock()
	defer s.agentMu.Unlock()
	for _, a := range s.agents {
		logs["agent "+a.Name] = a.Log()
	}
	ids := regexp.MustCompile(`[0-9a-f]{32,64}`).FindAllString(text, -1)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		for _, who := range slices.Sorted(maps.Keys(logs)) {
			var lines []string
			for line := range strings.Lines(logs[who]) {
				if strings.Contains(line, id) {
					lines = append(lines, line)
				}
			}
			logf("%s on %s:\n%s", who, id, strings.Join(lines[max(0, len(lines)-60):], ""))
		}
	}
}
