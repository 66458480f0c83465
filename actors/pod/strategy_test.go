package pod

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/exits"
)

// The strategy of a container's actor follows from the restart policies, the rules (KEP-5307) and the role.
func TestStrategyOfAContainer(t *testing.T) {
	const restarts, stops, escalates = messages.ExitRestarts, messages.ExitStops, messages.ExitEscalates
	rules := []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42},
		}}}
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	for _, c := range []struct {
		name string
		pod  v1.RestartPolicy
		init bool
		own  *v1.ContainerRestartPolicy
		rule []v1.ContainerRestartRule
		want exits.RestartType
		// the verdicts on the exit codes 0, 1 and 42
		says [3]messages.ExitVerdict
	}{
		{"regular, Always", v1.RestartPolicyAlways, false, nil, nil, exits.Permanent,
			[3]messages.ExitVerdict{restarts, restarts, restarts}},
		{"regular, OnFailure", v1.RestartPolicyOnFailure, false, nil, nil, exits.Transient,
			[3]messages.ExitVerdict{stops, restarts, restarts}},
		{"regular, Never", v1.RestartPolicyNever, false, nil, nil, exits.Temporary,
			[3]messages.ExitVerdict{stops, stops, stops}},
		{"regular, its own rules", v1.RestartPolicyAlways, false, &never, rules, exits.Temporary,
			[3]messages.ExitVerdict{stops, stops, restarts}},
		{"init, Always", v1.RestartPolicyAlways, true, nil, nil, exits.Transient,
			[3]messages.ExitVerdict{stops, restarts, restarts}},
		{"init, Never", v1.RestartPolicyNever, true, nil, nil, exits.Temporary,
			[3]messages.ExitVerdict{stops, escalates, escalates}},
		{"init, its own rules", v1.RestartPolicyAlways, true, &never, rules, exits.Temporary,
			[3]messages.ExitVerdict{stops, escalates, restarts}},
		{"sidecar", v1.RestartPolicyNever, true, &always, nil, exits.Permanent,
			[3]messages.ExitVerdict{restarts, restarts, restarts}},
	} {
		pod, name := testPod(c.pod, 0, 1), "c0"
		spec := &pod.Spec.Containers[0]
		if c.init {
			pod, name = testPod(c.pod, 1, 1), "init0"
			spec = &pod.Spec.InitContainers[0]
		}
		spec.RestartPolicy, spec.RestartPolicyRules = c.own, c.rule
		m := newReady(pod).machine
		s := m.strategy(m.Container(name))
		if s.Restart != c.want {
			t.Errorf("%s: %s", c.name, s.Restart)
		}
		for i, code := range []int32{0, 1, 42} {
			end := messages.ContainerEnded{Fact: messages.ContainerFact{ID: "one", Name: name, State: messages.ContainerExited,
				ExitCode: code}}
			if got := s.Verdict(end.Exit()); got != c.says[i] {
				t.Errorf("%s: exit code %d is answered with %s", c.name, code, got)
			}
		}
	}
}

// The status of an ended container has the time of its restart: immediate at first, then with the kubelet's back-off.
func TestStatus_BackOff(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, 0, 1))
	w.exit = func(_ string, attempt uint32) (int32, bool) { return 1, attempt < 4 }
	var waits []time.Duration
	w.step(nil)
	for range 400 {
		if len(w.pending) > 0 {
			m := w.pending[0]
			w.pending = w.pending[1:]
			w.step(m)
			if _, ok := m.(messages.ChildExited); ok {
				var wait time.Duration
				if r := w.machine.starts().Hold(w.machine.Container("c0")); r != nil {
					wait = r.RetryAt.Sub(w.now).Round(time.Second)
				}
				waits = append(waits, wait)
			}
			continue
		}
		w.live()
		if next := w.nextTime(); len(w.pending) == 0 && !next.IsZero() {
			w.now = next
			w.step(nil)
		}
	}
	check(t, w)
	if want := []time.Duration{0, 10 * time.Second, 20 * time.Second, 40 * time.Second}; !slices.Equal(waits, want) {
		t.Errorf("got the waits %v, want %v", waits, want)
	}
}

