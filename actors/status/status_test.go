package status

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// bench is the actor with an API server in memory.
type bench struct {
	*supervisortest.Kit
	t     *testing.T
	api   *fake.Clientset
	state *State
	opts  Options
}

func newBench(t *testing.T, pods ...runtime.Object) *bench {
	b := &bench{t: t, api: fake.NewClientset(pods...), state: &State{}}
	b.opts = Options{Client: b.api, Operations: cri.NewOperations(), NodeName: "node", State: b.state,
		Random: func() float64 { return 1 }}
	b.Kit = supervisortest.New(t, messages.Status, New(b.opts)("status"))
	if sent := b.Take(); len(sent) != 1 || sent[0].To != messages.Registration {
		t.Fatalf("it asks for %v and not for the node", sent)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}}
	b.Send(messages.Registration, messages.NodeObserved{Node: node})
	return b
}

// watch sends the API server's pods to the actor.
func (b *bench) watch() {
	b.t.Helper()
	list, err := b.api.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	m := messages.APIPodsObserved{At: b.Now()}
	for i := range list.Items {
		m.Pods = append(m.Pods, &list.Items[i])
	}
	b.Send(messages.APIServer, m)
}

func (b *bench) pod(name string) *v1.Pod {
	b.t.Helper()
	p, err := b.api.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// calls returns the writes that the API server received, and clears them.
func (b *bench) calls() string {
	var out []string
	for _, a := range b.api.Actions() {
		switch a.GetVerb() {
		case "list", "watch", "get":
		default:
			out = append(out, strings.Join([]string{a.GetVerb(), a.GetResource().Resource, a.GetSubresource()}, " "))
		}
	}
	b.api.ClearActions()
	return strings.Join(out, ", ")
}

func TestAStatusIsWrittenAsOnePatch(t *testing.T) {
	b := newBench(t, object("web", "u"))
	b.Send(messages.Pods, desired(object("web", "u"), statusOf(true, 0)))
	b.watch()
	b.RunWork()
	actions := b.api.Actions()
	if got := b.calls(); got != "patch pods status" {
		t.Fatalf("it wrote %s", got)
	}
	patch, ok := actions[len(actions)-1].(ktesting.PatchAction)
	var body struct{ Metadata map[string]any }
	if !ok || json.Unmarshal(patch.GetPatch(), &body) != nil || body.Metadata["uid"] != "u" || len(body.Metadata) != 1 {
		t.Errorf("the patch is %s", patch.GetPatch())
	}
	if p := b.pod("web"); !ready(&p.Status) || len(p.Status.Conditions) != 5 {
		t.Errorf("%+v", p.Status)
	}
	b.watch()
	b.Send(messages.Pods, messages.PodStatusesWanted{Heard: true,
		Pods: []messages.PodStatusWanted{desired(object("web", "u"), statusOf(true, 0))}})
	b.RunWork()
	if got := b.calls(); got != "" {
		t.Errorf("it wrote again: %s", got)
	}
}

func TestTheEndAsItIsWritten(t *testing.T) {
	p := object("web", "u")
	p.DeletionTimestamp = new(at(0))
	b := newBench(t, p)
	b.watch()
	w := desired(p, statusOf(false, 0))
	w.Over = true
	b.Send(messages.Pods, w)
	b.RunWork()
	var options metav1.DeleteOptions
	for _, a := range b.api.Actions() {
		if d, ok := a.(ktesting.DeleteAction); ok {
			options = d.GetDeleteOptions()
		}
	}
	if got := b.calls(); got != "patch pods status, delete pods " {
		t.Errorf("it wrote %s", got)
	}
	if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds != 0 || options.Preconditions == nil ||
		*options.Preconditions.UID != "u" {
		t.Errorf("deleted with %+v", options)
	}
}

func TestAMirrorPodAsItIsWritten(t *testing.T) {
	b := newBench(t)
	b.watch()
	b.Send(messages.Pods, staticWanted(static("web", "h1"), statusOf(true, 0)))
	b.RunWork()
	p := b.pod("web")
	if !isMirror(p) || p.OwnerReferences[0].UID != "node-uid" {
		t.Errorf("%+v", p.ObjectMeta)
	}
}

// A failure is in health as long as it lasts. The write is retried when it is due.
func TestAFaultOfTheAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		fault error
		says  string
	}{
		"500": {code(500), "pod default/web: its status cannot be written: the API server has a fault of its own (500): said no"},
		"403": {code(403), "pod default/web: its status cannot"},
		"503": {code(503), "nothing can be written"}, "401": {code(401), "nothing can be written"},
		"429": {code(429), "nothing can be written"},
		"reset": {errors.New("connection reset"),
			"nothing can be written to the API server about pods (1 wait): connection reset"},
		"409": {code(409), ""},
	} {
		b := newBench(t, object("web", "u"))
		fault := c.fault
		b.api.PrependReactor("patch", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			return fault != nil, nil,
				fault
		})
		b.watch()
		b.Send(messages.Pods, desired(object("web", "u"), statusOf(true, 0)))
		b.RunWork()
		got := b.state.Load()
		if (c.says == "") != (len(got) == 0) || c.says != "" && !strings.Contains(got[0].String(), c.says) {
			t.Errorf("%s: health says %v", name, got)
		}
		if len(b.Work) > 0 || len(b.Pending()) != 1 {
			t.Errorf("%s: it does not wait", name)
		}
		fault = nil
		b.Advance(time.Minute)
		b.RunWork()
		if !ready(&b.pod("web").Status) || len(b.state.Load()) != 0 {
			t.Errorf("%s: it is not mended: %v", name, b.state.Load())
		}
	}
}

// An actor that restarts during a write joins it, and does not start a second one.
func TestARestartJoinsTheWriteUnderWay(t *testing.T) {
	b := newBench(t, object("web", "u"))
	entered, release := make(chan struct{}, 8), make(chan struct{})
	b.api.PrependReactor("patch", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		entered <- struct{}{}
		<-release
		return false, nil, nil
	})
	observed := messages.APIPodsObserved{Pods: []*v1.Pod{b.pod("web")},
		At: b.Now()} // the fake blocks while a reactor runs
	b.Send(messages.APIServer, observed)
	b.Send(messages.Pods, desired(object("web", "u"), statusOf(true, 0)))
	first := b.Work[0]
	dead, kill := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); first.Run(dead) }()
	<-entered
	kill()
	<-ended
	again := supervisortest.New(t, messages.Status, New(b.opts)("status"))
	again.Send(messages.APIServer, observed)
	again.Send(messages.Pods, desired(object("web", "u"), statusOf(true, 1)))
	joined := make(chan any)
	go func() { joined <- again.Work[0].Run(context.Background()) }()
	for b.opts.Operations.Waiting(opsPrefix+apiKey("u")) == 0 {
		time.Sleep(time.Millisecond) // until it has joined
	}
	if len(entered) > 0 {
		t.Fatal("two writes at a time")
	}
	close(release)
	again.Work = nil
	again.Send(messages.Status, <-joined)
	again.RunWork()
	if got := b.pod("web").Status.ContainerStatuses[0].RestartCount; got != 1 || len(entered) != 1 {
		t.Errorf("it ends with %d restarts, after %d more writes", got, len(entered))
	}
}
