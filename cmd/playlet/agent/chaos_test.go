package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// spot is one kind of message at one kind of actor: a place to kill.
type spot struct {
	kind    supervisors.Kind
	message string
}

func (s spot) String() string { return string(s.kind) + "/" + s.message }

// watcher records every spot there is, and every API object that is shared by pointer, as it was when it was first
// told.
type watcher struct {
	mu     sync.Mutex
	seen   map[spot]int
	losing map[spot]bool // where a message came that can be lost
	shared map[*v1.Pod]*v1.Pod
}

func (w *watcher) Before(d supervisors.Delivery) supervisors.Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[spot{d.Kind, d.MessageKind()}]++
	if d.Droppable() {
		w.losing[spot{d.Kind, d.MessageKind()}] = true
	}
	if m, ok := d.Message.(messages.SourcePodsWanted); ok {
		for _, p := range m.Pods {
			if w.shared[p] == nil {
				w.shared[p] = p.DeepCopy()
			}
		}
	}
	return supervisors.Verdict{}
}

// checkShared fails where an object that many share was written to.
func (w *watcher) checkShared(t *testing.T) {
	t.Helper()
	if len(w.shared) == 0 {
		t.Error("no object was shared")
	}
	for p, was := range w.shared {
		if !equality.Semantic.DeepEqual(p, was) {
			t.Errorf("pod %s was changed after it was told", was.Name)
		}
	}
}

func (w *watcher) After(supervisors.Delivery) supervisors.Verdict { return supervisors.Verdict{} }

// strike is a fault at the first message of one spot: its actor panics before or after the message is handled, the message is
// lost, or the whole agent is killed.
type strike struct {
	spot   spot
	manner string
}

func (s strike) String() string { return s.spot.String() + "/" + s.manner }

// strikes are those at all that was seen of these kinds of actors, in these manners.
func (w *watcher) strikes(kinds []supervisors.Kind, manners ...string) (all []strike) {
	for s := range w.seen {
		for _, manner := range manners {
			if slices.Contains(kinds, s.kind) && (manner != "lost" || w.losing[s]) {
				all = append(all, strike{s, manner})
			}
		}
	}
	return all
}

// onDays gives each strike a day. With the race detector, under which a day is dear, several share one.
func onDays(t *testing.T, strikes []strike, day func(*testing.T, []strike)) {
	slices.SortFunc(strikes, func(a, b strike) int { return strings.Compare(a.String(), b.String()) })
	days := len(strikes)
	if underRace {
		days = (len(strikes) + 3) / 4
	}
	t.Logf("%d strikes on %d days", len(strikes), days)
	for first := range days {
		var chosen []strike // far from one another in the list: mostly of several kinds of actors
		name := ""
		for i := first; i < len(strikes); i += days {
			chosen = append(chosen, strikes[i])
			name += " and " + strikes[i].String()
		}
		t.Run(strings.TrimPrefix(name, " and "), func(t *testing.T) {
			t.Parallel()
			day(t, chosen)
		})
	}
}

// killer carries out each of its strikes once.
type killer struct {
	mu     sync.Mutex
	coming map[strike]bool
	whole  chan<- struct{} // where all of the agent is to die
}

func newKiller(strikes []strike) *killer {
	k := &killer{coming: map[strike]bool{}}
	for _, s := range strikes {
		k.coming[s] = true
	}
	return k
}

func (k *killer) strikes(d supervisors.Delivery, manner string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := strike{spot{d.Kind, d.MessageKind()}, manner}
	now := k.coming[s]
	delete(k.coming, s)
	return now
}

// waits reports whether a strike has not been carried out yet.
func (k *killer) waits(s strike) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.coming[s]
}

func (k *killer) Before(d supervisors.Delivery) supervisors.Verdict {
	switch {
	case k.strikes(d, "before"):
		return supervisors.Verdict{Effect: supervisors.Panic}
	case d.Droppable() && k.strikes(d, "lost"):
		return supervisors.Verdict{Effect: supervisors.Drop}
	case k.strikes(d, "all"):
		k.whole <- struct{}{}
	}
	return supervisors.Verdict{}
}

func (k *killer) After(d supervisors.Delivery) supervisors.Verdict {
	if k.strikes(d, "after") {
		return supervisors.Verdict{Effect: supervisors.Panic}
	}
	return supervisors.Verdict{}
}

