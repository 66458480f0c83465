package runtime

import (
	"context"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/messages"
)

// forgetful is a runtime that reports every container as unknown in its statuses, but not in its lists.
type forgetful struct{ *fake }

func (f forgetful) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	got, err := f.fake.ContainerStatus(ctx, id, verbose)
	if err == nil {
		got = &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
			Id: got.Status.Id, Metadata: got.Status.Metadata, Labels: got.Status.Labels,
			State: runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		}}
	}
	return got, err
}

// List and status must agree before a container counts as unknown, since that ends it.
func TestAListAndAStatusThatDisagree(t *testing.T) {
	f := newFake()
	f.pod("u1", "a0r")
	if _, err := readPod(t.Context(), forgetful{f}, "u1", time.Now(), nil, messages.PodFacts{}); err == nil {
		t.Error("a container that runs was read as unknown")
	}
	f.set(f.containers[0].Id, runtimeapi.ContainerState_CONTAINER_UNKNOWN, 0)
	got, err := readPod(t.Context(), forgetful{f}, "u1", time.Now(), nil, messages.PodFacts{})
	if err != nil || len(got.facts.Containers) != 1 || got.facts.Containers[0].State != messages.ContainerUnknown {
		t.Errorf("where both call it unknown: %+v, %v", got.facts.Containers, err)
	}
}
