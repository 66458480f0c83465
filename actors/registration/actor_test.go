package registration

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestANodeIsMadeReadyAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	expect(t, "before the watch has told anything", w.writes(), []string{})
	w.sees()
	expect(t, "the writes", w.writes(), []string{"create"})
	node := w.stored()
	if c := condition(node, v1.NodeReady); c == nil || c.Status != v1.ConditionTrue || node.Labels["rack"] != "7" ||
		node.Labels[v1.LabelHostname] != "node" {
		t.Errorf("%+v", node)
	}
	w.sees()
	w.passes(time.Minute)
	expect(t, "while nothing changes", w.writes(), []string{})
	sent := 0
	for _, m := range w.Take() {
		if o, ok := m.Msg.(messages.NodeObserved); ok && o.Node != nil && m.To == messages.Pods {
			sent++
		}
	}
	if sent < 6 {
		t.Errorf("pods were told %d times", sent)
	}
	w.Send(messages.Pods, messages.GetNode{})
	if len(w.Replies) != 1 || w.Replies[0].(messages.NodeObserved).Node.Name != "node" {
		t.Errorf("replies %v", w.Replies)
	}
	w.passes(5 * time.Minute)
	expect(t, "when it is time to report", w.writes(), []string{"patch status"})
}

// An unchanged status is reported every nodeStatusReportFrequency.
func TestTheStatusIsReportedAsOftenAsConfigured(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.ReportFrequency = time.Minute })
	w.start()
	w.says(nil, nil)
	w.sees()
	w.writes()
	w.passes(50 * time.Second)
	expect(t, "before it is time", w.writes(), []string{})
	w.passes(20 * time.Second)
	expect(t, "when it is time", w.writes(), []string{"patch status"})
}

func TestANodeThatIsThereIsReconciled(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Desired.Features = []string{"A", "B"} })
	was := found()
	was.Spec.Taints = []v1.Taint{{Key: "other", Effect: v1.TaintEffectNoSchedule}}
	was.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionTrue, Reason: "Calico"}}
	was.Status.DeclaredFeatures = []string{"a kubelet's"}
	was.Status.VolumesInUse = []v1.UniqueVolumeName{"v"}
	was.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.9"},
		{Type: v1.NodeInternalIP, Address: "192.0.2.10"}}
	was.Status.Capacity = v1.ResourceList{"example.com/gpu": *quantity(2)}
	w.put(was)
	w.start()
	w.sees()
	expect(t, "the writes", w.writes(), []string{"patch", "patch status"})
	node := w.stored()
	if node.Labels["mine"] != "yes" || node.Labels[v1.LabelOSStable] != "linux" || node.Labels["rack"] != "" ||
		node.Annotations[annotationAttachDetach] != "true" {
		t.Errorf("labels %v, annotations %v", node.Labels, node.Annotations)
	}
	if len(node.Spec.Taints) != 1 || condition(node, v1.NodeNetworkUnavailable).Reason != "Calico" ||
		len(node.Status.VolumesInUse) != 1 {
		t.Errorf("what is others': %+v", node)
	}
	if !slices.Equal(node.Status.DeclaredFeatures, []string{"A", "B"}) {
		t.Errorf("features are %v", node.Status.DeclaredFeatures)
	}
	if gpu := node.Status.Allocatable["example.com/gpu"]; gpu.Value() != 2 {
		t.Errorf("a device's allocatable is %v", gpu.String())
	}
	expect(t, "addresses", node.Status.Addresses, []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"},
		{Type: v1.NodeHostName, Address: "node"}})
	node.Labels["beta.kubernetes.io/os"] = "mine now"
	delete(node.Labels, v1.LabelArchStable)
	w.put(node)
	w.sees()
	expect(t, "writes so soon after the last", w.writes(),
		[]string{}) // whoever takes them back each time is not fought without end
	w.passes(10 * time.Second)
	if node := w.stored(); node.Labels["beta.kubernetes.io/os"] != "mine now" || node.Labels[v1.LabelArchStable] == "" {
		t.Errorf("later: %v", node.Labels)
	}
}

