// Package podsapi serves the kubelet's Pods API v1alpha1: the pods on the node with their statuses, as a list, one by one, and as
// a watch, without the API server (KEP-4188, feature gate PodsAPI).
package podsapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/server/podresources"
)

// New returns the handler: gRPC over HTTP/2 without TLS. Requests are limited like those for pod resources, as by the kubelet.
func New(b *board.Board) http.Handler {
	s := grpc.NewServer(podresources.Limited())
	api.RegisterPodsServer(s, &pods{board: b})
	return s
}

type pods struct {
	api.UnimplementedPodsServer
	board *board.Board
}

// all returns the pods of a snapshot by UID, with those that have ended and are still in the API server.
func all(s *board.Snapshot) []board.Pod {
	found := slices.Concat(s.Pods, s.Over)
	slices.SortStableFunc(found, func(a, b board.Pod) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	return slices.CompactFunc(found, func(a, b board.Pod) bool { return a.Pod.UID == b.Pod.UID })
}

// encode returns a pod with its status as protobuf.
func encode(p board.Pod) ([]byte, error) {
	pod := *p.Pod
	if p.Status != nil {
		pod.Status = *p.Status
	}
	encoded, err := pod.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encoding pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	return encoded, nil
}

// ListPods implements api.PodsServer.
func (p *pods) ListPods(context.Context, *api.ListPodsRequest) (*api.ListPodsResponse, error) {
	out := &api.ListPodsResponse{}
	for _, pod := range all(p.board.Now()) {
		encoded, err := encode(pod)
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, encoded)
	}
	return out, nil
}

// GetPod implements api.PodsServer.
func (p *pods) GetPod(_ context.Context, r *api.GetPodRequest) (*api.GetPodResponse, error) {
	for _, pod := range all(p.board.Now()) {
		if string(pod.Pod.UID) == r.GetPodUID() {
			encoded, err := encode(pod)
			return &api.GetPodResponse{Pod: encoded}, err
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.GetPodUID())
}

// WatchPods implements api.PodsServer. A client that reads slowly gets fewer, newer states of a pod, and is never disconnected.
// After the start of the agent, or of its pods actor, pods are missing from the board until every source has reported. Until then
// no pod is DELETED, and the initial list is not complete.
func (p *pods) WatchPods(_ *api.WatchPodsRequest, stream api.Pods_WatchPodsServer) error {
	w := watch{send: stream.Send, sent: map[types.UID]board.Pod{}}
	for version := uint64(0); ; {
		s, err := p.board.After(stream.Context(), version)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		version = s.Version
		if err := w.update(s); err != nil {
			return err
		}
	}
}

// watch is the state of one client's watch.
type watch struct {
	send   func(*api.WatchPodsEvent) error
	sent   map[types.UID]board.Pod // by UID, as last sent
	synced bool                    // INITIAL_SYNC_COMPLETE was sent
}

// update sends the differences between what was sent and a snapshot.
func (w *watch) update(s *board.Snapshot) error {
	found := map[types.UID]bool{}
	for _, pod := range all(s) {
		found[pod.Pod.UID] = true
		last, known := w.sent[pod.Pod.UID]
		if known && last.Pod == pod.Pod && last.Status == pod.Status {
			continue
		}
		event := api.EventType_ADDED
		if known {
			event = api.EventType_MODIFIED
		}
		encoded, err := encode(pod)
		if err != nil {
			return err
		}
		if err := w.send(&api.WatchPodsEvent{Type: event, Pod: encoded}); err != nil {
			return err
		}
		w.sent[pod.Pod.UID] = pod
	}
	if !s.Complete() {
		return nil
	}
	for uid, pod := range w.sent {
		if found[uid] {
			continue
		}
		encoded, err := encode(board.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: pod.Pod.Name, Namespace: pod.Pod.Namespace, UID: uid}}})
		if err != nil {
			return err
		}
		if err := w.send(&api.WatchPodsEvent{Type: api.EventType_DELETED, Pod: encoded}); err != nil {
			return err
		}
		delete(w.sent, uid)
	}
	if w.synced {
		return nil
	}
	w.synced = true
	return w.send(&api.WatchPodsEvent{Type: api.EventType_INITIAL_SYNC_COMPLETE})
}
