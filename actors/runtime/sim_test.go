package runtime_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/runtime"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// inbox collects the messages to actors that only listen.
type inbox struct {
	mu    sync.Mutex
	all   []any
	news  chan struct{}
	pods  []string // children that "pods" spawns
	taken int
}

// listener plays the actor "pods" and its children.
type listener struct{ in *inbox }

func (l listener) Receive(ctx supervisors.Context, msg any) {
	if _, ok := msg.(messages.Started); ok && ctx.Self() == messages.Pods {
		for _, uid := range l.in.pods {
			ctx.Spawn(uid)
		}
	}
	if read, ok := msg.(messages.ReadPod); ok {
		ctx.Tell(messages.Runtime, read)
		return
	}
	l.in.mu.Lock()
	l.in.all = append(l.in.all, msg)
	l.in.mu.Unlock()
	select {
	case l.in.news <- struct{}{}:
	default:
	}
}

// node is a system with the actor, a simulated runtime, and listeners for the rest.
type node struct {
	t   *testing.T
	ctx context.Context
	sim *sim.Runtime
	cri *cri.Client
	ops *cri.Operations
	sys *supervisors.System
	in  *inbox
}

func run(t *testing.T, so sim.Options, change func(*runtime.Options), uids ...string) *node {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	n := &node{t: t, ctx: ctx, ops: cri.NewOperations(), in: &inbox{news: make(chan struct{}, 1), pods: uids}}
	so.Socket = filepath.Join(t.TempDir(), "s")
	so.Preload = []string{"app"}
	var err error
	if n.sim, err = sim.Start(so); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.sim.Close)
	if n.cri, err = cri.Dial(cri.Options{RuntimeEndpoint: n.sim.Endpoint()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, n.cri.Close()) })
	events := runtime.NewEvents(n.cri, slog.New(slog.DiscardHandler))
	t.Cleanup(events.Close)
	opts := runtime.Options{
		CRI: n.cri, Operations: n.ops, Events: events, State: &runtime.State{}, Endpoint: n.sim.Endpoint(),
		PollPeriod: time.Hour, AuditPeriod: time.Hour,
	}
	if change != nil {
		change(&opts)
	}
	strategy := supervisors.Strategy{Panics: 5, Within: time.Minute, Then: supervisors.Escalate}
	listen := func(string) supervisors.Actor { return listener{n.in} }
	n.sys, err = supervisors.Start(supervisors.Options{
		Tree: &supervisors.Row{Kind: "node", Strategy: strategy, Children: []supervisors.Row{
			{Kind: "pods", Strategy: strategy, Children: []supervisors.Row{{Kind: "pod", Dynamic: true, Strategy: strategy}}},
			{Kind: "runtime", Strategy: strategy, Clients: []messages.Address{messages.Pods}},
		}},
		Constructors: map[supervisors.Kind]supervisors.Constructor{
			"node": listen, "pods": listen, "pod": listen, "runtime": runtime.New(opts),
		},
		Fatal: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, n.sys.Shutdown(ctx)) })
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// await waits for a message that arrives after those consumed by earlier waits.
func await[T any](n *node, what string, ok func(T) bool) T {
	n.t.Helper()
	for {
		n.in.mu.Lock()
		for n.in.taken < len(n.in.all) {
			msg, is := n.in.all[n.in.taken].(T)
			n.in.taken++
			if is && ok(msg) {
				n.in.mu.Unlock()
				return msg
			}
		}
		n.in.mu.Unlock()
		select {
		case <-n.in.news:
		case <-n.ctx.Done():
			n.t.Fatalf("did not arrive: %s", what)
		}
	}
}

func (n *node) awaitReady(ready bool) {
	n.t.Helper()
	await(n, "RuntimeStateChanged", func(m messages.RuntimeStateChanged) bool { return m.Ready == ready })
}

// awaitState waits until a pod receives this state of its one container.
func (n *node) awaitState(uid string, s messages.ContainerState) messages.ContainerFact {
	n.t.Helper()
	return await(n, uid+" "+string(s), func(m messages.PodObserved) bool {
		return m.Facts.UID == uid && len(m.Facts.Containers) == 1 && m.Facts.Containers[0].State == s
	}).Facts.Containers[0]
}

// pod runs a pod with one container, as its own actor would, and returns the container's ID.
func (n *node) pod(uid string) string {
	n.t.Helper()
	labels := map[string]string{cri.LabelPodUID: uid, cri.LabelPodName: uid, cri.LabelPodNamespace: "default"}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid}, Labels: labels,
	}
	id, err := cri.Run(n.ctx, n.ops, uid+"/start/all", time.Minute, func(ctx context.Context) (string, error) {
		sandbox, err := n.cri.RunPodSandbox(ctx, config, "")
		if err != nil {
			return "", err
		}
		own := map[string]string{cri.LabelContainerName: "app"}
		for k, v := range labels {
			own[k] = v
		}
		id, err := n.cri.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "app"}, Labels: own,
		}, config)
		if err != nil {
			return "", err
		}
		return id, n.cri.StartContainer(ctx, id)
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

