package registration

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func at(uid types.UID, version string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: uid, ResourceVersion: version}}
}

func TestAnOlderWordIsNoNews(t *testing.T) {
	for _, c := range []struct {
		a, b *v1.Node
		want bool
	}{{at("u", "9"), at("u", "10"), true}, {at("u", "10"), at("u", "9"), false}, {at("v", "9"), at("u", "10"), false},
		{nil, at("u", "1"), false}, {at("u", "1"), nil, false}} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%v, %v: %v", c.a, c.b, got)
		}
	}
}

// An answer counts for more than what the watch tells of before it, and an API server that was set back, as a list shows that was
// begun after the answer, for more than what it had.
func TestAnAPIServerThatWentBack(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	saw := func(version string, list uint64) Seen { return Seen{Heard: true, Node: at("u", version), List: list} }
	failed := saw("90", 1)
	failed.Err = errors.New("away")
	for name, c := range map[string]struct {
		how  func(*nodeState)
		want string
	}{
		"the watch is behind":    {func(b *nodeState) { b.observe(saw("90", 1)) }, "100"},
		"so is a list":           {func(b *nodeState) { b.observe(saw("90", 2)) }, "100"},
		"it went back":           {func(b *nodeState) { b.observe(saw("90", 3)) }, "90"},
		"what it told goes back": {func(b *nodeState) { b.observe(saw("110", 2)); b.observe(saw("90", 3)) }, "90"},
		"written before it tells": {func(b *nodeState) {
			b.done(write{status: true, over: b.node}, at("u", "110"), 3, noon)
			b.observe(saw("90", 3))
		}, "110"},
		"before an error":     {func(b *nodeState) { b.observe(failed) }, "100"},
		"an answer goes back": {func(b *nodeState) { b.done(write{status: true, over: b.node}, at("u", "90"), 2, noon) }, "90"},
		"an answer that was late": {func(b *nodeState) {
			d := write{over: b.node}
			b.observe(saw("120", 2))
			b.done(d, at("u", "110"), 2, noon)
		}, "120"},
	} {
		b := nodeState{random: func() float64 { return 0.5 }, every: time.Minute}
		b.observe(saw("80", 1))
		b.done(write{status: true, over: b.node}, at("u", "100"), 2, noon)
		b.reconciled = "u"
		c.how(&b)
		if b.node.ResourceVersion != c.want || c.want == "90" && b.reconciled != "" {
			t.Errorf("%s: %s is known, reconciled %q", name, b.node.ResourceVersion, b.reconciled)
		}
	}
}

// What a backup had of the Node is mended as soon as it is listed. What was told of before an answer is no news.
func TestANodeThatWentBack(t *testing.T) {
	w := newWorld(t, nil)
	version := "100"
	for _, verb := range []string{"create", "patch"} {
		w.api.PrependReactor(verb, "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			_, object, err := clienttesting.ObjectReaction(w.api.Tracker())(a)
			if node, is := object.(*v1.Node); is {
				node.UID, node.ResourceVersion = "u", version
				w.put(node)
			}
			return true, object, err
		})
	}
	w.start()
	w.sees()
	w.sees()
	expect(t, "the writes", w.writes(), []string{"create"})
	was := w.stored()
	was.ResourceVersion = "50"
	*condition(was, v1.NodeReady) = v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionUnknown, Reason: "NodeStatusUnknown"}
	delete(was.Labels, v1.LabelHostname)
	w.passes(time.Minute)
	w.runtime.NetworkReady = false
	w.passes(10 * time.Second)
	w.runtime.NetworkReady = true
	w.opts.Watch.beginList()
	w.passes(10 * time.Second) // written just now, while a list is under way
	w.writes()
	version = "51"
	w.put(was)
	w.sees()
	expect(t, "the writes after what was listed before", w.writes(), []string{})
	w.feed.List = w.opts.Watch.beginList()
	w.sees()
	expect(t, "the writes", w.writes(), []string{"patch", "patch status"})
	if node := w.stored(); condition(node, v1.NodeReady).Status != v1.ConditionTrue || node.Labels[v1.LabelHostname] != "node" {
		t.Errorf("%v, %+v", node.Labels, condition(node, v1.NodeReady))
	}
}

// A watch does not go on from where the last ended, which may be in the future of an API server that was set back. What it tells says
// from which list it is.
func TestAWatchBeginsWithAList(t *testing.T) {
	api := fake.NewClientset()
	versions := make(chan string, 1)
	versions <- "100"
	api.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		version := <-versions
		versions <- version
		return true, &v1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: []v1.Node{*at("u", version)}}, nil
	})
	streams := make(chan *watch.FakeWatcher, 1)
	api.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		stream := watch.NewFake()
		streams <- stream
		return true, stream, nil
	})
	w := NewWatch(api, "node", slog.New(slog.DiscardHandler))
	defer w.Close()
	until(t, w, func(s Seen) bool { return s.Node != nil && s.Node.ResourceVersion == "100" && s.List == 1 })
	first := <-streams
	first.Modify(at("u", "110"))
	until(t, w, func(s Seen) bool { return s.Node.ResourceVersion == "110" && s.List == 1 })
	<-versions
	versions <- "90"
	first.Stop()
	until(t, w, func(s Seen) bool { return s.Node.ResourceVersion == "90" && s.List == w.begun() })
	<-streams
}
