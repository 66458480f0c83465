package status

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/playlet-dev/playlet/messages"
)

func TestNothingIsWrittenBeforeBothSidesAreKnown(t *testing.T) {
	p := object("web", "u")
	b := newMachine("node", func() float64 { return 1 })
	b.setDesired(desired(p, statusOf(true, 0)))
	none(t, b, noon)
	b.observe(messages.APIPodsObserved{Pods: []*v1.Pod{p}})
	if j := only(t, b, noon); j.verb != patchStatus || j.uid != "u" || j.class != readiness {
		t.Errorf("%+v", j)
	}
	b = aMachine(p)
	b.setDesired(desired(p, nil))
	none(t, b, noon)
}

func TestWhatIsAsWantedIsNotWritten(t *testing.T) {
	m := newModel()
	m.put(object("web", "u"))
	p := m.list()[0]
	b := aMachine(p)
	b.setDesired(desired(p, statusOf(true, 0)))
	j := only(t, b, noon)
	b.setDesired(desired(p, statusOf(true, 0))) // meanwhile, and another object of the same content
	none(t, b, noon)
	b.handleResult(noon, m.answered(t, j))
	none(t, b, noon)
	// The earlier object, with another client's change, is observed late.
	late := p.DeepCopy()
	late.Labels = map[string]string{"a": "b"}
	b.observe(messages.APIPodsObserved{Pods: []*v1.Pod{late}, At: noon})
	none(t, b, noon)
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})
	none(t, b, noon)
	// The state of a restored API server is accepted after a while.
	b.handleResult(noon, m.answered(t, &job{key: j.key, verb: patchStatus, namespace: "default", name: "web", uid: "u", from: j.from,
		to: j.to}))
	b.observe(messages.APIPodsObserved{Pods: []*v1.Pod{p}, At: noon.Add(believed)})
	none(t, b, noon)
	b.observe(messages.APIPodsObserved{Pods: []*v1.Pod{p}, At: noon.Add(believed + 1)})
	only(t, b, noon)
}

// The steps of a starting pod are written at most once a second. Its readiness is written at once, together with them.
func TestStepsOfAStart(t *testing.T) {
	m := newModel()
	m.put(object("web", "u"))
	p := m.list()[0]
	pending := statusOf(false, 0)
	pending.Phase, pending.PodIP, pending.PodIPs, pending.ContainerStatuses = v1.PodPending, "", nil,
		[]v1.ContainerStatus{waiting("main")}
	further := pending.DeepCopy()
	further.PodIP, further.PodIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}}
	b := aMachine(p)
	b.setDesired(desired(p, pending))
	quiet := func(now time.Time, again time.Duration) {
		t.Helper()
		if jobs, next := b.take(now); len(jobs) != 0 || !next.Equal(noon.Add(again)) {
			t.Fatalf("%d writes, and again after %s", len(jobs), next.Sub(noon))
		}
	}
	quiet(noon, stepDelay)
	b.setDesired(desired(p, further))
	quiet(noon.Add(stepDelay-1), stepDelay)
	j := only(t, b, noon.Add(stepDelay))
	if j.to.PodIP == "" {
		t.Error("an older step is written")
	}
	third := further.DeepCopy()
	third.ContainerStatuses[0].State.Waiting.Message = "another step"
	b.setDesired(desired(p, third)) // while it is being written
	b.handleResult(noon.Add(stepDelay), m.answered(t, j))
	quiet(noon.Add(stepDelay), 2*stepDelay)
	b.setDesired(desired(p, statusOf(true, 0)))
	if j := only(t, b, noon.Add(stepDelay)); j.class != readiness {
		t.Errorf("%+v", j)
	}
}

