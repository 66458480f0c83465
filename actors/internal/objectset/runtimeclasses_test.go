package objectset

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Static pods use the folder's classes, all pods the API server's; an absent class is an error that names it.
func TestTheHandlerOfAPod(t *testing.T) {
	none := func(*Board) {}
	folder := func(b *Board) { b.Publish(&Set{RuntimeClasses: map[string]string{"class": "folders"}}) }
	empty := func(b *Board) { b.Publish(&Set{}) }
	cluster := func(b *Board) { b.InCluster() }
	classes := func(b *Board) { b.InCluster(); b.PutRuntimeClasses(map[string]string{"class": "servers"}) }
	nothing := func(b *Board) { b.InCluster(); b.PutRuntimeClasses(nil) }
	down := func(b *Board) { b.InCluster(); b.FailRuntimeClasses(errors.New("away")) }
	lost := func(b *Board) { classes(b); b.FailRuntimeClasses(errors.New("away")) }
	for _, c := range []struct {
		name      string
		source    string
		hasFolder bool
		put       []func(*Board)
		want, why string // why empty: it is known
		unread    bool
	}{
		{"of the API server", "api", false, []func(*Board){classes}, "servers", "", false},
		{"of the API server, which is away since", "api", false, []func(*Board){lost}, "servers", "", false},
		{"of the API server, on a node with a folder", "api", true, []func(*Board){folder, classes}, "servers", "", false},
		{"of the API server alone, in the folder", "api", true, []func(*Board){folder, nothing}, "", `runtimeclass.node.k8s.io "class" not found`, false},
		{"unread", "api", false, []func(*Board){cluster}, "", `RuntimeClass "class": it has not been read from the API server yet`, true},
		{"unread, and why", "api", false, []func(*Board){down}, "", "away", true},
		{"not there", "api", false, []func(*Board){nothing}, "", `runtimeclass.node.k8s.io "class" not found`, false},
		{"static, of the folder", "file", true, []func(*Board){folder}, "folders", "", false},
		{"static, of the folder first", "file", true, []func(*Board){folder, classes}, "folders", "", false},
		{"static, of the API server", "file", true, []func(*Board){empty, classes}, "servers", "", false},
		{"static, of the API server without a folder", "file", false, []func(*Board){classes}, "servers", "", false},
		{"static, in a folder that is not read", "file", true, []func(*Board){none}, "", "(--object-dir) has not been read yet",
			true},
		{"static, in a folder that is not read, in a cluster", "file", true, []func(*Board){classes}, "",
			"(--object-dir) has not been read yet", true},
		{"static, not in the folder", "file", true, []func(*Board){empty}, "", `RuntimeClass "class" does not exist in the folder of objects (--object-dir)`, false},
		{"static, not in the folder and unread", "file", true, []func(*Board){empty, cluster}, "", "from the API server yet",
			true},
		{"static, nowhere", "file", true, []func(*Board){empty, nothing}, "", "not found, nor is it in the folder of objects",
			false},
		{"static, on a node with neither", "file", false, []func(*Board){none}, "", "neither an API server nor a folder", false},
	} {
		b := NewBoard(c.hasFolder)
		for _, put := range c.put {
			put(b)
		}
		p := pod(c.source)
		if handler, err := b.RuntimeHandler(p); handler != "" || err != nil {
			t.Errorf("%s: a pod that names none: %q, %v", c.name, handler, err)
		}
		p.Spec.RuntimeClassName = new("class")
		handler, err := b.RuntimeHandler(p)
		if handler != c.want || (err != nil) != (c.why != "") || err != nil && !strings.Contains(err.Error(), c.why) ||
			IsUnread(err) != c.unread {
			t.Errorf("%s: %q, %v", c.name, handler, err)
		}
	}
	if handler, err := (*Board)(nil).RuntimeHandler(&v1.Pod{}); handler != "" || err != nil {
		t.Errorf("a node without objects: %q, %v", handler, err)
	}
	if _, err := (*Board)(nil).RuntimeHandler(&v1.Pod{Spec: v1.PodSpec{RuntimeClassName: new("class")}}); err == nil ||
		!strings.Contains(err.Error(), "neither") {
		t.Errorf("a node without objects: %v", err)
	}
}

// Whoever waits is woken by the first word on RuntimeClasses.
func TestTheFirstRuntimeClassesWake(t *testing.T) {
	b := NewBoard(false)
	b.FailRuntimeClasses(errors.New("away"))
	next := b.next()
	b.PutRuntimeClasses(nil)
	select {
	case <-next:
	default:
		t.Error("who waits is not woken")
	}
}
