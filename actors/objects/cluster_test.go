package objects

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// timeout is reached only when something is stuck.
const timeout = 5 * time.Minute

func apiPod(uid string, volumes ...v1.VolumeSource) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: uid, Namespace: "ns", Annotations: map[string]string{objectset.SourceAnnotation: objectset.APISource},
	}}
	for i, v := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint(i), VolumeSource: v})
	}
	return p
}

func ofConfigMap(name string) v1.VolumeSource {
	return v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}
}

func ofSecret(name string) v1.VolumeSource {
	return v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name}}
}

func settings(value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "ns"}, Data: map[string]string{"key": value}}
}

// api is an API server and the objects that are followed there.
type api struct {
	t      *testing.T
	client *fake.Clientset
	board  *Board
	c      *cluster

	mu    sync.Mutex
	asked []string
}

func newAPI(t *testing.T, poll time.Duration, objects ...runtime.Object) *api {
	a := &api{t: t, client: fake.NewClientset(objects...), board: NewBoard(false)}
	a.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a.note(action)
		return false, nil, nil
	})
	a.client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, apiwatch.Interface, error) {
		a.note(action)
		return false, nil, nil
	})
	a.c = newCluster(Options{Client: a.client, Board: a.board, Poll: poll})
	t.Cleanup(func() { a.c.stop() })
	return a
}

func (a *api) note(action clienttesting.Action) {
	a.mu.Lock()
	defer a.mu.Unlock()
	verb := action.GetVerb() + " " + action.GetResource().Resource
	if w, ok := action.(clienttesting.WatchActionImpl); ok {
		verb += " " + w.WatchRestrictions.Fields.String()
	}
	a.asked = append(a.asked, verb)
}

func (a *api) count(verb string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.asked {
		if strings.HasPrefix(v, verb) {
			n++
		}
	}
	return n
}

// refuse has requests with this verb fail while why gives an error.
func (a *api) refuse(verb string, why func() error) {
	a.client.Lock() // followers may be asking, and it does not lock itself
	defer a.client.Unlock()
	a.client.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := why()
		return err != nil, nil, err
	})
}

func (a *api) await(what string, ok func() bool) {
	a.t.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			a.t.Fatalf("%s: never; asked %q", what, a.asked)
		}
	}
}

// holds returns the value in the ConfigMap "settings", or "missing" or "unread".
func (a *api) holds() string {
	o, found, err := a.board.ConfigMap(apiPod("u"), "settings")
	switch {
	case err != nil:
		return "unread"
	case !found:
		return "missing"
	}
	return o.Data["key"]
}

func (a *api) awaitHolds(want string) {
	a.t.Helper()
	a.await("it holds "+want, func() bool { return a.holds() == want })
}

func TestWhatPodsNameIsFollowed(t *testing.T) {
	a := newAPI(t, 0)
	configMaps := a.client.CoreV1().ConfigMaps("ns")
	if a.holds() != "unread" {
		t.Errorf("it holds %s before anybody named it", a.holds())
	}
	static := apiPod("s", ofConfigMap("other"))
	static.Annotations = nil
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"), ofSecret("word")), apiPod("v", ofConfigMap("settings")), static})
	a.awaitHolds("missing")
	a.await("a watch of each", func() bool {
		return a.count("watch configmaps metadata.name=settings") == 1 && a.count("watch secrets metadata.name=word") == 1
	})
	_, err := configMaps.Create(t.Context(), settings("red"), metav1.CreateOptions{})
	must(t, err)
	a.awaitHolds("red")
	version := a.board.VersionOf(apiPod("u", ofConfigMap("settings")))
	_, err = configMaps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "else", Namespace: "ns"}},
		metav1.CreateOptions{})
	must(t, err)
	_, err = configMaps.Update(t.Context(), settings("blue"), metav1.UpdateOptions{})
	must(t, err)
	a.awaitHolds("blue")
	if now := a.board.VersionOf(apiPod("u", ofConfigMap("settings"))); now <= version ||
		a.board.VersionOf(apiPod("u", ofSecret("word"))) > version {
		t.Errorf("versions %d, then %d; of a pod that does not name it %d", version, now,
			a.board.VersionOf(apiPod("u", ofSecret("word"))))
	}
	must(t, configMaps.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	a.awaitHolds("missing")
	if there, missing, unread := a.board.Known(); there+unread > 0 || missing != 2 {
		t.Errorf("known are %d, %d, %d", there, missing, unread)
	}
	if n := a.count("get configmaps"); n != 1 {
		t.Errorf("read %d times at first", n)
	}
	a.c.setPods([]*v1.Pod{apiPod("v", ofSecret("word"))})
	if a.holds() != "unread" || len(a.c.followers) != 1 {
		t.Errorf("it holds %s when nobody names it; %d are followed", a.holds(), len(a.c.followers))
	}
}