// Before the API server has answered, no Node is sent: pods would conclude that it does not exist.
func TestWhoAsksTooEarlyIsAnsweredLater(t *testing.T) {
	w := newWorld(t, nil)
	w.put(found())
	w.start()
	w.Send(messages.Pods, messages.GetNode{})
	if len(w.Replies) != 0 {
		t.Errorf("replies %v", w.Replies)
	}
	w.sees()
	if !slices.ContainsFunc(w.Take(), func(m supervisortest.SentMessage) bool {
		_, is := m.Msg.(messages.NodeObserved)
		return is && m.To == messages.Pods
	}) {
		t.Error("pods is not told of the Node")
	}
}

func TestWhoDoesNotRegisterOnlyUpdates(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Desired.Register = false })
	w.start()
	w.sees()
	w.passes(time.Minute)
	expect(t, "without a Node", w.writes(), []string{})
	if p := w.state.Load().Problems; len(p) != 1 || !strings.Contains(p[0], "registerNode is off") {
		t.Errorf("%q", p)
	}
	w.put(found())
	w.sees()
	expect(t, "with a Node", w.writes(), []string{"patch", "patch status"})
	if node := w.stored(); node.Labels[v1.LabelHostname] != "" || node.Labels[v1.LabelOSStable] != "linux" ||
		len(w.state.Load().Problems) > 0 {
		t.Errorf("%v, %v", node.Labels, w.state.Load())
	}
}

// As with the kubelet, a deleted Node is not created again before the agent restarts. The restart of the actor does not count.
func TestADeletedNodeStaysDeleted(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	w.sees()
	if err := w.api.CoreV1().Nodes().Delete(t.Context(), "node", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.writes()
	for range 2 {
		w.sees()
		w.passes(time.Minute)
		expect(t, "after the deletion", w.writes(), []string{})
		if p := w.state.Load().Problems; len(p) != 1 || !strings.Contains(p[0], "somebody has deleted the Node node") {
			t.Errorf("%q", p)
		}
		w.start()
	}
	w.life = &life{} // the process is another
	w.start()
	w.sees()
	expect(t, "after the agent's restart", w.writes(), []string{"create"})
}

func TestReadinessIsReportedAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	w.sees()
	w.sees()
	w.writes()
	w.runtime.NetworkReady, w.runtime.NetworkReason = false, "NetworkPluginNotReady: cni plugin not initialized"
	w.network = errors.New("no network configuration in /etc/cni/net.d")
	state := messages.RuntimeStateChanged{Ready: true, NetworkReason: w.runtime.NetworkReason}
	w.Send(messages.Runtime, state)
	w.work()
	expect(t, "the writes, at once, and when it is known why", w.writes(), []string{"patch status", "patch status"})
	c := condition(w.stored(), v1.NodeReady)
	if c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" ||
		c.Message != "container runtime network not ready: NetworkPluginNotReady: cni plugin not initialized: no network configuration in /etc/cni/net.d" {
		t.Errorf("%+v", c)
	}
	w.sees()
	w.network = fmt.Errorf("away: %w", ErrNotKnown) // what was said stays
	w.Send(messages.Runtime, state)
	w.work()
	if w := w.writes(); len(w) > 0 {
		t.Errorf("it wrote %q where it could not be looked", w)
	}
	w.runtime.NetworkReady = true
	w.Send(messages.Runtime, messages.RuntimeStateChanged{Ready: true, NetworkReady: true})
	w.work()
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	w.sees()
	w.writes()
	pressures := messages.NodePressureObserved{Pressures: []messages.Pressure{{Type: v1.NodeDiskPressure, Under: true,
		Reason: "KubeletHasDiskPressure", Message: "nodefs.available"}}}
	w.Send(messages.Eviction, pressures)
	w.work()
	w.Send(messages.Eviction, pressures)
	w.work()
	expect(t, "under pressure", w.writes(), []string{"patch status"})
	if c := condition(w.stored(), v1.NodeDiskPressure); c.Status != v1.ConditionTrue || c.Message != "nodefs.available" {
		t.Errorf("%+v", c)
	}
	w.sees()
	w.writes()
	for _, underway := range []bool{true, true, false} {
		w.Send(messages.Shutdown, messages.NodeShutdownObserved{Underway: underway})
		w.work()
		c := condition(w.stored(), v1.NodeReady)
		if underway != (c.Status == v1.ConditionFalse) || underway != (c.Message == "node is shutting down") {
			t.Errorf("shutting down %t: %+v", underway, c)
		}
		w.sees()
	}
	expect(t, "about a shutdown", w.writes(), []string{"patch status", "patch status"})
}