// scenario is a day in the life of a node: pods are added, one completes, one crashes and restarts, one is changed, one is
// removed, one fails its probe. The outcome is the same for every fault in between.
func scenario(r *clusterRig, chaos supervisors.Interceptor) {
	r.t.Helper()
	saysTime(r.rig, "morning")
	r.keepsTime("noon")
	r.keepsRegistry()
	r.hasClass("servers", "runc")
	r.write("web.yaml", classed("folders", timely(manifest("web", "Always", []string{"setup once"},
		[]string{"one forever", "two forever"}))))
	r.write("job.yaml", manifest("job", "OnFailure", nil, []string{"work fails-once"}))
	r.write("gone.yaml", manifest("gone", "Always", nil, []string{"main private"})+"  imagePullSecrets: [{name: registry}]\n")
	r.write("changed.yaml", manifest("changed", "Always", nil, []string{"main forever"}))
	r.write("sick.yaml", sickManifest)
	remote := r.serve(manifest("remote", "Always", nil, []string{"main forever"}))
	r.binds(classed("servers", timely(manifest("cloud", "Always", []string{"setup once"}, []string{"main forever"}))))
	r.binds(manifest("leaves", "Always", nil, []string{"main private"}) + "  imagePullSecrets: [{name: registry}]\n")
	r.binds(strings.Replace(manifest("misfit", "Always", nil, []string{"main forever"}), "spec:\n",
		"spec:\n  nodeSelector: {disk: none}\n", 1))
	r.start(chaos)
	r.submits(manifest("sent", "Always", nil, []string{"main forever"}))
	r.submits(manifest("back", "Always", nil, []string{"main forever"}))
	r.await("the pods of the morning", func(s sim.Snapshot) bool {
		work, sick := s.Container("job-node", "work"), s.Container("sick-node", "main")
		return s.Running() == 11 && s.Ready() == 9 && sick != nil && sick.Attempt == 1 && sick.Running() &&
			work != nil && work.Attempt == 1 && !work.FinishedAt.IsZero()
	})
	r.awaitPod("misfit", func(p *pods.PublishedPod) bool {
		return p.Status != nil && p.Status.Reason == "NodeAffinity" && p.Phase == "finished"
	})
	if err := r.runtime.Exit(r.runtime.Snapshot().Sandbox("web-node").UID, "two", 1, "Error"); err != nil {
		r.t.Fatal(err)
	}
	r.await("the container that fell", func(s sim.Snapshot) bool {
		two := s.Container("web-node", "two")
		return two.Attempt == 1 && two.Running()
	})
	before, remoteBefore := r.runtime.Snapshot().Sandbox("changed-node").UID, r.runtime.Snapshot().Sandbox("remote-node").UID
	remote(manifest("remote", "Always", nil, []string{"main other"}))
	saysTime(r.rig, "evening")
	r.keepsTime("night")
	r.remove("gone.yaml")
	r.deletes("leaves", 2)
	r.edits("cloud", func(p *v1.Pod) { p.Labels = map[string]string{"time": "evening"} })
	r.withdraws("back")
	r.restarts("sent-node", "main")
	r.fetches("spare")
	r.write("changed.yaml", manifest("changed", "Always", nil, []string{"main other"}))
	r.await("the pods of the evening", func(s sim.Snapshot) bool {
		changed, sandbox := s.Container("changed-node", "main"), s.Sandbox("changed-node")
		far := s.Container("remote-node", "main")
		return s.Running() == 8 && far != nil && far.PodUID != remoteBefore && far.Running() &&
			s.Container("gone-node", "main") == nil && s.Sandbox("gone-node") == nil && s.Sandbox("back-node") == nil &&
			changed != nil && changed.PodUID != before && changed.Running() && s.Ready() == 6 && s.Sandbox("leaves") == nil &&
			sandbox.UID != before &&
			len(s.Sandboxes) == 7
	})
	awaitTime(r.rig, r.runtime.Snapshot().Sandbox("web-node").UID, "evening")
	awaitTime(r.rig, r.runtime.Snapshot().Sandbox("cloud").UID, "night")
	awaitLogs(r.rig)
	r.eventually("the API server has it as it is", func() bool { return apiAgrees(r) })
	r.awaitsNode()
}