// The wait for the next step of a start grows with the number of starting pods. A pod that cannot start does not wait longer.
func TestStepsOfManyStarts(t *testing.T) {
	const pods = 40
	m := newModel()
	b := newMachine("node", func() float64 { return 1 })
	for i := range pods {
		m.put(object(fmt.Sprintf("p%02d", i), fmt.Sprintf("u%02d", i)))
	}
	list := m.list()
	b.observe(messages.APIPodsObserved{Pods: list, At: noon})
	pending := statusOf(false, 0)
	pending.Phase, pending.ContainerStatuses = v1.PodPending, []v1.ContainerStatus{waiting("main")}
	failing := pending.DeepCopy()
	failing.ContainerStatuses[0].State.Waiting.Reason = "ImagePullBackOff"
	b.setDesired(desired(list[0], failing))
	for _, p := range list[1:] {
		b.setDesired(desired(p, pending))
	}
	none(t, b, noon)
	j := only(t, b, noon.Add(stepDelay))
	if j.name != list[0].Name {
		t.Errorf("got a write of %s, want the pod that cannot start", j.name)
	}
	b.handleResult(noon.Add(stepDelay), m.answered(t, j))
	none(t, b, noon.Add(lullOf(pods-1)-1))
	if jobs, _ := b.take(noon.Add(lullOf(pods - 1))); len(jobs) != writers {
		t.Errorf("got %d writes after the wait, want %d", len(jobs), writers)
	}
	if lullOf(1) != stepDelay || lullOf(pods) != 5*stepDelay || lullOf(10*pods) != burstDelay {
		t.Errorf("got waits %v, %v, %v", lullOf(1), lullOf(pods), lullOf(10*pods))
	}
}

// The wait stays for burstDelay after most pods of a burst are ready, and falls then.
func TestStepsOfManyStarts_EndOfBurst(t *testing.T) {
	const pods = 40
	m := newModel()
	b := newMachine("node", func() float64 { return 1 })
	for i := range pods {
		m.put(object(fmt.Sprintf("p%02d", i), fmt.Sprintf("u%02d", i)))
	}
	list := m.list()
	b.observe(messages.APIPodsObserved{Pods: list, At: noon})
	pending := statusOf(false, 0)
	pending.Phase, pending.ContainerStatuses = v1.PodPending, []v1.ContainerStatus{waiting("main")}
	for _, p := range list[1:] {
		b.setDesired(desired(p, pending))
	}
	none(t, b, noon)
	for _, p := range list[1 : pods-1] {
		b.setDesired(desired(p, nil))
	}
	late := noon.Add(lullOf(pods-1) - 1)
	b.setDesired(desired(list[0], pending))
	none(t, b, late)
	if j := only(t, b, noon.Add(lullOf(pods-1))); j.name != list[pods-1].Name {
		t.Errorf("got a write of %s, want the oldest pod of the burst", j.name)
	}
	if jobs, again := b.take(late.Add(2 * stepDelay)); len(jobs) > 0 || !again.Equal(late.Add(lullOf(pods-1))) {
		t.Errorf("got %d writes and the next at %v, want none before %v", len(jobs), again, late.Add(lullOf(pods-1)))
	}
	b.setDesired(desired(list[0], nil))
	none(t, b, noon.Add(burstDelay-1))
	b.setDesired(desired(list[0], pending))
	if jobs, again := b.take(noon.Add(burstDelay - 1)); len(jobs) > 0 || !again.Equal(noon.Add(burstDelay)) {
		t.Errorf("got %d writes and the next at %v, want the end of the burst, %v", len(jobs), again, noon.Add(burstDelay))
	}
	if jobs, again := b.take(noon.Add(burstDelay)); len(jobs) > 0 || !again.Equal(noon.Add(burstDelay-1+stepDelay)) {
		t.Errorf("got %d writes and the next at %v, want a wait of %v", len(jobs), again, stepDelay)
	}
}

