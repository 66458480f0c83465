package cri

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The client knows the objects that its own calls end, while they run and for a while after; a failed call ends nothing.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{}
		first, second := c.ends.begin("a"), c.ends.begin("a")
		if !c.Ends("a", false) || c.Ends("b", false) {
			t.Errorf("while two calls end a: a %t, b %t", c.Ends("a", false), c.Ends("b", false))
		}
		first(errors.New("no"))
		if !c.Ends("a", false) {
			t.Error("one of two calls has failed, and a counts as not ended")
		}
		second(nil)
		time.Sleep(endsKept - 1)
		if !c.Ends("a", false) {
			t.Error("a was forgotten too early")
		}
		time.Sleep(1) //nolint:staticcheck // one nanosecond is meant
		if c.Ends("a", false) {
			t.Error("a was not forgotten")
		}
		c.ends.begin("a")(nil)
		if !c.Ends("a", true) || len(c.ends.byID) > 0 {
			t.Errorf("after a's last event: kept %v", c.ends.byID)
		}
		last := c.ends.begin("a")
		if !c.Ends("a", true) {
			t.Error("its last event came during the call, and was news")
		}
		if last(nil); len(c.ends.byID) > 0 {
			t.Errorf("after that call: kept %v", c.ends.byID)
		}
		c.ends.begin("b")(errors.New("no"))
		if c.Ends("b", false) || len(c.ends.byID) > 0 {
			t.Errorf("after a failed call: b %t, kept %v", c.Ends("b", false), c.ends.byID)
		}
	})
}

func TestEnds_Calls(t *testing.T) {
	var c *Client
	inside := false
	f := &fakeRuntime{stopContainer: func(context.Context, *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
		inside = c.Ends("id", false)
		return &runtimeapi.StopContainerResponse{}, nil
	}}
	c = fakeClient(t, f, Options{})
	if err := c.StopContainer(t.Context(), "id", time.Second); err != nil || !inside || !c.Ends("id", false) || c.Ends("other", false) {
		t.Errorf("during the stop %t, afterwards %t, another one %t: %v", inside, c.Ends("id", false), c.Ends("other", false), err)
	}
	for want, req := range map[string]any{
		"c": &runtimeapi.RemoveContainerRequest{ContainerId: "c"}, "s": &runtimeapi.StopPodSandboxRequest{PodSandboxId: "s"},
		"r": &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "r"}, "": &runtimeapi.StartContainerRequest{ContainerId: "x"},
	} {
		if got := endedBy(req); got != want {
			t.Errorf("%T ends %q, want %q", req, got, want)
		}
	}
}