// apiAgrees reports whether the API server has exactly the remaining pods: each running pod as ready, a static one under the
// name of its mirror pod.
func apiAgrees(r *clusterRig) bool {
	all, err := r.api.CoreV1().Pods("").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range all.Items {
		got[p.Name] = string(p.Status.Phase)
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				got[p.Name] = "ready"
			}
		}
		if hash := p.Annotations[v1.MirrorPodAnnotationKey]; hash != "" && r.runtime.Snapshot().Sandbox(p.Name) != nil &&
			hash != r.runtime.Snapshot().Sandbox(p.Name).UID {
			return false
		}
	}
	return maps.Equal(got, map[string]string{
		"cloud": "ready", "web-node": "ready", "changed-node": "ready", "sick-node": "ready", "remote-node": "ready",
		"sent-node": "ready",
		"job-node":  "Succeeded", "misfit": "Failed",
	})
}

// chatter is a line; three of them exceed the size limit of a log.
const chatter = "it goes on and on and on"

// awaitLogs waits until the log that is too big has been rotated, once and whole, and until each container that is there
// has a link to its log, and no other.
func awaitLogs(r *rig) {
	r.t.Helper()
	look := func() error {
		one := r.runtime.Snapshot().Container("web-node", "one")
		dir := filepath.Join(r.dir, "logs", "default_web-node_"+one.PodUID, "one")
		rotated, err := filepath.Glob(filepath.Join(dir, "0.log.*"))
		if err != nil || len(rotated) != 1 {
			return fmt.Errorf("rotated are %v, %w", rotated, err)
		}
		old, err := os.ReadFile(rotated[0])
		if err != nil || strings.Count(string(old), chatter) != 3 {
			return fmt.Errorf("the rotated log has %q, %w", old, err)
		}
		if now, err := os.ReadFile(filepath.Join(dir, "0.log")); err != nil || len(now) > 0 {
			return fmt.Errorf("the log has %q, %w", now, err)
		}
		want := []string{}
		for _, c := range r.runtime.Snapshot().Containers {
			want = append(want, c.PodName+"_default_"+c.Name+"-"+c.ID+".log")
		}
		sort.Strings(want)
		links, err := os.ReadDir(filepath.Join(r.dir, "links"))
		got := []string{}
		for _, l := range links {
			got = append(got, l.Name())
		}
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("links are %v, want %v, %w", got, want, err)
		}
		return nil
	}
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal(err)
		}
	}
}

// saysTime writes the ConfigMap of the day.
func saysTime(r *rig, time string) {
	r.t.Helper()
	path := filepath.Join(r.objects(), "times.yaml") // renamed into place: whole at once
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: times}\ndata: {time: " + time + "}\n" + registrySecret + "---\n" +
		classManifest("folders", "runc")
	if err := errors.Join(os.WriteFile(filepath.Join(r.dir, "times.new"), []byte(text), 0o600),
		os.Rename(filepath.Join(r.dir, "times.new"), path)); err != nil {
		r.t.Fatal(err)
	}
}

// awaitTime waits until the pod's volume contains that time. No call to the runtime shows it.
func awaitTime(r *rig, uid, want string) {
	r.t.Helper()
	path := filepath.Join(r.dir, "root/pods", uid, "volumes/kubernetes.io~configmap/times/time")
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(20 * time.Millisecond) {
		got, err := os.ReadFile(path)
		if err == nil && string(got) == want {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the volume holds %q, %v", got, err)
		}
	}
}

func scenarioRuntime() sim.Options {
	private := map[string]sim.Image{"private": {Username: "me", Password: "word"}}
	return sim.Options{WriteLogs: true, Images: private, Script: sim.Script{ByContainer: map[string]sim.Sequence{
		"web-node/one":   {{Output: []string{chatter, chatter, chatter}}},
		"web-node/setup": {sim.ExitAfter(0, 0)},
		"job-node/work":  {sim.ExitAfter(0, 1), sim.ExitAfter(0, 0)},
		"cloud/setup":    {sim.ExitAfter(0, 0)},
	}, Exec: func(_ context.Context, c sim.Target, command []string) (r sim.ExecResult) {
		if command[0] == "alive" && c.Attempt == 0 {
			r.Code = 1
		}
		return r
	}}}
}