// In a burst, the end of an init container waits for the next container's start, and for no more. A pod whose next container
// starts at once has one write.
func TestStepsOfInitContainers(t *testing.T) {
	const pods = 40
	m := newModel()
	b := newMachine("node", func() float64 { return 1 })
	for i := range pods {
		m.put(object(fmt.Sprintf("p%02d", i), fmt.Sprintf("u%02d", i)))
	}
	list := m.list()
	b.observe(messages.APIPodsObserved{Pods: list, At: noon})
	running := v1.ContainerStatus{Name: "second", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	step := func(p *v1.Pod, inits ...v1.ContainerStatus) {
		s := statusOf(false, 0)
		s.Phase, s.InitContainerStatuses, s.ContainerStatuses = v1.PodPending, inits, []v1.ContainerStatus{waiting("main")}
		b.setDesired(desired(p, s))
	}
	for _, p := range list {
		step(p, waiting("first"), waiting("second"))
	}
	none(t, b, noon)
	slow, quick := list[0], list[1]
	ended := noon.Add(2 * time.Second)
	step(slow, exited("first", 0), waiting("second"))
	step(quick, exited("first", 0), waiting("second"))
	none(t, b, ended)
	step(slow, exited("first", 0), running)
	b.setDesired(desired(quick, statusOf(true, 0)))
	if j := only(t, b, ended); j.name != quick.Name {
		t.Errorf("got a write of %s, want the pod that is ready", j.name)
	}
	none(t, b, ended.Add(stepDelay-1))
	j := only(t, b, ended.Add(stepDelay))
	if j.name != slow.Name || j.to.InitContainerStatuses[1].State.Running == nil {
		t.Fatalf("got %+v, want the pod with the ended init container, and the next one running", j)
	}
	step(slow, exited("first", 0), exited("second", 0))
	b.handleResult(ended.Add(stepDelay), m.answered(t, j))
	none(t, b, ended.Add(stepDelay))
	none(t, b, ended.Add(2*stepDelay-1))
	if j := only(t, b, ended.Add(2*stepDelay)); j.name != slow.Name {
		t.Errorf("got a write of %s, want the pod with the second ended init container", j.name)
	}
}

// The steps of a deletion wait for the final status, which is written at once.
func TestStepsOfAnEnd(t *testing.T) {
	m := newModel()
	p := object("web", "u")
	p.Status = *merge(p, statusOf(true, 0), noon)
	p.DeletionTimestamp, p.Finalizers = new(at(0)), []string{"example.com/hold"}
	m.put(p)
	b := aMachine(m.list()...)
	unready := statusOf(false, 0)
	unready.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
		Running: &v1.ContainerStateRunning{}}}}
	b.setDesired(desired(p, unready))
	j := only(t, b, noon)
	if j.class != readiness {
		t.Errorf("a container that runs and is no longer ready: got %+v, want a change of readiness", j)
	}
	b.handleResult(noon, m.answered(t, j))
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})
	ended := statusOf(false, 0)
	ended.ContainerStatuses = []v1.ContainerStatus{exited("main", 143)}
	b.setDesired(desired(p, ended))
	if jobs, again := b.take(noon); len(jobs) > 0 || !again.Equal(noon.Add(stepDelay)) {
		t.Errorf("got %d writes and the next at %v, want none before %v", len(jobs), again, noon.Add(stepDelay))
	}
	w := desired(p, ended)
	w.Over = true
	b.setDesired(w)
	if j := only(t, b, noon); j.class != ending || j.to.Phase != v1.PodFailed {
		t.Errorf("got %+v, want the final status", j)
	}
}