// A runtime that restarts takes no pod out of its Services.
func TestARuntimeIsGivenTimeToComeBack(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	w.sees()
	w.sees()
	w.runtime.Ready, w.runtime.Reason, w.runtime.Since = false, "the container runtime cannot be reached", w.Now()
	w.Send(messages.Runtime, messages.RuntimeStateChanged{})
	w.passes(20 * time.Second)
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionTrue {
		t.Errorf("too soon: %+v", c)
	}
	w.passes(20 * time.Second)
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionFalse ||
		!strings.Contains(c.Message, "cannot be reached") {
		t.Errorf("%+v", c)
	}
}

// The end of the grace period is reported at once, however seldom the facts are gathered.
func TestAbsentRuntime_ReportedAtOnce(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.UpdateFrequency = time.Hour })
	w.start()
	w.sees()
	w.sees()
	w.Send(messages.Runtime, messages.RuntimeStateChanged{Ready: true, NetworkReady: true})
	w.runtime.Ready, w.runtime.Reason, w.runtime.Since = false, "the container runtime cannot be reached", w.Now()
	w.Send(messages.Runtime, messages.RuntimeStateChanged{})
	w.passes(runtimeGrace - time.Second)
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionTrue {
		t.Errorf("too soon: %+v", c)
	}
	w.passes(2 * time.Second)
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionFalse {
		t.Errorf("%+v", c)
	}
	w.runtime = wellRuntime()
	w.Send(messages.Runtime, messages.RuntimeStateChanged{Ready: true, NetworkReady: true})
	w.work()
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	w.life, w.runtime = &life{}, Runtime{} // another process, which does not come to hear of the runtime
	w.start()
	w.sees()
	w.passes(runtimeGrace + time.Second)
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionFalse {
		t.Errorf("%+v", c)
	}
}

func TestTransitionTimesOutliveTheAgent(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	w.sees()
	was := condition(w.stored(), v1.NodeReady).LastTransitionTime
	w.life, w.runtime = &life{}, Runtime{} // another process, which has not heard of the runtime yet
	at := w.Now().Add(10 * time.Second)
	w.start()
	w.Clock.SetTime(at)
	w.sees()
	c := condition(w.stored(), v1.NodeReady)
	if c.Status != v1.ConditionTrue || !c.LastTransitionTime.Equal(&was) {
		t.Errorf("before the runtime was heard: %+v", c)
	}
}

var nodes = schema.GroupResource{Resource: "nodes"}

// Whatever the API server answers, the write is retried with a growing back-off, and reported in words.
func TestFailuresAreTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"401": {apierrors.NewUnauthorized("no"), "does not accept this node's credentials"},
		"403": {apierrors.NewForbidden(nodes, "node", errors.New("not allowed")), "system:node:node"},
		"409": {apierrors.NewConflict(nodes, "node", errors.New("changed")), "changed"},
		"429": {apierrors.NewTooManyRequests("slowly", 1), "too much to do"},
		"500": {apierrors.NewInternalError(errors.New("etcd")), "a fault of its own (500)"},
		"cut": {errors.New("connection refused"), "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range []string{"create", "patch"} {
				w := newWorld(t, nil)
				if verb == "patch" {
					w.put(found())
				}
				failing := true
				w.api.PrependReactor(verb, "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					return failing,
						nil, c.err
				})
				w.start()
				w.sees()
				w.passes(30 * time.Second)
				if got := len(w.writes()); got < 6 || got > 12 {
					t.Errorf("%s: tried %d times in half a minute", verb, got)
				}
				if p := strings.Join(w.state.Load().Problems, " "); !strings.Contains(p, c.says) {
					t.Errorf("%s: %s", verb, p)
				}
				failing = false
				w.passes(10 * time.Second)
				if node := w.stored(); node == nil || condition(node, v1.NodeReady) == nil || len(w.state.Load().Problems) > 0 {
					t.Errorf("%s: %+v, %v", verb, node, w.state.Load())
				}
			}
		})
	}
}

func TestSomebodyElseMakesTheNodeMeanwhile(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	w.put(found())
	w.says(nil, nil) // the watch is late
	if node := w.stored(); node.UID != "uid-1" || condition(node, v1.NodeReady) == nil || node.Labels["mine"] != "yes" {
		t.Errorf("%+v", node)
	}
}

