package podsapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

// podOf is a pod named after its UID, in a phase.
func podOf(uid string, phase v1.PodPhase) board.Pod {
	return board.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + uid, Namespace: "ns", UID: types.UID(uid)}},
		Status: &v1.PodStatus{Phase: phase}}
}

// decode returns "UID phase".
func decode(t *testing.T, encoded []byte) string {
	t.Helper()
	var p v1.Pod
	if err := p.Unmarshal(encoded); err != nil {
		t.Fatal(err)
	}
	if p.Name != "pod-"+string(p.UID) || p.Namespace != "ns" {
		t.Errorf("got pod %s/%s with UID %s", p.Namespace, p.Name, p.UID)
	}
	return strings.TrimSpace(string(p.UID) + " " + string(p.Status.Phase))
}

// A list is in the order of UIDs, and has a pod once that has ended and is still in the API server.
func TestListAndGet(t *testing.T) {
	b := board.New()
	b.Publish(board.Snapshot{Pods: []board.Pod{podOf("2", v1.PodRunning), podOf("1", v1.PodPending)},
		Over: []board.Pod{podOf("3", v1.PodSucceeded), podOf("2", v1.PodFailed)}})
	p := &pods{board: b}
	list, err := p.ListPods(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range list.GetPods() {
		got = append(got, decode(t, one))
	}
	if want := []string{"1 Pending", "2 Running", "3 Succeeded"}; !slices.Equal(got, want) {
		t.Errorf("got list %q, want %q", got, want)
	}
	one, err := p.GetPod(t.Context(), &api.GetPodRequest{PodUID: "3"})
	if err != nil || decode(t, one.GetPod()) != "3 Succeeded" {
		t.Errorf("got %v, %v, want pod 3", one, err)
	}
	if _, err := p.GetPod(t.Context(), &api.GetPodRequest{PodUID: "4"}); status.Code(err) != codes.NotFound {
		t.Errorf("got %v for an unknown UID, want NotFound", err)
	}
}

// Until every source has reported, also after a restart of the pods actor, pods are added, but none is deleted.
func TestWatch(t *testing.T) {
	var got []string
	w := watch{sent: map[types.UID]board.Pod{}, send: func(e *api.WatchPodsEvent) error {
		if e.GetPod() == nil {
			got = append(got, e.GetType().String())
			return nil
		}
		got = append(got, fmt.Sprintf("%s %s", e.GetType(), decode(t, e.GetPod())))
		return nil
	}}
	first, second := podOf("1", v1.PodPending), podOf("2", v1.PodRunning)
	ends := second
	ends.Status = &v1.PodStatus{Phase: v1.PodSucceeded}
	unheard := []messages.Address{messages.Server}
	for i, step := range []struct {
		published board.Snapshot
		want      []string
	}{
		{board.Snapshot{Pods: []board.Pod{first}, Unheard: unheard}, []string{"ADDED 1 Pending"}},
		{board.Snapshot{Pods: []board.Pod{first, second}, Audited: true}, []string{"ADDED 2 Running", "INITIAL_SYNC_COMPLETE"}},
		{board.Snapshot{Pods: []board.Pod{first, second}, Audited: true}, nil},
		{board.Snapshot{Pods: []board.Pod{first, ends}, Audited: true}, []string{"MODIFIED 2 Succeeded"}},
		{board.Snapshot{Pods: []board.Pod{first}, Over: []board.Pod{ends}, Audited: true}, nil},
		{board.Snapshot{Unheard: unheard, Audited: true, Life: time.Unix(1, 0)}, nil},
		{board.Snapshot{Pods: []board.Pod{first}, Audited: true, Life: time.Unix(1, 0)}, []string{"DELETED 2"}},
	} {
		got = nil
		step.published.Version = uint64(i + 1)
		if err := w.update(&step.published); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}