// A deleted pod without running containers is written as unready a second after its sandbox was stopped, in a burst too.
func TestStepsOfManyEnds(t *testing.T) {
	const pods = 40
	m := newModel()
	b := newMachine("node", func() float64 { return 1 })
	for i := range pods {
		p := object(fmt.Sprintf("p%02d", i), fmt.Sprintf("u%02d", i))
		p.Status = *merge(p, statusOf(true, 0), noon)
		p.DeletionTimestamp, p.Finalizers = new(at(0)), []string{"example.com/hold"}
		m.put(p)
	}
	list := m.list()
	b.observe(messages.APIPodsObserved{Pods: list, At: noon})
	ended := func(network v1.ConditionStatus) *v1.PodStatus {
		s := statusOf(false, 0)
		s.ContainerStatuses = []v1.ContainerStatus{exited("main", 143)}
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: network})
		return s
	}
	for _, p := range list {
		b.setDesired(desired(p, ended(v1.ConditionTrue)))
	}
	none(t, b, noon.Add(stepDelay))
	b.setDesired(desired(list[3], ended(v1.ConditionFalse)))
	stopped := noon.Add(2 * stepDelay)
	none(t, b, stopped)
	none(t, b, stopped.Add(stepDelay-1))
	if j := only(t, b, stopped.Add(stepDelay)); j.name != list[3].Name || ready(j.to) {
		t.Errorf("got a write of %s, want the pod without a sandbox as unready", j.name)
	}
}

// An API server that drops a field does not get it for ever.
func TestAFieldThatIsDropped(t *testing.T) {
	m := newModel()
	m.put(object("web", "u"))
	b := aMachine(m.list()...)
	b.setDesired(desired(m.list()[0], statusOf(true, 0)))
	write := func() answer {
		a := m.answered(t, only(t, b, noon))
		a.pod = a.pod.DeepCopy()
		a.pod.Status.HostIPs = nil
		b.handleResult(noon, a)
		return a
	}
	write()
	a := write() // another client may have removed it
	none(t, b, noon)
	b.observe(messages.APIPodsObserved{Pods: []*v1.Pod{a.pod}, At: noon})
	none(t, b, noon)
	b.setDesired(desired(a.pod, statusOf(false, 0)))
	only(t, b, noon)
}

func TestTheOrderOfWrites(t *testing.T) {
	var pods []*v1.Pod
	b := newMachine("node", func() float64 { return 1 })
	for i := range 20 {
		p := object(fmt.Sprintf("p%02d", i), fmt.Sprintf("u%02d", i))
		p.Status = *merge(p, statusOf(true, 0), noon)
		if i < 3 {
			p.DeletionTimestamp = new(at(0))
		}
		pods = append(pods, p)
	}
	b.observe(messages.APIPodsObserved{Pods: pods, At: noon})
	for i := 19; i >= 10; i-- { // older pods change later
		b.setDesired(desired(pods[i], statusOf(true, 1)))
		b.refresh(noon.Add(time.Duration(20-i) * time.Second))
	}
	for i := range 10 {
		w := desired(pods[i], statusOf(i%2 == 0, 1))
		w.Over = i < 3
		b.setDesired(w)
	}
	jobs, again := b.take(noon.Add(time.Minute))
	var order []string
	for _, j := range jobs {
		order = append(order, j.name)
	}
	if got := strings.Join(order, " "); got != "p00 p01 p02 p03 p05 p07 p09 p19" || !again.IsZero() {
		t.Errorf("the first %d are %s, again at %v", writers, got, again)
	}
	none(t, b, noon.Add(time.Minute))
	b.handleResult(noon, answer{job: jobs[0], outcome: gone})
	if j := only(t, b, noon); j.name != "p18" {
		t.Errorf("then %s", j.name)
	}
}

func TestTheEndOfAPod(t *testing.T) {
	m := newModel()
	p := object("web", "u")
	p.DeletionTimestamp, p.Finalizers = new(at(0)), []string{"example.com/hold"}
	m.put(p)
	b := aMachine(m.list()...)
	w := desired(p, statusOf(true, 0))
	w.Over = true
	b.setDesired(w)
	j := only(t, b, noon)
	if j.verb != patchStatus || j.to.Phase != v1.PodFailed || j.class != ending {
		t.Fatalf("first %+v", j)
	}
	b.handleResult(noon, m.answered(t, j))
	j = only(t, b, noon)
	if j.verb != deletePod || j.uid != "u" {
		t.Fatalf("then %+v", j)
	}
	b.handleResult(noon, m.answered(t, j))
	none(t, b, noon)
	// A finalizer holds the object: it stays observed, and is not deleted again at once.
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})
	jobs, again := b.take(noon)
	if len(jobs) > 0 || !again.After(noon) {
		t.Fatalf("%v, again at %v", jobs, again)
	}
	if j = only(t, b, again); j.verb != deletePod {
		t.Errorf("%+v", j)
	}
	b.handleResult(again, failing(j, code(404)))
	b.observe(messages.APIPodsObserved{At: noon})
	b.replaceDesired(messages.PodStatusesWanted{})
	none(t, b, again)
	if len(b.lines) != 0 {
		t.Errorf("%d lines are left", len(b.lines))
	}
}