// registrySecret has the credentials for the image "private".
const registrySecret = `---
apiVersion: v1
kind: Secret
metadata: {name: registry}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"docker.io":{"username":"me","password":"word"}}}'}
`

// sickManifest is a pod with every kind of probe: the first attempt of main is not alive.
const sickManifest = `
apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  terminationGracePeriodSeconds: 3
  initContainers:
  - {name: side, image: forever, restartPolicy: Always, startupProbe: {exec: {command: [up]}, periodSeconds: 1}}
  containers:
  - name: main
    image: forever
    lifecycle: {postStart: {exec: {command: [greet]}}}
    readinessProbe: {exec: {command: [ready]}, periodSeconds: 1}
    livenessProbe: {exec: {command: [alive]}, periodSeconds: 1, failureThreshold: 1}
`

// outcome describes the end of the day without random differences. Only the latest attempt of a container is included, since
// earlier ones may have been collected.
func outcome(r *rig) string {
	var out []string
	s := r.runtime.Snapshot()
	for _, sb := range s.Sandboxes {
		out = append(out, fmt.Sprintf("sandbox %s attempt %d ready %v handler %q", sb.Name, sb.Attempt, sb.Ready, sb.Handler))
	}
	for _, c := range s.Containers {
		if slices.ContainsFunc(s.Containers, func(o *sim.ContainerState) bool {
			return o.PodUID == c.PodUID && o.Name == c.Name && o.Attempt > c.Attempt
		}) {
			continue
		}
		out = append(out, fmt.Sprintf("container %s/%s attempt %d running %v code %d", c.PodName, c.Name, c.Attempt, c.Running(),
			c.ExitCode))
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// calls lists the effects on the runtime: every start, and every stop of a running container, once.
func calls(r *rig) string {
	started := map[string]bool{}
	stopped := map[string]bool{}
	var out []string
	for _, e := range r.runtime.Journal() {
		name := fmt.Sprintf("%s/%s/%d", e.PodName, e.Container, e.Attempt)
		switch e.Call {
		case "StartContainer":
			if started[e.ID] {
				out = append(out, "started twice: "+name)
			}
			started[e.ID] = true
			out = append(out, "start "+name)
		case "RunPodSandbox":
			if e.Err == "" {
				out = append(out, "sandbox "+name)
			}
		case "StopContainer":
			if !stopped[e.ID] {
				out = append(out, "stop "+name)
			}
			stopped[e.ID] = true
		}
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// TestEveryActorKilledAtEveryMessage: each kind of actor is killed at each kind of message it was seen to get, before
// and after it is handled, and each message is lost once. The day ends the same; nothing is started twice or stopped
// without cause. Kinds come from a run of the code itself, so that a new actor or message joins by itself.
func TestEveryActorKilledAtEveryMessage(t *testing.T) {
	w := &watcher{seen: map[spot]int{}, losing: map[spot]bool{}, shared: map[*v1.Pod]*v1.Pod{}}
	var wantOutcome, wantCalls string
	if !t.Run("undisturbed", func(t *testing.T) {
		r := newClusterRig(t, scenarioRuntime())
		scenario(r, w)
		r.eventually("each start is told", func() bool { return startsReported(r, true) == nil })
		wantOutcome, wantCalls = settled(r.rig)
		checkViolations(t, r.rig)
		w.checkShared(t)
	}) {
		return
	}
	everyKindIsSeen(t, w)
	again := &watcher{seen: map[spot]int{}, losing: map[spot]bool{}, shared: map[*v1.Pod]*v1.Pod{}}
	if !t.Run("undisturbed again", func(t *testing.T) {
		r := newClusterRig(t, scenarioRuntime())
		scenario(r, again)
		settled(r.rig)
	}) {
		return
	}
	t.Parallel() // after the undisturbed day: under load that day would have retries among its messages
	kinds := slices.Collect(maps.Keys(w.kinds()))
	kinds = slices.DeleteFunc(kinds, func(k supervisors.Kind) bool {
		return k == "node" // the root's end is the process's: see TestTheRootsEndIsTheProcesss
	})
	onDays(t, w.strikes(kinds, "before", "after", "lost"), func(t *testing.T, strikes []strike) {
		for range 3 { // a message that comes by chance, comes on one of three days
			k := newKiller(strikes)
			r := newClusterRig(t, scenarioRuntime())
			scenario(r, k)
			gotOutcome, gotCalls := settled(r.rig)
			if gotOutcome != wantOutcome {
				t.Errorf("it ended with\n%s\ninstead of\n%s", gotOutcome, wantOutcome)
			}
			if gotCalls != wantCalls {
				t.Errorf("what was done:\n%s\ninstead of\n%s", gotCalls, wantCalls)
			}
			checkViolations(t, r.rig)
			if err := startsReported(r, false); err != nil {
				t.Error(err)
			}
			strikes = slices.DeleteFunc(strikes, func(s strike) bool {
				why := byChance[s.spot.String()]
				if again.seen[s.spot] == 0 {
					why = "of two days that nobody disturbed one had none, too"
				}
				if k.waits(s) && why != "" {
					t.Logf("the day had no message for %s: %s", s, why)
				}
				return !k.waits(s) || why != ""
			})
			if len(strikes) == 0 {
				return
			}
		}
		t.Errorf("three days had no message for %v: nothing was killed", strikes)
	})
}

const dayIsShort = "it comes every 10 s, and a day may be shorter; the rest has TestTheMachineShutsDown"

// byChance are messages that a day may do without, and why.
var byChance = map[string]string{
	"pods/NodeShutdownObserved":         dayIsShort,
	"registration/NodeShutdownObserved": dayIsShort,
	"shutdown/reportDue":                dayIsShort,
	"events/pauseEnded":                 "Events wait only where pods wait for the runtime at that moment",
	"container/RunContainer":            "a start is ordered with Started, and a container may end before its actor has read that it runs",
	"images/holdTimeout":                "a pull waits for its Secrets only where these are read later than the image is asked for",
	"images/timerFired":                 "a pull waits for its time only where several come at once, or one has failed",
	"objects/lookDue":                   "a change of a file waits only where it is read within 0.2 s of being written",
}

// settled stops the agent, which waits for operations in progress, and returns the outcome of the day.
func settled(r *rig) (string, string) {
	r.t.Helper()
	r.stop()
	return outcome(r), calls(r)
}

func checkViolations(t *testing.T, r *rig) {
	t.Helper()
	for _, v := range r.runtime.Violations() {
		t.Errorf("the runtime saw: %s", v)
	}
}

// elsewhere are the kinds of actors that the day has no work for, and the test that has.
var elsewhere = map[supervisors.Kind]string{
	"ender": "TestAPodInQuarantineIsDeleted",
}

// kinds returns the kinds of actors that received a message.
func (w *watcher) kinds() map[supervisors.Kind]bool {
	kinds := map[supervisors.Kind]bool{}
	for s := range w.seen {
		kinds[s.kind] = true
	}
	return kinds
}

// everyKindIsSeen checks that the day has work for every kind of actor in the table.
func everyKindIsSeen(t *testing.T, w *watcher) {
	t.Helper()
	kinds := w.kinds()
	supervisors.Tree.Walk(func(path string, row *supervisors.Row) {
		if !kinds[row.Kind] && elsewhere[row.Kind] == "" {
			t.Errorf("the day has nothing for actors of kind %s", path)
		}
	})
}

// breaker makes the actor of one pod panic at everything.
type breaker struct{ pod string }

func (b breaker) Before(d supervisors.Delivery) supervisors.Verdict {
	if d.Kind != "pod" {
		return supervisors.Verdict{}
	}
	if m, ok := d.Message.(messages.PodWanted); ok && m.Pod.Name == b.pod {
		return supervisors.Verdict{Effect: supervisors.Panic}
	}
	return supervisors.Verdict{}
}

func (breaker) After(supervisors.Delivery) supervisors.Verdict { return supervisors.Verdict{} }

// TestOnePodThatPanicsForEver is quarantined and named, and a hundred others do not notice.
func TestOnePodThatPanicsForEver(t *testing.T) {
	r := newRig(t, sim.Options{})
	for i := range 100 {
		r.write(fmt.Sprintf("p%d.yaml", i), manifest(fmt.Sprintf("p%d", i), "Always", nil, []string{"main forever"}))
	}
	r.write("broken.yaml", manifest("broken", "Always", nil, []string{"main forever"}))
	r.start(breaker{"broken-node"})
	r.await("a hundred pods", func(s sim.Snapshot) bool { return s.Running() == 100 })
	deadline := time.Now().Add(waitLimit)
	for len(r.agent.system.Quarantined()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("nobody is quarantined")
		}
		time.Sleep(10 * time.Millisecond)
	}
	for a, q := range r.agent.system.Quarantined() {
		if a.Parent() != messages.Pods || !strings.Contains(q.Reason, "PodWanted") {
			t.Errorf("%s is quarantined: %+v", a, q)
		}
	}
	if n := r.agent.system.Counters.Restarts.Load(); n != 5 {
		t.Errorf("%d restarts, all but those of the broken pod's actor would be of others", n)
	}
	checkViolations(t, r)
}

// always makes the actor of one pod panic at each message.
type always struct{ uid string }

func (p always) Before(d supervisors.Delivery) supervisors.Verdict {
	if d.Kind == "pod" && d.Actor.Name() == p.uid {
		return supervisors.Verdict{Effect: supervisors.Panic}
	}
	return supervisors.Verdict{}
}

func (always) After(supervisors.Delivery) supervisors.Verdict { return supervisors.Verdict{} }

// TestAPodInQuarantineIsDeleted: its end does not need the machine that panics, and nothing of the pod is left. Its successor
// of the same name begins.
func TestAPodInQuarantineIsDeleted(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.write("web.yaml", manifest("web", "Always", nil, []string{"one forever", "two forever"}))
	r.write("other.yaml", manifest("other", "Always", nil, []string{"main forever"}))
	r.start(nil)
	r.await("both pods", func(s sim.Snapshot) bool { return s.Running() == 3 })
	uid := ""
	for _, s := range r.runtime.Snapshot().Sandboxes {
		if s.Name == "web-node" {
			uid = s.UID
		}
	}
	r.stop()
	r.start(always{uid})
	awaitThat(t, r, "the quarantine", func() bool { return len(r.agent.system.Quarantined()) == 1 })
	if n := r.runtime.Snapshot().Running(); n != 3 {
		t.Errorf("%d containers run: those of a pod in quarantine are left alone", n)
	}
	r.write("web.yaml", manifest("web", "Always", nil, []string{"three forever"}))
	r.await("the pod's successor alone", func(s sim.Snapshot) bool {
		return s.Running() == 2 && len(s.Containers) == 2 && len(s.Sandboxes) == 2
	})
	awaitThat(t, r, "the end of the quarantine", func() bool {
		return len(r.agent.system.Quarantined()) == 0 && len(r.agent.observatory.board.Now().Pods) == 2
	})
	if _, err := os.Stat(filepath.Join(r.dir, "root", "pods", uid)); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
	for name := range r.groups.Values() {
		if strings.Contains(name, uid) {
			t.Errorf("its cgroup is there: %s", name)
		}
	}
	checkViolations(t, r)
}

func awaitThat(t *testing.T, r *rig, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %s", what, tail(r.log.String(), 30))
		}
	}
}

// TestTheRootsEndIsTheProcesss: a root that fails gives the reason, the process ends, and the next one finds
// everything as it was.
func TestTheRootsEndIsTheProcesss(t *testing.T) {
	r := newRig(t, sim.Options{})
	r.write("web.yaml", manifest("web", "Always", nil, []string{"one forever"}))
	r.start(nil)
	r.await("the pod", func(s sim.Snapshot) bool { return s.Running() == 1 })
	before := outcome(r)
	r.agent.system.Kill(messages.Node, "test")
	select {
	case err := <-r.agent.failed:
		if !strings.Contains(err.Error(), "killed: test") {
			t.Errorf("the reason is %v", err)
		}
	case <-time.After(waitLimit):
		t.Fatal("the process would live on without a tree")
	}
	r.stop()
	r.start(nil)
	r.write("more.yaml", manifest("more", "Always", nil, []string{"one forever"}))
	r.await("a second pod", func(s sim.Snapshot) bool { return s.Running() == 2 })
	after := outcome(r)
	for line := range strings.Lines(before) {
		if !strings.Contains(after, strings.TrimSpace(line)) {
			t.Errorf("%s became %s", before, after)
		}
	}
	if n := len(r.runtime.Calls("StopContainer")); n > 0 {
		t.Errorf("%d containers were stopped", n)
	}
	if n := len(r.runtime.Calls("StartContainer")); n != 2 {
		t.Errorf("%d containers were started", n)
	}
}
