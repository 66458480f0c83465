package agent

import (
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/playlet-dev/playlet/cri/sim"
)

// With the gate PodsAPI, a client watches a pod's life on the kubelet's socket.
func TestThePodsAPI(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{}, "--feature-gates=PodsAPI=true")
	r.start(nil)
	conn, err := grpc.NewClient("unix:"+filepath.Join(r.dir, "root", "pods-api", "pods-api.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := api.NewPodsClient(conn).WatchPods(t.Context(), &api.WatchPodsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	until := func(want api.EventType, holds func(*v1.Pod) bool) {
		t.Helper()
		for {
			event, err := stream.Recv()
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			var p v1.Pod
			if err := p.Unmarshal(event.GetPod()); err != nil {
				t.Fatal(err)
			}
			if event.GetType() == want && holds(&p) {
				return
			}
		}
	}
	whichever := func(*v1.Pod) bool { return true }
	until(api.EventType_INITIAL_SYNC_COMPLETE, whichever)
	r.write("web.yaml", manifest("web", "Always", nil, []string{"main forever"}))
	until(api.EventType_ADDED, whichever)
	until(api.EventType_MODIFIED, func(p *v1.Pod) bool { return p.Name == "web-node" && p.Status.Phase == v1.PodRunning })
	r.remove("web.yaml")
	until(api.EventType_DELETED, func(p *v1.Pod) bool { return p.Name == "web-node" })
}