// If the API server rejects the final status for good, the pod is deleted without it. Nothing of it is left, and its name is
// needed.
func TestAnEndWhoseStatusIsRefused(t *testing.T) {
	p := object("web", "u")
	p.DeletionTimestamp = new(at(0))
	b := aMachine(p)
	w := desired(p, statusOf(true, 0))
	w.Over = true
	b.setDesired(w)
	now := noon
	for range finalTries {
		j := only(t, b, now)
		if j.verb != patchStatus {
			t.Fatalf("%+v", j)
		}
		b.handleResult(now, failing(j, code(422)))
		_, now = b.take(now)
	}
	if j := only(t, b, now); j.verb != deletePod || j.uid != "u" {
		t.Errorf("%+v", j)
	}
}

// The page of a proxy before the API server, with the code 404, is no answer about a pod: all writes wait, and then go on. Not
// even many such answers let a pod's object be deleted without its final status.
func TestMachine_NotFoundOfAProxy(t *testing.T) {
	p := object("web", "u")
	p.DeletionTimestamp = new(at(0))
	b := aMachine(p)
	w := desired(p, statusOf(true, 0))
	w.Over = true
	b.setDesired(w)
	page := code(404).(*apierrors.StatusError)
	page.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}}
	now := noon
	for range 2 * finalTries {
		j := only(t, b, now)
		if j.verb != patchStatus {
			t.Fatalf("got %+v, want another patch of the status", j)
		}
		b.handleResult(now, failing(j, page))
		_, now = b.take(now)
	}
	b.handleResult(now, failing(only(t, b, now), nil))
	if b.server.failures != 0 {
		t.Errorf("after a success the API server counts as away until %s", b.server.until)
	}
}

// A proxy reports once that a pod is absent, wrongly. Its statuses are written again after a while.
func TestAFalseNotFound(t *testing.T) {
	p := object("web", "u")
	b := aMachine(p)
	b.setDesired(desired(p, statusOf(true, 0)))
	b.handleResult(noon, failing(only(t, b, noon), code(404)))
	none(t, b, noon)
	later := noon.Add(believed + time.Second)
	b.observe(messages.APIPodsObserved{Pods: []*v1.Pod{p}, At: later})
	if j := only(t, b, later); j.verb != patchStatus {
		t.Errorf("%+v", j)
	}
}

// The API server was restored to a state before the deletion of a pod that has ended here. The pod must run again. Until its
// state is known, nothing is written and, above all, its object is not removed. The same holds if the deletion is not
// observed yet.
func TestADeletionThatWasUndone(t *testing.T) {
	for _, over := range []bool{false, true} {
		alive, dying := object("web", "u"), object("web", "u")
		dying.DeletionTimestamp, alive.ResourceVersion = new(at(0)), "2"
		final := statusOf(false, 0)
		final.Phase = v1.PodSucceeded
		w := desired(dying, final)
		w.Over = over
		b := aMachine(alive)
		b.setDesired(w)
		none(t, b, noon)
		b.setDesired(desired(alive, statusOf(true, 0)))
		if j := only(t, b, noon); j.verb != patchStatus || j.to.Phase != v1.PodRunning {
			t.Errorf("over %v: of the pod that is back is told %+v", over, j)
		}

		b = aMachine(object("web", "u"))
		b.setDesired(w)
		none(t, b, noon)
		b.observe(messages.APIPodsObserved{Pods: []*v1.Pod{dying}, At: noon})
		b.refresh(noon)
		if j := only(t, b, noon.Add(stepDelay)); j.verb != patchStatus || j.to.Phase != v1.PodSucceeded {
			t.Errorf("over %v: of the deleted pod is told %+v", over, j)
		}
	}
}