// The Node authorizer may learn of a pod after the node.
func TestForbiddenObjects_RequestedAgain(t *testing.T) {
	a := newAPI(t, 0, settings("red"))
	left := 3
	a.refuse("get", func() error {
		if left--; left < 0 {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "settings",
			errors.New("no relationship found"))
	})
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"))})
	a.awaitHolds("red")
	if left != -1 {
		t.Errorf("it was read %d times", 3-left)
	}
}

// A page with the code 404 of a proxy before the API server does not make an object absent: the files of an optional one would be
// removed from running containers.
func TestAPageOfAProxyIsNoAbsence(t *testing.T) {
	a := newAPI(t, 0, settings("red"))
	left := 3
	a.refuse("get", func() error {
		if left--; left < 0 {
			return nil
		}
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Resource: "configmaps"}, "settings",
			"default backend - 404", 0, true)
	})
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"))})
	a.awaitHolds("red")
	if left != -1 {
		t.Errorf("it was read %d times, want 4", 3-left)
	}
}

// Reads that hang keep places from the pods and the namespace that they are for, and from no others.
func TestObjects_ReadsThatHang(t *testing.T) {
	var hung, answered atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/namespaces/greedy/") {
			hung.Add(1)
			defer hung.Add(-1)
			<-r.Context().Done()
			return
		}
		if strings.HasSuffix(r.URL.Path, "/secrets/word") {
			answered.Add(1)
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	must(t, err)
	c := newCluster(Options{Client: client, Board: NewBoard(false)})
	t.Cleanup(c.stop)
	of := func(namespace, uid, secret string) *v1.Pod {
		p := apiPod(uid, ofSecret(secret))
		p.UID, p.Namespace = types.UID(uid), namespace
		return p
	}
	await := func(name string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(timeout); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: never; %d reads hang", name, hung.Load())
			}
		}
	}
	var pods []*v1.Pod
	for i := range 200 {
		pods = append(pods, of("greedy", fmt.Sprint("greedy-", i), fmt.Sprint("secret-", i)))
	}
	c.setPods(pods)
	await("reads of a greedy namespace", func() bool { return hung.Load() >= getsAtATime/4 })
	c.setPods(append(pods, of("other", "u", "word")))
	await("a read of another namespace", func() bool { return answered.Load() > 0 })
	if n := hung.Load(); n > getsAtATime/2 {
		t.Errorf("one namespace has %d reads at a time, want %d at the most", n, getsAtATime/2)
	}
}

// While the server is away, the last objects stay in force. A lasting failure is reported once for all objects.
func TestAServerThatIsAway(t *testing.T) {
	a := newAPI(t, 0, settings("red"))
	var mu sync.Mutex
	away := false
	a.refuse("*", func() error {
		mu.Lock()
		defer mu.Unlock()
		if !away {
			return nil
		}
		return &url.Error{Op: "Get", URL: "https://here/" + hidden, Err: errors.New("connection refused")}
	})
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"))})
	a.awaitHolds("red")
	mu.Lock()
	away = true
	mu.Unlock()
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings")), apiPod("v", ofConfigMap("more"), ofSecret("word"))})
	why := func(name string) string {
		_, _, err := a.board.Secret(apiPod("v"), name)
		return fmt.Sprint(err)
	}
	a.await("a reason", func() bool {
		return strings.Contains(why("word"),
			"not been read from the API server yet: the API server cannot be reached: connection refused")
	})
	a.await("two reasons", func() bool { return a.count("get") >= 0 && len(a.c.problemsAt(time.Now().Add(lastingAfter))) == 1 })
	a.await("both in one", func() bool {
		text, err := json.Marshal(a.c.problemsAt(time.Now().Add(lastingAfter)))
		must(t, err)
		return strings.Contains(string(text),
			"ConfigMap ns/more, Secret ns/word cannot be read: the API server cannot be reached: connection refused") &&
			!strings.Contains(string(text), hidden)
	})
	if a.holds() != "red" {
		t.Errorf("it holds %s", a.holds())
	}
	mu.Lock()
	away = false
	mu.Unlock()
	a.await("the others", func() bool { return !strings.Contains(why("word"), "not been read") })
	a.await("no problem", func() bool { return len(a.c.problemsAt(time.Now().Add(lastingAfter))) == 0 })
}

func TestWhatNeverChangesIsNotWatched(t *testing.T) {
	yes := true
	fixed, changeable := settings("red"), settings("changeable")
	fixed.Immutable, changeable.Name = &yes, "changeable"
	a := newAPI(t, 0, fixed, changeable)
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"), ofConfigMap("changeable"))})
	a.awaitHolds("red")
	a.await("a watch", func() bool { return a.count("watch configmaps metadata.name=changeable") == 1 })
	changeable = changeable.DeepCopy()
	changeable.Immutable = &yes
	_, err := a.client.CoreV1().ConfigMaps("ns").Update(t.Context(), changeable, metav1.UpdateOptions{})
	must(t, err)
	a.c.running.Wait()                                                 // no follower is left
	if n := a.count("list configmaps"); n != 1 || a.holds() != "red" { // the other object's list, before its watch
		t.Errorf("%d lists, it holds %s", n, a.holds())
	}
}