func TestPatch_AppliesToItsNodeOnly(t *testing.T) {
	a, b := found(), found()
	b.Labels = map[string]string{"x": "y"}
	b.Status.Phase = v1.NodeRunning
	for _, f := range []func(_, _ *v1.Node) ([]byte, error){metadataPatch, statusPatch} {
		if text, err := f(a, b); err != nil || !strings.Contains(string(text), `"uid":"uid-1"`) {
			t.Errorf("%s, %v", text, err)
		}
	}
	if text, err := metadataPatch(a, a); err != nil || text != nil {
		t.Errorf("%s, %v", text, err)
	}
}

func TestTheLease(t *testing.T) {
	w := newWorld(t, nil)
	lost := true
	w.api.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return lost, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, v1.NamespaceNodeLease)
	})
	w.start()
	made := func() (out []string) {
		for _, a := range w.api.Actions() {
			if a.GetResource().Resource == "leases" {
				out = append(out, a.GetVerb())
			}
		}
		w.api.ClearActions()
		return out
	}
	expect(t, "before there is a Node", made(), []string{"get"})
	w.sees()
	if p := w.state.Load().Problems; len(p) != 1 || !strings.Contains(p[0], "namespace kube-node-lease is not there") {
		t.Errorf("%q", p)
	}
	lost = false
	w.passes(10 * time.Second)
	made()
	get := func() (time.Time, metav1.OwnerReference) {
		l, err := w.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(context.Background(), "node", metav1.GetOptions{})
		if err != nil || len(l.OwnerReferences) != 1 || *l.Spec.LeaseDurationSeconds != 40 || *l.Spec.HolderIdentity != "node" {
			t.Fatalf("%+v, %v", l, err)
		}
		return l.Spec.RenewTime.Time, l.OwnerReferences[0]
	}
	first, _ := get()
	made()
	w.passes(11 * time.Second)
	expect(t, "a renewal", made(), []string{"update"})
	if again, _ := get(); again.Sub(first) < 10*time.Second {
		t.Errorf("renewed at %s and %s", first, again)
	}
	made()
	if err := w.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Delete(t.Context(), "node",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	made()
	w.passes(11 * time.Second)
	expect(t, "when it was deleted", made(), []string{"update", "get", "create"})
	// It outlives the actor, and a Node that is not known yet.
	w.start()
	expect(t, "at a restart", made(), []string{"get", "update"})
	if len(w.state.Load().Problems) > 0 {
		t.Errorf("%q", w.state.Load().Problems)
	}
}

// The node controller counts a renewal only if its time is later than that of the one before. A clock that is set must not make
// it call the node dead.
func TestLease_ClockSet(t *testing.T) {
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		w := newWorld(t, nil)
		w.start()
		w.sees()
		get := func() time.Time {
			t.Helper()
			l, err := w.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "node", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return l.Spec.RenewTime.Round(time.Microsecond)
		}
		last := get()
		w.SetClock(jump)
		for i := range 6 {
			if i == 3 { // another process, which has to read the lease
				w.start()
			}
			w.passes(11 * time.Second)
			if at := get(); !at.After(last) {
				t.Errorf("clock set by %s: renewal %d at %s, after one at %s", jump, i, at, last)
			}
			last = get()
		}
		if got := w.Now().Round(0).Sub(last); jump > 0 && got > 11*time.Second {
			t.Errorf("clock set forward: renewed %s ago", got)
		}
	}
}

// A lease is renewed while everything else hangs.
func TestNothingDelaysTheLease(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	w.sees()
	for range 5 { // nothing but the lease is answered
		w.Advance(11 * time.Second)
		for _, one := range slices.Clone(w.Work) {
			if one.Name == "RenewLease" {
				w.Work = slices.DeleteFunc(w.Work, func(x supervisorsWork) bool { return x.Name == "RenewLease" })
				w.RunOne(one)
			}
		}
	}
	l, err := w.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil || w.Now().Sub(l.Spec.RenewTime.Time) > 11*time.Second {
		t.Errorf("%+v, %v", l, err)
	}
}