func (n *node) read(uid string) { n.sys.Tell(messages.PodAddress(uid), messages.ReadPod{UID: uid}) }

func TestEventTellsThePodConcerned(t *testing.T) {
	n := run(t, sim.Options{}, nil, "u")
	n.awaitReady(true)
	check(t, n.sim.WaitFor(n.ctx, func(s sim.Snapshot) bool { return s.EventStreams == 1 }))
	id := n.pod("u")
	n.read("u")
	if f := n.awaitState("u", messages.ContainerRunning); f.ID != id || f.SandboxID == "" || f.StartedAt.IsZero() {
		t.Errorf("%+v", f)
	}
	check(t, n.cri.StopContainer(n.ctx, id, 0))
	if f := n.awaitState("u", messages.ContainerExited); f.ID != id || f.ExitCode != 137 || f.FinishedAt.IsZero() {
		t.Errorf("%+v", f)
	}
}

func TestPollingTellsThePodConcerned(t *testing.T) {
	n := run(t, sim.Options{Old: true}, func(o *runtime.Options) { o.PollPeriod = 5 * time.Millisecond }, "u")
	n.awaitReady(true)
	id := n.pod("u")
	n.awaitState("u", messages.ContainerRunning)
	check(t, n.cri.StopContainer(n.ctx, id, 0))
	n.awaitState("u", messages.ContainerExited)
}

func TestRuntimeDiesAndComesBack(t *testing.T) {
	n := run(t, sim.Options{}, nil, "u")
	n.awaitReady(true)
	id := n.pod("u")
	n.read("u")
	n.awaitState("u", messages.ContainerRunning)
	n.sim.Down()
	n.awaitReady(false)
	n.read("u") // queued until the runtime is connected
	check(t, n.sim.Up())
	n.awaitReady(true)
	if f := n.awaitState("u", messages.ContainerRunning); f.ID != id {
		t.Errorf("%+v", f)
	}
}

func TestActorRestartLosesNothing(t *testing.T) {
	n := run(t, sim.Options{}, nil, "u")
	n.awaitReady(true)
	id := n.pod("u")
	n.read("u")
	n.awaitState("u", messages.ContainerRunning)
	n.sys.Kill(messages.Runtime, "test")
	check(t, n.cri.StopContainer(n.ctx, id, 0))
	n.awaitState("u", messages.ContainerExited)
}

func TestRemainsAreCollected(t *testing.T) {
	n := run(t, sim.Options{}, func(o *runtime.Options) { o.CollectPeriod = 5 * time.Millisecond }, "u", "v")
	n.awaitReady(true)
	n.pod("u")
	gone := n.pod("v")
	check(t, n.cri.StopContainer(n.ctx, gone, 0))
	for _, s := range n.sim.Snapshot().Sandboxes {
		if s.UID == "v" {
			check(t, n.cri.StopPodSandbox(n.ctx, s.ID))
		}
	}
	n.sys.Tell(messages.Runtime, messages.KeepContainers{Wanted: map[string]bool{"u": true}, Heard: true})
	check(t, n.sim.WaitFor(n.ctx, func(s sim.Snapshot) bool { return len(s.Sandboxes) == 1 && len(s.Containers) == 1 }))
	if s := n.sim.Snapshot(); s.Running() != 1 || len(n.sim.Violations()) != 0 {
		t.Errorf("%+v, %v", s, n.sim.Violations())
	}
}

// If the lists exceed one message, the node is audited pod by pod; log folders reveal the pods of an earlier agent.
func TestList_TooLargeIsReadPodByPod(t *testing.T) {
	logs := t.TempDir()
	var uids []string
	for i := range 12 {
		uids = append(uids, fmt.Sprintf("u%02d", i))
		check(t, os.Mkdir(filepath.Join(logs, "default_"+uids[i]+"_"+uids[i]), 0o755))
	}
	n := run(t, sim.Options{MaxMessage: 1000}, func(o *runtime.Options) { o.PodLogsDir = logs }, uids...)
	n.awaitReady(true)
	for _, uid := range uids {
		n.pod(uid)
	}
	if _, err := n.cri.ListPodSandbox(n.ctx, nil); !cri.IsTooLarge(err) {
		t.Fatalf("the list: %v", err)
	}
	n.sys.Tell(messages.Runtime, messages.GetAudit{})
	await(n, "a whole audit", func(m messages.RuntimeAudited) bool { return len(m.Pods) == len(uids) })
}
