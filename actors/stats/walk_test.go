package stats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/messages"
)

func TestWalk(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "v", "a", "file"), 8192)
	must(os.Link(filepath.Join(dir, "v", "a", "file"), filepath.Join(dir, "v", "again")))
	write(t, filepath.Join(dir, "elsewhere", "big"), 1<<20)
	must(os.Symlink("../elsewhere", filepath.Join(dir, "v", "link")))
	must(os.Truncate(filepath.Join(dir, "v", "a", "file"), 1<<40)) // a hole
	root, err := safepath.OpenRoot(dir)
	must(err)
	t.Cleanup(func() { _ = root.Close() })
	s, err := used(t.Context(), root, "v")
	must(err)
	if s.inodesUsed != 4 || s.used < 8192 || s.used > 1<<16 { // v, a, file, link
		t.Errorf("%d bytes, %d inodes", s.used, s.inodesUsed)
	}
	if s, err := used(t.Context(), root, "none"); err != nil || s.used != 0 {
		t.Errorf("nothing there: %v, %v", s, err)
	}
	if _, err := used(t.Context(), root, "v/link"); err == nil {
		t.Error("a link was followed")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := used(ended, root, "v"); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	must(os.MkdirAll(filepath.Join(dir, "deep", strings.Repeat("d/", walkDepth+2)), 0o700))
	if s, err := used(t.Context(), root, "deep"); !errors.Is(err, errDeep) || s.inodesUsed != walkDepth+2 {
		t.Errorf("nested: %d, %v", s.inodesUsed, err)
	}
	many := filepath.Join(dir, "many")
	must(os.Mkdir(many, 0o700))
	for i := range 3 * walkBatch / 2 {
		write(t, filepath.Join(many, fmt.Sprint(i)), 1)
	}
	if s, err := used(t.Context(), root, "many"); err != nil || s.inodesUsed != 3*walkBatch/2+1 {
		t.Errorf("many: %d, %v", s.inodesUsed, err)
	}
}

// Few pods are walked at once, each again only when its figures are old, and a pod that is gone is forgotten.
func TestTheActor(t *testing.T) {
	r := newRig(t)
	k := r.actor
	var pods []*v1.Pod
	for i := range 5 {
		pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u", i)), Name: "p", Namespace: "n"}})
	}
	ask := func(n int) { k.Send(messages.Node, messages.MeasureUsage{Pods: pods[:n]}) }
	ask(5)
	ask(5) // nobody is walked twice
	if len(k.Work) != walkers {
		t.Fatalf("%d walks at once", len(k.Work))
	}
	done := 0
	for len(k.Work) > 0 {
		w := k.Work[0]
		k.Work = k.Work[1:]
		k.RunOne(w)
		done++
	}
	if done != 5 || r.usage.of("u4") == nil {
		t.Errorf("%d walks", done)
	}
	ask(5)
	if len(k.Work) != 0 {
		t.Error("fresh figures were measured again")
	}
	k.Clock.SetTime(begin.Add(time.Hour))
	ask(2)
	if len(k.Work) != 2 || r.usage.of("u4") != nil {
		t.Errorf("an hour later %d walks; the pod that is gone has %v", len(k.Work), r.usage.of("u4"))
	}
}

// A walk that hangs is waited for by one request alone; figures from before stay, with the reason.
func TestAWalkThatFails(t *testing.T) {
	r := newRig(t, pod("web", containerID1))
	uid := types.UID("uid-web")
	r.usage.put(uid, &podUsage{volumes: map[string]space{"data": {used: 5}}})
	hang := make(chan struct{})
	r.usage.walk(uid, func() (*podUsage, error) { <-hang; return &podUsage{}, nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.walkPod(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	u := r.usage.of(uid)
	if u.err == nil || u.volumes["data"].used != 5 {
		t.Errorf("%+v", u)
	}
	measured, failed := r.usage.summary()
	if measured != 1 || len(failed) != 1 || !strings.HasPrefix(failed[0], "uid-web: the volumes of the pod") {
		t.Errorf("%d, %q", measured, failed)
	}
	_, lacks := r.Summary(t.Context(), false)
	if len(lacks) == 0 || !strings.HasPrefix(lacks[0], "pod default/web: the volumes") {
		t.Errorf("lacks %q", lacks)
	}
	close(hang)
}
