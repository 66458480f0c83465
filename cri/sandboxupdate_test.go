package cri

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A runtime that does not implement the call is not an error.
func TestUpdateSandbox_HasPodResources(t *testing.T) {
	var reported *runtimeapi.UpdatePodSandboxResourcesRequest
	var answer error
	c := fakeClient(t, &fakeRuntime{updateSandbox: func(r *runtimeapi.UpdatePodSandboxResourcesRequest) error {
		reported = r
		return answer
	}}, Options{})
	for _, e := range []struct {
		answer error
		fails  bool
	}{
		{nil, false}, {status.Error(codes.Unimplemented, "unknown method"), false},
		{status.Error(codes.Unknown, "not implemented yet"), false},
		{status.Error(codes.Unknown, "a plugin does not want it"), true}, {status.Error(codes.Unavailable, "not implemented"), true},
	} {
		answer = e.answer
		if err := c.UpdatePodSandboxResources(t.Context(), "s", nil, nil); (err != nil) != e.fails {
			t.Errorf("answered %v: %v", e.answer, err)
		}
	}
	if reported.GetPodSandboxId() != "s" || reported.GetResources() != nil {
		t.Errorf("told %+v", reported)
	}
}