// A container that does not answer may have lost its actor: each repeated order starts the actor if necessary.
func TestARepeatedStartHasAnActor(t *testing.T) {
	w := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	m := w.machine
	c := m.Container("c0")
	c.Enter(messages.StageStarting)
	m.answered("run", c.Name)
	for range 2 {
		m.fx = nil
		m.sendRun(c)
		if len(effects[OrderContainer](m.fx)) != 1 {
			t.Errorf("got effects %+v, want an order", m.fx)
		}
		m.now = m.now.Add(m.Set.AnswerTimeout)
	}
}

// An edit of the image while a container is being started takes back the order: after a panic, its actor must not start the old
// image.
func TestOrder_TakenBackByAnEdit(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	a.hears(pulled("c0", "image"))
	edited := a.machine.Pod.DeepCopy()
	edited.Labels = map[string]string{"a": "b"}
	a.hears(messages.PodWanted{Pod: edited, Generation: 2})
	if run, ok := a.machine.Container("c0").Sent.(messages.RunContainer); !ok || run.Container.Image != "image" {
		t.Fatalf("after a new label the order is %+v, want the one before", a.machine.Container("c0").Sent)
	}
	edited = edited.DeepCopy()
	edited.Spec.Containers[0].Image = "image2"
	a.take()
	a.hears(messages.PodWanted{Pod: edited, Generation: 3})
	updates := effects[UpdateContainer](a.take())
	if len(updates) != 1 || updates[0].Order != nil {
		t.Fatalf("got the updates %+v after a new image, want one without an order", updates)
	}
	a.hears(messages.ChildStarted{Name: "c0", Again: true}, pulled("c0", "image2"))
	a.observes(a.sandboxFacts())
	runs := sentOf[messages.RunContainer](a.take())
	if len(runs) != 1 || runs[0].Container.Image != "image2" || runs[0].Attempt != 0 {
		t.Errorf("got the orders %+v after the restart, want one with the new image", runs)
	}
}

// A restarted actor has the order to stop its container. The pod does not repeat it at once: a second stop with less time cuts
// off the pre-stop hook that the first one has begun.
func TestOrder_StopIsNotRepeated(t *testing.T) {
	a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
	a.hears(pulled("c0", "image"), started(madeIn(a, "c0", messages.ContainerRunning)))
	a.hears(messages.PodWanted{Pod: a.machine.Pod, Generation: 2, Ending: &messages.Ending{}})
	if n := len(sentOf[messages.StopContainer](a.take())); n != 1 {
		t.Fatalf("got %d orders to stop, want 1", n)
	}
	a.passes(3 * time.Second)
	a.hears(messages.ChildStarted{Name: "c0", Again: true})
	if orders := sentOf[messages.StopContainer](a.take()); len(orders) > 0 {
		t.Errorf("after a restart of the actor got the orders %+v, want none", orders)
	}
	a.passes(a.machine.Set.AnswerTimeout)
	if n := len(sentOf[messages.StopContainer](a.take())); n != 1 {
		t.Errorf("without an answer got %d orders, want 1", n)
	}
}

// While the machine shuts down, no signal waits for the signals of other pods.
func TestOrder_SignalsOfAShutdown(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		for reason, atOnce := range map[string]bool{messages.ReasonTerminated: true, "Evicted": false} {
			a := newReady(testPod(v1.RestartPolicyAlways, 0, 1))
			a.hears(pulled("c0", "image"), started(madeIn(a, "c0", messages.ContainerRunning)))
			w := messages.PodWanted{Pod: a.machine.Pod, Generation: 2}
			if deleted { // before the shutdown
				w.Ending = &messages.Ending{}
				a.hears(w)
			}
			a.take()
			w.Generation, w.Fail = 3, &messages.PodFailure{Reason: reason, Grace: new(int64(1))}
			a.hears(w)
			stops := sentOf[messages.StopContainer](a.take())
			if len(stops) != 1 || stops[0].AtOnce != atOnce {
				t.Errorf("%s, deleted before %t: got the orders %+v, want one, at once %t", reason, deleted, stops, atOnce)
			}
		}
	}
}
