package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// waitLimit bounds every wait. Only a failure reaches it.
const waitLimit = time.Minute

func podOn(node, name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{NodeName: node},
	}
}

// rig is the actor with a feed of an API server in memory.
type rig struct {
	*testing.T
	api     *fake.Clientset
	feed    *Feed
	kit     *supervisortest.Kit
	desired *messages.SourcePodsWanted // newest
	seen    *messages.APIPodsObserved  // newest
}

func newRig(t *testing.T, objects ...runtime.Object) *rig {
	t.Helper()
	r := &rig{T: t, api: fake.NewClientset(objects...)}
	r.feed = NewFeed(FeedOptions{Clients: &Clients{Main: r.api, Server: "https://server"}, NodeName: "node"})
	t.Cleanup(r.feed.Close)
	return r
}

// start starts or restarts the actor.
func (r *rig) start() {
	r.kit = supervisortest.New(r, messages.APIServer, New(Options{Feed: r.feed, Server: "https://server"})("apiserver"))
	r.desired, r.seen = nil, nil
}

// until runs the actor until its messages satisfy ok.
func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	for deadline := time.Now().Add(waitLimit); ; {
		for _, m := range r.kit.Take() {
			switch v := m.Msg.(type) {
			case messages.SourcePodsWanted:
				r.desired = &v
			case messages.APIPodsObserved:
				r.seen = &v
			}
		}
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("it did not come to it: %s; told was %+v, %+v", what, r.desired, r.seen)
		}
		w := r.kit.Work[0]
		r.kit.Work = r.kit.Work[1:]
		w.Timeout = 100 * time.Millisecond // instead of half a minute, when nothing comes
		r.kit.RunOne(w)
	}
}

func (r *rig) wants(names ...string) func() bool {
	return func() bool {
		return r.desired != nil && !r.desired.Unknown && slices.Equal(namesOf(r.desired.Pods), names)
	}
}

func namesOf(pods []*v1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

// says reports whether the only problem has this text.
func (r *rig) says(text string, kept bool) func() bool {
	return func() bool {
		return r.desired != nil && len(r.desired.Problems) == 1 && strings.Contains(r.desired.Problems[0].Message, text) &&
			r.desired.Problems[0].KeptLast == kept
	}
}

func (r *rig) create(p *v1.Pod) {
	r.Helper()
	if _, err := r.api.CoreV1().Pods(p.Namespace).Create(r.Context(), p, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) update(name string, how func(*v1.Pod)) {
	r.Helper()
	p, err := r.api.CoreV1().Pods("default").Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	how(p)
	if _, err := r.api.CoreV1().Pods("default").Update(r.Context(), p, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// The pods of this node except mirror pods are desired. All are sent to the status actor, without managedFields.
func TestWhatIsWanted(t *testing.T) {
	mirror := podOn("node", "static-node")
	mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x", objectset.SourceAnnotation: "file"}
	managed := podOn("node", "web")
	managed.Annotations = map[string]string{objectset.SourceAnnotation: "file", "a": "b"}
	managed.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	odd := podOn("node", "odd")
	odd.UID = "../x"
	r := newRig(t, mirror, managed, odd, podOn("other", "far"))
	r.start()
	r.until("the pod", r.wants("web"))
	p := r.desired.Pods[0]
	if p.Annotations[objectset.SourceAnnotation] != "api" || p.Annotations[manifest.FirstSeenAnnotation] == "" || p.Annotations["a"] != "b" ||
		p.ManagedFields != nil {
		t.Errorf("%+v", p.ObjectMeta)
	}
	if got := namesOf(r.seen.Pods); !slices.Equal(got, []string{"odd", "static-node", "web"}) || r.seen.At.IsZero() {
		t.Errorf("status was told of %v", got)
	}
	for _, s := range r.seen.Pods {
		if s.Name == "web" && (s.Annotations[objectset.SourceAnnotation] != "file" || s.Annotations[manifest.FirstSeenAnnotation] != "") {
			t.Errorf("status was told what the API server does not have: %v", s.Annotations)
		}
	}
	if !r.says("because of its UID", false)() {
		t.Errorf("problems %+v", r.desired.Problems)
	}
}

// A pod without a relevant change keeps its object, also after a restart of the actor.
func TestTheSamePodIsTheSameObject(t *testing.T) {
	gated := podOn("node", "web")
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "gate"}}
	r := newRig(t, gated)
	r.start()
	r.until("the pod", r.wants("web"))
	for _, c := range []struct {
		what  string
		how   func(*v1.Pod)
		other bool
	}{
		{"a status", func(p *v1.Pod) { p.Status.Phase, p.Status.PodIP = v1.PodRunning, "10.0.0.1" }, false},
		{"a condition", func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}, false},
		{"managed fields", func(p *v1.Pod) { p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }, false},
		{"a readiness gate", func(p *v1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: "gate", Status: v1.ConditionTrue})
		}, true},
		{"the name of a generated claim", func(p *v1.Pod) {
			p.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("web-gpu-1")}}
		}, true},
		{"a label", func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, true},
		{"an annotation", func(p *v1.Pod) { p.Annotations = map[string]string{"a": "b"} }, true},
		{"the spec", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(9)) }, true},
		{"the end of it", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, true},
		{"its deletion", func(p *v1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(7)) },
			true},
		{"a shorter one", func(p *v1.Pod) { p.DeletionGracePeriodSeconds = new(int64(1)) }, true},
	} {
		before, served := r.desired.Pods[0], r.seen.Pods[0]
		r.update("web", c.how)
		r.until(c.what, func() bool { return r.seen.Pods[0] != served })
		if got := r.desired.Pods[0] != before; got != c.other {
			t.Errorf("%s: it is another object: %v", c.what, got)
		}
		if r.desired.Pods[0].Annotations[manifest.FirstSeenAnnotation] != before.Annotations[manifest.FirstSeenAnnotation] {
			t.Errorf("%s: it was seen first at another time", c.what)
		}
	}
	before := r.desired.Pods[0]
	r.start()
	r.until("the pod, by another actor", r.wants("web"))
	if r.desired.Pods[0] != before {
		t.Error("an actor that was started anew has another object")
	}
}

