package pod

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/podspec"
	"github.com/playlet-dev/playlet/actors/pod/settings"
	"github.com/playlet-dev/playlet/actors/pod/work"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/backoff"
	"github.com/playlet-dev/playlet/supervisors/exits"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// world is a small model of the machine's environment: parent, runtime, images, volumes and the actors of its containers. It
// keeps the answers to the machine's requests as pending. A test delivers them in any order, loses or duplicates them.
type world struct {
	now     time.Time
	jumped  time.Duration // the wall clock was set by this
	stepAt  time.Time
	machine *Machine
	set     settings.Settings
	pod     *v1.Pod
	ending  *messages.Ending
	final   *v1.PodStatus
	last    *v1.PodStatus // an earlier status
	fail    *messages.PodFailure
	offline *messages.Reason // the cause of a missing network
	waiting *messages.Reason // as reported

	pending []any           // messages on their way to the machine
	exited  map[string]bool // the actors that wait for their next orders
	wakeAt  time.Time
	phases  []Phase
	status  *v1.PodStatus
	taken   uint64
	ended   *messages.PodEnded
	// objectGone means that the API server has deleted the object of a released pod.
	objectGone bool

	seq        int
	sandboxes  []messages.SandboxFact   // newest first
	containers []messages.ContainerFact // newest first
	actors     map[string]exits.Strategy
	orders     map[string]any // of the next lives of actors
	stops      []string       // names, in the order of the requests
	stopping   []messages.StopContainer
	asked      map[string]string // the last order to each container: its "hook", or its "end"
	mounted    bool
	foldersOut bool
	grouped    bool      // its cgroup exists
	groups     []*v1.Pod // the requested cgroups
	edits      uint64
	noImages   bool // no pull ends
	noVolumes  bool // no volume is mounted
	stubborn   bool // no container stops
	claimed    bool // its ResourceClaims are prepared
	record     func(msg any, effects []Effect)
	holds      bool // images are held for it
	watch      func(*v1.PodStatus)
	stuck      map[string]bool // rests of interrupted starts that cannot be removed
	halfway    int             // number of next starts that create the container and then fail

	proberState
	resizeState
	exit       func(name string, attempt uint32) (code int32, ends bool)
	violations []string
	trace      []string
	records    []messages.RecordEvent
	ends       map[string]int // of each container
	gave       map[messages.ImageKey]bool
	deaf       bool            // the next status is lost
	blind      bool            // the outcome of the next start cannot be read
	brief      bool            // the outcome of the next start of a regular container is lost, and it ends well at once
	excused    map[string]bool // containers that restart whatever their exit code: they were ended for that
	unread     map[string]bool // containers with a start unknown to the pod: it failed, by the pod's reports
	handler    string          // of new sandboxes
	heeded     int32           // the exit code of stopped containers
	removed    map[string]bool // removed from outside, by name and attempt
	did        map[string]bool // the init containers that succeeded, by name, sandbox and round
}

func newWorld(pod *v1.Pod) *world {
	w := &world{
		heeded: 143,
		now:    time.Unix(1_000_000, 0), pod: pod, actors: map[string]exits.Strategy{}, orders: map[string]any{}, exited: map[string]bool{},
		exit: func(string, uint32) (int32, bool) { return 0, false }, ends: map[string]int{}, gave: map[messages.ImageKey]bool{},
		unread: map[string]bool{}, excused: map[string]bool{}, asked: map[string]string{},
		did: map[string]bool{}, removed: map[string]bool{},
		set: settings.Settings{
			Events:        true,
			AnswerTimeout: 10 * time.Second, Work: 30 * time.Second,
			BackOff: backoff.Policy{First: 10 * time.Second, Max: 300 * time.Second},
			HostIPs: func() []string { return []string{"10.0.0.1"} }, Unsettled: func() bool { return false },
			RuntimeName:       func() string { return "sim" },
			Changed:           func(spec *v1.Container, f messages.ContainerFact) bool { return spec.Image != f.Image },
			ChangedImage:      func(spec *v1.Container, f messages.ContainerFact) bool { return spec.Image != f.Image },
			PodLevelResize:    true,
			RestartAll:        true,
			Resources:         func(*v1.Pod, messages.ContainerFact) *v1.ResourceRequirements { return nil },
			RecursiveReadOnly: func(string) bool { return true },
			BackOffStep:       func(f messages.ContainerFact) int { return len(f.Annotations["step"]) },
		},
	}
	w.machine = NewMachine(string(pod.UID), w.set)
	return w
}