// Changes of the node are recorded as Events, once.
func TestWhatHappensToTheNodeIsReported(t *testing.T) {
	w := newWorld(t, nil)
	sent := w.newEvents
	w.start()
	w.sees()
	w.sees()
	expect(t, "a new Node", sent(), []string{"Normal NodeHasSufficientMemory", "Normal NodeHasNoDiskPressure",
		"Normal NodeHasSufficientPID"})
	w.runtime.NetworkReady = false
	w.Send(messages.Runtime, messages.RuntimeStateChanged{Ready: true})
	w.work()
	w.sees()
	expect(t, "no network", sent(), []string{"Normal NodeNotReady"})
	node := w.stored()
	node.Spec.Unschedulable = true
	w.put(node)
	w.sees()
	expect(t, "a drain", sent(), []string{"Normal NodeNotSchedulable"})
	w.machine.BootID, w.runtime.NetworkReady = "c", true
	w.start()
	w.sees()
	w.sees()
	expect(t, "a reboot", sent(), []string{"Normal NodeReady", "Warning Rebooted"})
}

// Each change of a condition has the word that the kubelet has for it.
func TestEventsOfConditions(t *testing.T) {
	for kind, words := range map[v1.NodeConditionType][2]string{
		v1.NodeReady: {"NodeReady", "NodeNotReady"}, v1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		v1.NodeDiskPressure: {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		v1.NodePIDPressure:  {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
	} {
		node := func(s v1.ConditionStatus) *v1.Node {
			return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"},
				Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: kind, Status: s}}}}
		}
		for i, s := range []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse} {
			other := []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionTrue}[i]
			got := nodeEvents(node(other), node(s), time.Time{})
			if len(got) != 1 || got[0].Reason != words[i] {
				t.Errorf("%s became %s: %+v, want %s", kind, s, got, words[i])
			}
			if again := nodeEvents(node(s), node(s), time.Time{}); len(again) > 0 {
				t.Errorf("%s stays %s: %+v", kind, s, again)
			}
		}
	}
}

// A Node that the watch reports before the answer to its creation is a new Node.
func TestNewNode_ReportedByWatchFirst(t *testing.T) {
	w := newWorld(t, nil)
	w.api.PrependReactor("create", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, node, err := clienttesting.ObjectReaction(w.api.Tracker())(a)
		w.feed = Observation{Version: w.feed.Version + 1, Heard: w.feed.Heard + 1, Node: node.(*v1.Node)}
		w.Send(messages.Registration, watchResult{w.feed})
		return true, node, err
	})
	w.start()
	w.sees()
	expect(t, "a new Node", w.newEvents(), []string{"Normal NodeHasSufficientMemory", "Normal NodeHasNoDiskPressure",
		"Normal NodeHasSufficientPID"})
}

// Images come when they are there, the machine when it can be read: whether the node is ready waits for neither.
func TestReadinessWaitsForNothingElse(t *testing.T) {
	w := newWorld(t, nil)
	w.images = images{{Id: "i", RepoTags: []string{"i:1"}, Size: 5}}
	w.holding = "ListImages"
	w.start()
	w.sees()
	w.sees()
	if node := w.stored(); condition(node, v1.NodeReady).Status != v1.ConditionTrue || len(node.Status.Images) > 0 {
		t.Errorf("while images are listed: %+v", node.Status)
	}
	w.holding = ""
	w.passes(10 * time.Second)
	if node := w.stored(); len(node.Status.Images) != 1 {
		t.Errorf("images: %v", node.Status.Images)
	}
	w.sees()
	w.writes()
	w.holding = "LookAtMachine"
	w.passes(10 * time.Second)
	w.runtime.NetworkReady, w.runtime.NetworkReason = false, "no plugin"
	w.Send(messages.Runtime, messages.RuntimeStateChanged{Ready: true, NetworkReason: "no plugin"})
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionTrue {
		t.Fatalf("before the write %+v", c)
	}
	w.work()
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionFalse {
		t.Errorf("while the machine is read: %+v", c)
	}
}

// A machine that cannot be read wholly is named, keeps its figures, and changes nothing else.
func TestAMachineThatHides(t *testing.T) {
	w := newWorld(t, nil)
	w.machineErr = errors.New("the disk is being read since 03:04")
	w.start()
	w.sees()
	if p := w.state.Load().Problems; len(p) != 1 ||
		p[0] != "some properties of the machine cannot be read: the disk is being read since 03:04" {
		t.Errorf("%q", p)
	}
	if c := condition(w.stored(), v1.NodeReady); c.Status != v1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	w.machineErr = nil
	w.passes(10 * time.Second)
	if p := w.state.Load().Problems; len(p) > 0 {
		t.Errorf("%q", p)
	}
}

