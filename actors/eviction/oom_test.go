package eviction

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/eviction/oomkill"
	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// running returns a pod with a container c of this ID.
func running(name, uid, id string) board.Pod {
	return board.Pod{
		Pod:    &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}},
		Status: &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: "containerd://" + id}}},
	}
}

func TestWhoseProcessWasEnded(t *testing.T) {
	pods := []board.Pod{running("one", "u-1", "abc"), running("ten", "u-10", "def")}
	const (
		own      = "the container has used up its memory limit"
		ofPod    = "the pod has used up its memory limit"
		together = "pods together have used up the memory of cgroup /kubepods"
		node     = "the node has no memory left"
	)
	for _, c := range []struct{ group, limited, pod, container, why string }{
		{"/kubepods/burstable/podu-1/abc", "/kubepods/burstable/podu-1/abc", "one", "c", own},
		{"/kubepods/burstable/podu-10/def", "/kubepods/burstable/podu-10", "ten", "c", ofPod},
		{"/kubepods.slice/kubepods-podu_10.slice/cri-containerd-def.scope", "/kubepods.slice/kubepods-podu_10.slice", "ten", "c", ofPod},
		{"/kubepods/podu-1/other", "/kubepods", "one", "", together},
		{"/kubepods/podu-1/abc", "", "one", "c", node},
		{"/kubepods/podu-1/abc/podu-10/def", "/kubepods/podu-1/abc/podu-10", "one", "c", own}, // as a container names it
		{"/kubepods/podu-100/abc", "/kubepods/podu-100", "", "", ""},
		{"/user.slice", "", "", "", ""},
	} {
		pod, container := victim(pods, c.group)
		switch {
		case pod == nil && c.pod == "":
		case pod == nil || pod.Pod.Name != c.pod || container != c.container:
			t.Errorf("%s: %v, container %q", c.group, pod, container)
		default:
			if why := whyKilled(pod, oomkill.Kill{Limited: c.limited}); why != c.why {
				t.Errorf("%s: %s", c.group, why)
			}
		}
	}
}

func TestKillsByTheKernelAreReportedAtOnce(t *testing.T) {
	n := newNode(t, Limits{})
	var next killRead
	n.opts.NextKill = func(context.Context) (oomkill.Kill, error) { return next.kill, next.err }
	n.opts.NextCounted = func(context.Context) (oomkill.Kill, error) { return next.kill, next.err }
	n.board.Publish(board.Snapshot{Pods: []board.Pod{running("p", "u", "abc")}})
	n.start()
	told := 0
	comes := func(when string, k killRead, want ...string) {
		t.Helper()
		n.Take()
		next = k
		i := slices.IndexFunc(n.Work, func(w supervisors.Work) bool { return w.Name == "await a kill by the kernel" })
		if i < 0 {
			t.Fatalf("%s: no kill is awaited", when)
		}
		w := n.Work[i]
		n.Work = slices.Delete(n.Work, i, i+1)
		n.RunOne(w)
		var got []string
		for _, s := range n.Take() {
			if e, is := s.Msg.(messages.RecordEvent); is {
				got = append(got, strings.Join([]string{e.Object.Kind, e.Object.Name, e.Object.FieldPath, e.Reason, e.Message}, "|"))
			}
			if m, is := s.Msg.(messages.ContainerOutOfMemory); is { // each goes with the Event of a container
				told++
				if s.To != messages.PodAddress("u") || m.Container != "c" || m.ContainerID != "abc" || m.At.IsZero() {
					t.Errorf("%s: %s is sent %+v", when, s.To, m)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	limited := oomkill.Kill{Process: "hog", PID: 7, Group: "/kubepods/podu/abc", Limited: "/kubepods/podu/abc"}
	comes("a container", killRead{kill: limited},
		"Pod|p|spec.containers{c}|OOMKilling|The kernel ended process hog (pid 7): the container has used up its memory limit")
	comes("the machine", killRead{kill: oomkill.Kill{Process: "db", PID: 8, Group: "/user.slice"}},
		"Node|n||SystemOOM|System OOM encountered, victim process: db, pid: 8")
	comes("a pod of a machine that is short", killRead{kill: oomkill.Kill{Process: "hog", PID: 9, Group: "/kubepods/podu/abc"}},
		"Node|n||SystemOOM|System OOM encountered, victim process: hog, pid: 9",
		"Pod|p|spec.containers{c}|OOMKilling|The kernel ended process hog (pid 9): the node has no memory left")
	comes("somebody else's limit", killRead{kill: oomkill.Kill{Process: "x", PID: 1, Group: "/a", Limited: "/a"}})
	comes("a log that cannot be read any more", killRead{err: errors.New("denied")})
	comes("by counters", killRead{kill: oomkill.Kill{Group: "/kubepods/podu/abc", Limited: "/kubepods/podu", Times: 1}},
		"Pod|p|spec.containers{c}|OOMKilling|The kernel ended a process: the pod has used up its memory limit")
	comes("the log is tried again", killRead{err: errors.New("denied")})
	comes("by counters of a machine that is short", killRead{kill: oomkill.Kill{Group: "/kubepods/podu/abc", Times: 2}},
		"Node|n||SystemOOM|System OOM encountered, 2 processes",
		"Pod|p|spec.containers{c}|OOMKilling|The kernel ended 2 processes: the node has no memory left")
	comes("the log once more", killRead{err: errors.New("denied")})
	comes("counters that cannot be read, either", killRead{err: errors.New("no such file")})
	if told != 4 {
		t.Errorf("the pod is told %d times of a container that ran out of memory, want 4", told)
	}
	if slices.ContainsFunc(n.Work, func(w supervisors.Work) bool { return w.Name == "await a kill by the kernel" }) {
		t.Error("it is asked again at once")
	}
	n.Advance(logRetry)
	comes("a log that can be read again", killRead{kill: limited},
		"Pod|p|spec.containers{c}|OOMKilling|The kernel ended process hog (pid 7): the container has used up its memory limit")
}