func testPod(policy v1.RestartPolicy, init, regular int) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID("u1")},
		Spec:       v1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: new(int64(5))},
	}
	for i := range init {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: fmt.Sprintf("init%d", i), Image: "image"})
	}
	for i := range regular {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprintf("c%d", i), Image: "image"})
	}
	return p
}

// delayedEvent is a later event in the world; it returns the report of it.
type delayedEvent func() any

// lose drops a message; a delayed event happens all the same.
func (w *world) lose(msg any) {
	if d, ok := msg.(delayedEvent); ok {
		d()
	}
}

// step passes one message, or a tick, to the machine.
func (w *world) step(msg any) {
	if d, ok := msg.(delayedEvent); ok {
		msg = d()
	}
	w.log("%s <- %T", w.now.Format("04:05"), msg)
	before := w.machine.Phase()
	w.stepAt = w.now
	effects := w.machine.Step(w.clock(), msg)
	if w.record != nil {
		w.record(msg, effects)
	}
	for _, e := range effects {
		w.effect(e)
	}
	w.checkAsked()
	if p := w.machine.Phase(); p != before || len(w.phases) == 0 {
		w.phases = append(w.phases, p)
	}
}

// clock returns the time by the node's clock. Only now must not jump, since later events are planned from it.
func (w *world) clock() time.Time {
	if w.jumped == 0 {
		return w.now
	}
	return supervisortest.SetClock(w.now, w.jumped)
}

func (w *world) send(msg any) { w.pending = append(w.pending, msg) }

func (w *world) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) effect(e Effect) {
	w.log("        %T %+v", e, brief(e))
	switch e := e.(type) {
	case Transition:
		if !slices.Contains(Edges[e.From], e.To) {
			w.fault("edge %s to %s", e.From, e.To)
		}
	case Tell:
		w.sent(e.Msg)
	case work.StartSandbox:
		if w.machine.Wanted.NoNetwork != nil {
			w.fault("a sandbox is started without a network")
		}
		w.startSandbox(e)
	case work.UpdateSandbox:
		w.updateSandbox(e)
	case work.ResizeContainer:
		w.resizeContainer(e)
	case ResizeTried:
		w.tried = append(w.tried, e)
	case work.StopSandbox:
		refused := false
		for _, c := range w.containers {
			if c.SandboxID == e.ID && lives(c) {
				if refused = w.unread[c.ID]; !refused {
					w.fault("sandbox %s is stopped under %s, which runs", e.ID, c.ID)
				}
			}
		}
		if refused { // as by cri.Operations
			w.send(work.SandboxStopped{ID: e.ID, Failed: &messages.Reason{Code: messages.ReasonStopSandbox}, Running: true})
			break
		}
		for i := range w.sandboxes {
			if w.sandboxes[i].ID == e.ID {
				w.sandboxes[i].Ready = false
				w.killIn(e.ID)
			}
		}
		w.send(work.SandboxStopped{ID: e.ID})
	case work.RemovePod:
		for _, c := range w.containers {
			if lives(c) {
				w.fault("%s is removed while it runs", c.ID)
			}
		}
		w.sandboxes, w.containers = nil, nil
		w.send(work.PodRemoved{})
	case OrderContainer:
		if slices.ContainsFunc(w.pending, func(m any) bool {
			exit, ok := m.(messages.ChildExited)
			return ok && exit.Name == e.Name && e.Strategy.Run <= exit.Result.Exit().Run
		}) {
			break // repeated: its run is over
		}
		_, there := w.actors[e.Name]
		waits := w.exited[e.Name]
		w.actors[e.Name], w.orders[e.Name] = e.Strategy, e.Order
		delete(w.exited, e.Name)
		if !there || waits {
			w.send(messages.ChildStarted{Name: e.Name, Again: waits})
		}
		w.sent(e.Order)
	case UpdateContainer:
		if _, there := w.actors[e.Name]; there {
			w.actors[e.Name], w.orders[e.Name] = e.Strategy, e.Order
		}
	case DropContainer:
		delete(w.actors, e.Name)
		delete(w.exited, e.Name)
	case Wake:
		if !e.At.After(w.stepAt) {
			w.fault("it wants to be woken in the past: it would spin")
		}
		w.wakeAt = e.At
	}
}