// The source reports each failure of the API server in words and keeps the last list. Before the first list, it reports that
// the pods are unknown.
func TestWhatTheAPIServerAnswers(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewUnauthorized("no"), "401 Unauthorized"},
		{apierrors.NewForbidden(pods, "", errors.New("no")), "system:node:node in the group system:nodes"},
		{apierrors.NewResourceExpired("too old"), "410 Gone"},
		{apierrors.NewTooManyRequests("busy", 0), "429 Too Many Requests"},
		{apierrors.NewInternalError(errors.New("oh")), "a fault of its own (500)"},
		{apierrors.NewServiceUnavailable("oh"), "a fault of its own (503)"},
		{&url.Error{Op: "Get", URL: "https://server/secret",
			Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}},
			"the API server cannot be reached: dial: connection refused"},
		{context.DeadlineExceeded, "does not answer in time"},
	} {
		t.Run(c.want, func(t *testing.T) {
			r := newRig(t, podOn("node", "web"))
			fails := make(chan bool, 1)
			fails <- true
			failing := func() bool { f := <-fails; fails <- f; return f }
			r.api.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return failing(), nil,
					c.err
			})
			watches := make(chan *watch.RaceFreeFakeWatcher, 100)
			r.api.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) {
				if failing() {
					return true, nil, c.err
				}
				w := watch.NewRaceFreeFake()
				watches <- w
				return true, w, nil
			})
			r.start()
			r.until("the trouble", r.says(c.want, false))
			if !r.desired.Unknown || strings.Contains(r.desired.Problems[0].Message, "secret") || r.seen != nil {
				t.Errorf("told %+v, %+v", r.desired, r.seen)
			}
			<-fails
			fails <- false
			r.until("the pod", func() bool { return r.wants("web")() && len(r.desired.Problems) == 0 })
			before, watched := r.desired.Pods[0], <-watches
			<-fails
			fails <- true
			watched.Stop()
			r.until("the trouble again", r.says(c.want, true))
			if r.desired.Unknown || !r.wants("web")() || r.desired.Pods[0] != before {
				t.Errorf("told %+v", r.desired)
			}
			<-fails
			fails <- false
			r.until("the end of it", func() bool {
				return r.wants("web")() && len(r.desired.Problems) == 0 &&
					r.desired.Pods[0] == before
			})
		})
	}
}

// A watch that ends because its resource version expired (410) leads to a complete list.
func TestARelist(t *testing.T) {
	r := newRig(t, podOn("node", "one"), podOn("node", "two"))
	watches := make(chan *watch.RaceFreeFakeWatcher, 100)
	r.api.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewRaceFreeFake()
		watches <- w
		return true, w, nil
	})
	r.start()
	r.until("both", r.wants("one", "two"))
	one := r.desired.Pods[0]
	if one.Name != "one" {
		one = r.desired.Pods[1]
	}
	w := <-watches
	if err := r.api.CoreV1().Pods("default").Delete(t.Context(), "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.create(podOn("node", "three"))
	gone := apierrors.NewResourceExpired("too old").Status()
	w.Error(&gone)
	r.until("what is there now", r.wants("one", "three"))
	if !slices.Contains(r.desired.Pods, one) || len(r.desired.Problems) > 0 {
		t.Errorf("told %+v", r.desired)
	}
}

// Without changes, everything is sent again at intervals. It is sent at once to a restarted actor.
func TestAllIsReportedAgain(t *testing.T) {
	r := newRig(t, podOn("node", "web"))
	r.start()
	r.until("the pod", r.wants("web"))
	r.desired, r.seen = nil, nil
	r.until("the same again", func() bool { return r.wants("web")() && r.seen != nil })
	r.desired, r.seen = nil, nil
	r.kit.Send(messages.Sources, messages.ResendDesired{})
	r.kit.Send(messages.Node, messages.ServiceStarted{Service: messages.Status})
	if sent := r.kit.Take(); len(sent) != 2 || sent[0].To != messages.Pods || sent[1].To != messages.Status {
		t.Errorf("told %+v", sent)
	}
}

// A panic while an event is recorded ends the watch, not the process.
func TestAPanicOfALookEndsTheWatch(t *testing.T) {
	feed := NewFeed(FeedOptions{NodeName: "node", Log: slog.New(slog.DiscardHandler)})
	feed.opts.Clock = nil // the bug
	inner := watch.NewFake()
	o := apiclient.Observe(inner, feed.opts.Log, "", feed.looks)
	inner.Add(&v1.Pod{})
	for range o.ResultChan() { // until it is closed
		t.Error("the event was passed on")
	}
	o.Stop()
}