func TestWhatAnAnswerMeans(t *testing.T) {
	invalid := apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web",
		field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "u", "immutable")})
	slow := code(429)
	var status *apierrors.StatusError
	if errors.As(slow, &status) {
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 7}
	}
	for _, c := range []struct {
		verb verb
		err  error
		want outcome
		wait time.Duration
	}{
		{patchStatus, nil, done, 0}, {patchStatus, code(404), gone, 0}, {patchStatus, code(409), conflict, 0},
		{patchStatus, invalid, gone, 0},
		{patchStatus, code(422), refused, 0}, {patchStatus, code(403), refused, 0}, {patchStatus, code(500), broken, 0},
		{patchStatus, code(401), unavailable, 0}, {patchStatus, code(503), unavailable, 0},
		{patchStatus, slow, unavailable, 7 * time.Second},
		{patchStatus, &net.OpError{Op: "dial", Err: errors.New("refused")}, unavailable, 0},
		{patchStatus, errors.New("EOF"), unavailable, 0},
		{deletePod, code(409), conflict, 0}, {deletePod, code(404), gone, 0}, {deleteMirror, code(403), refused, 0},
		{createMirror, code(404), refused, 0}, {createMirror, apierrors.NewAlreadyExists(podResource, "web"), conflict, 0},
	} {
		if got, wait := read(c.verb, c.err); got != c.want || wait != c.wait {
			t.Errorf("%s, %v: %s and %s, want %s and %s", c.verb, c.err, got, wait, c.want, c.wait)
		}
	}
}

// A missing namespace is retried often, however long it is absent. A forbidden write is retried less often.
func TestAMirrorPodWaitsForItsNamespace(t *testing.T) {
	for answer, most := range map[int32]time.Duration{404: 30 * time.Second, 403: refusedMost} {
		b := aMachine()
		b.setDesired(staticWanted(static("web", "h1"), nil))
		now, wait := noon, time.Duration(0)
		for range 20 {
			b.handleResult(now, failing(only(t, b, now), code(answer)))
			_, again := b.take(now)
			wait, now = again.Sub(now), again
		}
		if wait > most || wait < most/3 {
			t.Errorf("after %d it waits %s, want %s at most", answer, wait, most)
		}
	}
}

// While the API server accepts no writes, one write at a time is tried. The newest status is written then.
func TestAnAPIServerThatIsAway(t *testing.T) {
	m := newModel()
	for i := range 20 {
		m.put(object(fmt.Sprintf("p%02d", i), fmt.Sprintf("u%02d", i)))
	}
	b := aMachine(m.list()...)
	for _, p := range m.list() {
		b.setDesired(desired(p, statusOf(true, 0)))
	}
	jobs, _ := b.take(noon)
	for _, j := range jobs {
		b.handleResult(noon, failing(j, errors.New("connection refused")))
	}
	now := noon
	for range 20 {
		jobs, again := b.take(now)
		if len(jobs) > 0 {
			t.Fatal("tried at once again")
		}
		if again.Sub(now) > gateMost || !again.After(now) {
			t.Fatalf("tried again after %s", again.Sub(now))
		}
		now = again
		b.handleResult(now, failing(only(t, b, now), code(503)))
	}
	if got := b.troubles(); len(got) != 1 || got[0].Pod != "" || !strings.Contains(got[0].String(), "said no") ||
		!got[0].Since.Equal(noon) {
		t.Errorf("health says %v", got)
	}
	b.setDesired(desired(m.pods["default/p00"], statusOf(true, 9)))
	written := map[string]int{}
	for {
		jobs, again := b.take(now)
		for _, j := range jobs {
			written[j.name]++
			b.handleResult(now, m.answered(t, j))
		}
		if len(jobs) == 0 && again.IsZero() {
			break
		}
		now = now.Add(time.Second)
	}
	if len(written) != 20 || written["p00"] != 1 || m.pods["default/p00"].Status.ContainerStatuses[0].RestartCount != 9 ||
		len(b.troubles()) != 0 {
		t.Errorf("written %v, troubles %v", written, b.troubles())
	}
}