// present reports whether a container's actor exists and can receive.
func (w *world) present(name string) bool {
	_, there := w.actors[name]
	return there && !w.exited[name]
}

// exits returns the exit of a container's actor, with the supervisor's verdict, or nil if the actor is already gone.
func (w *world) exits(f messages.ContainerFact) any {
	if !w.present(f.Name) {
		return nil
	}
	result := messages.ContainerEnded{Fact: f}
	verdict := w.actors[f.Name].Verdict(result.Exit())
	sent := messages.ChildExited{Name: f.Name, Result: result, Verdict: verdict}
	if w.orders[f.Name] != nil && f.Attempt < w.actors[f.Name].Run { // its order is for a later run
		w.fall(f.Name)
		return sent
	}
	if verdict == messages.ExitRestarts {
		if !w.machine.live() {
			w.fault("the actor of %s is restarted while its pod is %s", f.Name, w.machine.Phase())
		}
		w.orders[f.Name], w.exited[f.Name] = nil, true
	} else {
		delete(w.actors, f.Name)
	}
	return sent
}

// fall restarts a container's actor after the messages on their way. It carries out its order.
func (w *world) fall(name string) {
	w.send(delayedEvent(func() any {
		if !w.present(name) {
			return nil
		}
		if order := w.orders[name]; order != nil {
			w.sent(order)
		}
		return messages.ChildStarted{Name: name, Again: true}
	}))
}

// nextTime returns the time of the next event.
func (w *world) nextTime() time.Time {
	next := w.wakeAt
	if !next.After(w.now) {
		next = time.Time{}
	}
	return next
}

// brief keeps traces readable.
func brief(e Effect) any {
	switch e := e.(type) {
	case Tell:
		return fmt.Sprintf("%T", e.Msg)
	case OrderContainer:
		return fmt.Sprintf("%s %T", e.Name, e.Order)
	case UpdateContainer:
		return fmt.Sprintf("%s %T", e.Name, e.Order)
	default:
		return e
	}
}