// Changed addresses are reported. While the reading fails the reported ones stay, and health shows the cause.
func TestAddressesThatChange(t *testing.T) {
	w := newWorld(t, nil)
	w.start()
	w.sees()
	reported := func() string { return w.stored().Status.Addresses[0].Address }
	w.addresses = addrs("192.0.2.8")
	w.passes(20 * time.Second)
	expect(t, "when it changed", reported(), "192.0.2.8")
	w.addresses, w.addressErr = nil, errors.New("no route")
	w.passes(20 * time.Second)
	expect(t, "when it is not known", reported(), "192.0.2.8")
	expect(t, "health", w.state.Load().Problems, []string{"the node's addresses were not updated: no route"})
	w.addresses, w.addressErr = addrs("192.0.2.9"), nil
	w.passes(20 * time.Second)
	expect(t, "when it is known again", reported(), "192.0.2.9")
	expect(t, "health then", len(w.state.Load().Problems), 0)
}

// Without a record of plugins, extended resources become 0 once. Resources that others add later stay.
func TestAForgottenNodeIsResetOnce(t *testing.T) {
	forgotten := true
	w := newWorld(t, func(o *Options) {
		o.Sizes.Forgotten, o.Sizes.Reset = func() bool { return forgotten }, func() { forgotten = false }
	})
	for _, given := range []struct{ has, want int64 }{{2, 0}, {3, 3}} {
		node := w.stored()
		if node == nil {
			node = found()
			w.start()
		}
		if node.Status.Capacity == nil {
			node.Status.Capacity = v1.ResourceList{}
		}
		node.Status.Capacity["example.com/dongle"] = *quantity(given.has)
		w.put(node)
		w.sees()
		w.passes(time.Minute)
		there := w.stored().Status.Capacity["example.com/dongle"]
		if there.Value() != given.want || forgotten {
			t.Errorf("%s are there, want %d", there.String(), given.want)
		}
	}
}

// A question with a Read has the Node read from the API server, which may be ahead of the watch. Each later NodeObserved has its
// number, so that a lost answer is repeated. A failed read answers nothing.
func TestNode_ReadForPods(t *testing.T) {
	w := newWorld(t, nil)
	w.put(found())
	w.start()
	w.sees()
	node := w.stored()
	node.Labels["disk"] = "nvme"
	w.put(node)
	w.Take()
	observed := func() (out []messages.NodeObserved) {
		for _, m := range w.Take() {
			if o, is := m.Msg.(messages.NodeObserved); is && m.To == messages.Pods {
				out = append(out, o)
			}
		}
		return out
	}
	w.holding = "ReadNode"
	w.Send(messages.Pods, messages.GetNode{Read: 2})
	w.Send(messages.Pods, messages.GetNode{Read: 3})
	w.holding = ""
	w.work()
	all := observed()
	if len(all) == 0 || all[len(all)-1].Read != 3 || all[len(all)-1].Node.Labels["disk"] != "nvme" {
		t.Errorf("observed %+v", all)
	}
	w.passes(10 * time.Second)
	if all := observed(); len(all) == 0 || all[0].Read != 3 {
		t.Errorf("later %+v", all)
	}
	w.api.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("away")
	})
	w.Send(messages.Pods, messages.GetNode{Read: 4})
	w.work()
	if all := observed(); len(all) != 0 {
		t.Errorf("after a failed read %+v", all)
	}
}

// A read that returns a Node which is deleted meanwhile does not bring it back.
func TestNode_DeletedDuringRead(t *testing.T) {
	w := newWorld(t, nil)
	w.put(found())
	w.start()
	w.sees()
	old := w.stored()
	w.Send(messages.Pods, messages.GetNode{Read: 2})
	reads := 0
	w.api.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if reads++; reads == 1 {
			return true, old, nil
		}
		return false, nil, nil
	})
	w.holding = "ReadNode"
	w.Send(messages.Pods, messages.GetNode{Read: 2})
	if err := w.api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("nodes"), "", "node"); err != nil {
		t.Fatal(err)
	}
	w.says(nil, nil)
	w.Take()
	w.holding = ""
	w.work()
	for _, m := range w.Take() {
		if o, is := m.Msg.(messages.NodeObserved); is && o.Node == old {
			t.Errorf("observed the deleted Node %s (read %d)", o.Node.UID, o.Read)
		}
	}
	if reads < 2 {
		t.Errorf("got %d reads, want another one after the deletion", reads)
	}
}
