package registration

import (
	"errors"
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
	}{{at("u", "9"), at("u", "10"), true}, {at("u", "10"), at("u", "9"), false}, {at("v", "9"), at("u", "10"), false}, {nil, at("u", "1"), false}, {at("u", "1"), nil, false}} {
		if got := older(c.a, c.b); got != c.want {
			t.Errorf("%v, %v: %v", c.a, c.b, got)
		}
	}
}

// An answer counts for more than what the watch tells of before it, for a while, and an API server that was set back for more than
// what it had.
func TestAnAPIServerThatWentBack(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	saw := func(version string) Seen { return Seen{Heard: true, Node: at("u", version)} }
	for name, c := range map[string]struct {
		how  func(*book)
		want string
	}{
		"the watch is behind":     {func(b *book) { b.observe(saw("90"), noon.Add(believed)) }, "100"},
		"for long":                {func(b *book) { b.observe(saw("90"), noon.Add(believed+1)) }, "90"},
		"for long, and no news":   {func(b *book) { b.observe(saw("90"), noon); b.settle(noon.Add(believed + 1)) }, "90"},
		"it has caught up":        {func(b *book) { b.observe(saw("90"), noon); b.observe(saw("100"), noon); b.settle(noon.Add(time.Hour)) }, "100"},
		"what it told goes back":  {func(b *book) { b.observe(saw("110"), noon.Add(time.Hour)); b.observe(saw("90"), noon.Add(time.Hour)) }, "90"},
		"before an error":         {func(b *book) { s := saw("90"); s.Err = errors.New("away"); b.observe(s, noon.Add(time.Hour)) }, "100"},
		"an answer goes back":     {func(b *book) { b.done(deed{status: true, over: b.node}, at("u", "90"), noon) }, "90"},
		"an answer that was late": {func(b *book) { d := deed{over: b.node}; b.observe(saw("120"), noon); b.done(d, at("u", "110"), noon) }, "120"},
	} {
		b := book{random: func() float64 { return 0.5 }, every: time.Minute}
		b.observe(saw("80"), noon)
		b.done(deed{status: true, over: b.node}, at("u", "100"), noon)
		b.reconciled = "u"
		c.how(&b)
		if b.node.ResourceVersion != c.want || c.want == "90" && b.reconciled != "" {
			t.Errorf("%s: %s is known, reconciled %q", name, b.node.ResourceVersion, b.reconciled)
		}
	}
}

// What a backup had of the Node is mended, when what was written before is no longer believed to be there.
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
	w.passes(10 * time.Second) // written just now
	w.writes()
	version = "51"
	w.put(was)
	w.sees()
	expect(t, "the writes so soon", w.writes(), []string{})
	w.passes(believed + time.Second)
	expect(t, "the writes", w.writes(), []string{"patch", "patch status"})
	if node := w.stored(); condition(node, v1.NodeReady).Status != v1.ConditionTrue || node.Labels[v1.LabelHostname] != "node" {
		t.Errorf("%v, %+v", node.Labels, condition(node, v1.NodeReady))
	}
}

// A watch does not go on from where the last ended, which may be in the future of an API server that was set back.
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
	w := NewWatch(api, "node")
	defer w.Close()
	until(t, w, func(s Seen) bool { return s.Node != nil && s.Node.ResourceVersion == "100" })
	first := <-streams
	first.Modify(at("u", "110"))
	until(t, w, func(s Seen) bool { return s.Node.ResourceVersion == "110" })
	<-versions
	versions <- "90"
	first.Stop()
	until(t, w, func(s Seen) bool { return s.Node.ResourceVersion == "90" })
	<-streams
}