func (w *world) fault(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// sent is the reaction of the other actors to a message.
func (w *world) sent(msg any) {
	switch m := msg.(type) {
	case messages.PodStatusChanged:
		w.checkProved(m.Status)
		w.checkNotOver(m)
		if w.deaf {
			w.deaf = false // the report is lost
			break
		}
		w.status, w.taken, w.waiting = m.Status, m.Generation, m.Waiting
		if w.watch != nil {
			w.watch(m.Status)
		}
	case messages.RecordEvent:
		w.records = append(w.records, m)
	case messages.GetDesired:
		w.send(w.desired())
	case messages.ReadPod:
		w.send(w.observed())
	case messages.MountVolumes:
		if w.noVolumes {
			break
		}
		w.mounted, w.foldersOut = true, false
		w.send(messages.VolumesMounted{UID: m.UID, Paths: map[string]string{}})
	case messages.UnmountVolumes:
		if m.Remove && w.watched != nil && len(w.watched.Containers) > 0 {
			w.fault("its folder is removed while the prober writes there")
		}
		for _, c := range w.containers {
			if lives(c) {
				w.fault("volumes are unmounted while %s runs", c.ID)
			}
		}
		w.send(delayedEvent(func() any {
			w.mounted, w.foldersOut = false, w.foldersOut || m.Remove
			return messages.VolumesUnmounted{UID: m.UID, Removed: m.Remove}
		}))
	case messages.PrepareClaims:
		w.claimed = true
		w.send(messages.ClaimsPrepared{UID: m.UID})
	case messages.ReleaseClaims:
		for _, s := range w.sandboxes {
			if s.Ready {
				w.fault("claims are released while sandbox %s is ready", s.ID)
			}
		}
		w.send(messages.ClaimsFailed{UID: m.UID, Reason: messages.Reason{Code: messages.ReasonReleaseClaims}, Release: true})
		w.send(delayedEvent(func() any {
			w.claimed = false
			return messages.ClaimsReleased{UID: m.UID}
		}))
	case messages.EnsurePodCgroup:
		w.grouped, w.groups = true, append(w.groups, m.Pod)
		w.checkGroup(m.Pod)
		w.send(messages.PodCgroupReady{UID: m.UID, Pod: m.Pod, Parent: "/kubepods/podu1"})
	case messages.RemovePodCgroup:
		for _, c := range w.containers {
			if lives(c) {
				w.fault("the cgroup is removed while %s runs", c.ID)
			}
		}
		w.send(delayedEvent(func() any {
			w.grouped = false
			return messages.PodCgroupRemoved{UID: m.UID}
		}))
	case messages.PullImage:
		w.holds = true
		if w.noImages {
			return
		}
		w.send(messages.ImageAwaited{Key: m.Key, Image: m.Image, Again: w.gave[m.Key],
			Reason: messages.Reason{Code: messages.ReasonPulling, Message: m.Image, Since: w.now}})
		w.send(messages.ImagePulled{Key: m.Key, Image: m.Image, Ref: m.Image, Again: w.gave[m.Key]})
		w.gave[m.Key] = true
	case messages.RunContainer:
		for _, v := range podspec.ImageVolumes(m.Pod, m.Container) {
			if m.Adopt == nil && m.ImageVolumes[v.Name] != v.Image.Reference {
				w.fault("%s is to run without the image of its volume %s: %v", m.Container.Name, v.Name, m.ImageVolumes)
			}
		}
		if w.present(m.Container.Name) {
			w.run(m)
		}
	case messages.StopContainer:
		if w.present(m.Name) {
			w.stop(m)
		}
	case messages.PodEnded:
		w.ended = &m
		if m.Gone && (len(w.containers)+len(w.sandboxes) > 0 || !w.foldersOut || w.grouped) {
			w.fault("it says that nothing is left of it, and %v, %v and its folder (removed: %v) or cgroup (%v) are",
				w.containers, w.sandboxes, w.foldersOut, w.grouped)
		}
		switch {
		case m.Released:
			if w.grouped || !w.foldersOut {
				w.fault("released with its folder (removed: %v) or cgroup (%v)", w.foldersOut, w.grouped)
			}
			w.objectGone = true
			w.send(w.desired())
		case !m.Gone:
			w.final = m.Status
			w.send(w.desired())
		}
	case messages.ForgetImages:
		w.holds = false
	case messages.WatchProbes:
		w.watchProbes(m)
	default:
		w.fault("nobody knows %T", msg)
	}
}

func (w *world) desired() messages.PodWanted {
	generation := 1 + w.edits
	if w.ending != nil {
		generation++
	}
	if w.final != nil || w.objectGone {
		generation += 2
	}
	return messages.PodWanted{Pod: w.pod, Generation: generation, Ending: w.ending, Final: w.final, Last: w.last, Fail: w.fail,
		ObjectGone: w.objectGone, NoNetwork: w.offline, Resized: w.resized}
}

// settle delivers all messages, in order, and advances the clock, until nothing happens for the period of an audit.
func (w *world) settle() {
	idle := 0
	for i := 0; idle < 3 && i < 5000; i++ {
		if w.ended != nil && w.ended.Gone && w.machine.Phase() == Finished {
			return // its actor would be stopped now
		}
		w.live()
		if len(w.pending) > 0 {
			m := w.pending[0]
			w.pending = w.pending[1:]
			w.step(m)
			continue
		}
		if w.probeOnce() {
			continue
		}
		if next := w.nextTime(); !next.IsZero() && next.Sub(w.now) < 10*time.Minute {
			w.now = next
			w.step(nil)
			continue
		}
		idle++
		w.now = w.now.Add(time.Minute)
		w.send(w.observed())
		if w.taken != w.desired().Generation { // the parent's sweep
			w.send(w.desired())
		}
	}
}

// edit changes the pod under its UID.
func (w *world) edit(change func(*v1.PodSpec)) {
	w.edits++
	w.pod = w.pod.DeepCopy()
	change(&w.pod.Spec)
	w.send(w.desired())
}

// network adds or removes the network.
func (w *world) network(there bool) {
	w.edits++
	w.offline = nil
	if !there {
		w.offline = &messages.Reason{Code: messages.ReasonNetworkNotReady, Message: "network is not ready: no"}
	}
	w.send(w.desired())
}

// preempt makes the node end the pod.
func (w *world) preempt() {
	w.edits++
	w.fail = &messages.PodFailure{Reason: messages.ReasonPreempting, Message: "make room", Disruption: "it had to"}
	w.send(w.desired())
}

// restart kills the pod's actor: the new machine has no state.
func (w *world) restart() {
	w.machine = NewMachine(string(w.pod.UID), w.set)
	w.pending, w.wakeAt = nil, time.Time{}
	clear(w.exited)
	clear(w.actors)
	w.step(nil)
}