// If an immutable object is replaced by another of its name, each later pod causes a read.
func TestImmutableObject_Replaced(t *testing.T) {
	yes := true
	fixed := func(value string) *v1.ConfigMap {
		o := settings(value)
		o.Immutable = &yes
		return o
	}
	a := newAPI(t, 0, fixed("red"))
	named := func(uid types.UID) *v1.Pod {
		p := apiPod("pod", ofConfigMap("settings"))
		p.UID = uid
		return p
	}
	sees := func(p *v1.Pod) string {
		o, _, err := a.board.ConfigMap(p, "settings")
		if err != nil {
			return "unread"
		}
		return o.Data["key"]
	}
	first, second, third := named("1"), named("2"), named("3")
	a.c.setPods([]*v1.Pod{first})
	a.await("the first pod's", func() bool { return sees(first) == "red" })
	a.c.running.Wait()
	configMaps := a.client.CoreV1().ConfigMaps("ns")
	must(t, configMaps.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
	_, err := configMaps.Create(t.Context(), fixed("green"), metav1.CreateOptions{})
	must(t, err)
	for range 3 { // for the same pods, once
		a.c.setPods([]*v1.Pod{first, second})
	}
	if got := sees(second); got == "red" {
		t.Error("the second pod has the object of before")
	}
	a.await("the second pod's", func() bool { return sees(second) == "green" })
	a.c.running.Wait()
	a.c.setPods([]*v1.Pod{second, third})
	a.await("the third pod's", func() bool { return sees(third) == "green" })
	a.c.running.Wait()
	if n := a.count("get configmaps"); n != 3 {
		t.Errorf("it was read %d times, want once for each pod", n)
	}
}

func TestObjectsThatAreReadFromTimeToTime(t *testing.T) {
	a := newAPI(t, time.Millisecond, settings("red"))
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"))})
	a.awaitHolds("red")
	_, err := a.client.CoreV1().ConfigMaps("ns").Update(t.Context(), settings("blue"), metav1.UpdateOptions{})
	must(t, err)
	a.awaitHolds("blue")
	if n := a.count("watch"); n > 0 {
		t.Errorf("%d watches", n)
	}
}

// A panic over one object restarts the actor, and published objects stay.
func TestAFollowerThatPanics(t *testing.T) {
	a := newAPI(t, 0, settings("red"))
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"))})
	a.awaitHolds("red")
	a.refuse("get", func() error { panic("a bug") })
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"), ofSecret("word"))})
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "a bug") {
			t.Errorf("it panicked with %s", p)
		}
		if a.holds() != "red" {
			t.Errorf("it holds %s", a.holds())
		}
	}()
	for t.Context().Err() == nil {
		a.c.await(t.Context())
	}
}

// The actor announces changes at once, and its version at each check; messages never contain the data of objects.
func TestTheActorInACluster(t *testing.T) {
	word := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "word", Namespace: "ns"},
		Data: map[string][]byte{"key": []byte(hidden)}}
	board := NewBoard(false)
	actor := New(Options{Client: fake.NewClientset(word), Board: board, CheckFrequency: time.Minute})("objects").(*actor)
	k := supervisortest.New(t, messages.Objects, actor)
	if len(k.Work) != 1 || k.Work[0].Name != "AwaitObjects" {
		t.Fatalf("got the work %+v, want AwaitObjects", k.Work)
	}
	await := k.Work[0]
	k.Work = nil
	k.Send(messages.Pods, messages.ObjectsWanted{Pods: []*v1.Pod{apiPod("u", ofSecret("word"))}})
	const all = 3 // versions: of the first lists of Services and RuntimeClasses and of the Secret, in whatever order
	for deadline := time.Now().Add(timeout); board.Version() < all; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("version %d", board.Version())
		}
	}
	k.RunOne(await)
	if _, found, err := board.Secret(apiPod("u"), "word"); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	said := fmt.Sprintf("%+v", k.Take())
	if !strings.Contains(said, "{Version:3}") {
		t.Errorf("told %s", said)
	}
	k.Advance(time.Minute)
	said += fmt.Sprintf("%+v", k.Take())
	text, err := json.Marshal(actor.Inspect())
	must(t, err)
	if said += string(text); strings.Count(said, "{Version:3}") != 4 || strings.Contains(said, hidden) || !strings.Contains(said, `"there":1`) {
		t.Errorf("told %s", said)
	}
	k.End() // goleak fails the package if the followers go on
}