// A failing write of one pod does not delay other pods. It is retried with increasing delay.
func TestOnePodThatIsRefused(t *testing.T) {
	m := newModel()
	m.put(object("bad", "b"))
	m.put(object("good", "g"))
	b := aMachine(m.list()...)
	for _, p := range m.list() {
		b.setDesired(desired(p, statusOf(true, 0)))
	}
	now, tries := noon, 0
	for now.Before(noon.Add(time.Hour)) {
		jobs, again := b.take(now)
		for _, j := range jobs {
			if j.name == "good" {
				b.handleResult(now, m.answered(t, j))
				continue
			}
			tries++
			b.handleResult(now, failing(j, code(403)))
		}
		if len(jobs) == 0 {
			now = again
		}
	}
	if tries < 12 || tries > 30 {
		t.Errorf("tried %d times within the hour", tries)
	}
	if got := b.troubles(); len(got) != 1 || got[0].Pod != "default/bad" || !got[0].Since.Equal(noon) ||
		!ready(&m.pods["default/good"].Status) {
		t.Errorf("health says %v", got)
	}
	b.replaceDesired(messages.PodStatusesWanted{})
	none(t, b, now)
	if len(b.troubles()) != 0 {
		t.Error("it is not wanted any more, and health still names it")
	}
}

// A conflict waits for the next observation, and is retried at once then.
func TestAConflict(t *testing.T) {
	m := newModel()
	m.put(object("web", "u"))
	b := aMachine(m.list()...)
	b.setDesired(desired(m.list()[0], statusOf(true, 0)))
	b.handleResult(noon, failing(only(t, b, noon), code(409)))
	none(t, b, noon)
	m.put(m.list()[0])
	b.observe(messages.APIPodsObserved{Pods: m.list(), At: noon})
	only(t, b, noon)
}

// BenchmarkOneOfManyChanges measures the change of one object among many unchanged ones.
func BenchmarkOneOfManyChanges(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint("pods=", n), func(b *testing.B) {
			machine, list := newMachine("node", func() float64 { return 0 }), make([]*v1.Pod, n)
			for i := range list {
				list[i] = object(fmt.Sprint("web-", i), fmt.Sprint("u", i))
			}
			machine.observe(messages.APIPodsObserved{Pods: list, At: noon})
			machine.take(noon)
			for b.Loop() {
				list = slices.Clone(list)
				list[n/2] = list[n/2].DeepCopy()
				machine.observe(messages.APIPodsObserved{Pods: list, At: noon})
				machine.take(noon)
				machine.troubles()
			}
		})
	}
}

// Statuses that wait or are being written count as unwritten, unless the API server takes none.
func TestMachine_Unwritten(t *testing.T) {
	m := newModel()
	m.put(object("web", "u"))
	b := aMachine(m.list()[0])
	want := func(n int64, when string) {
		t.Helper()
		if got := b.unwritten(); got != n {
			t.Errorf("%s: got %d unwritten, want %d", when, got, n)
		}
	}
	want(0, "at first")
	b.setDesired(desired(m.list()[0], statusOf(true, 0)))
	b.refresh(noon)
	want(1, "waiting")
	j := only(t, b, noon)
	want(1, "in progress")
	b.handleResult(noon, failing(j, &net.OpError{Op: "dial", Err: errors.New("refused")}))
	b.refresh(noon)
	want(0, "without an API server")
	j = only(t, b, noon.Add(time.Minute))
	b.handleResult(noon.Add(time.Minute), m.answered(t, j))
	b.refresh(noon.Add(time.Minute))
	want(0, "written")
}
