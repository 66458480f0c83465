package sim_test

import (
	"slices"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/cri/sim"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestListFilters(t *testing.T) {
	h := start(t, sim.Options{})
	sbA, a := h.run("a")
	sbB, b := h.run("b")
	h.must(h.stop(b, 1))
	h.must(h.stopSandbox(sbB))

	exited := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}
	for name, tc := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"none":             {nil, []string{a, b}},
		"id":               {&runtimeapi.ContainerFilter{Id: a}, []string{a}},
		"state":            {&runtimeapi.ContainerFilter{State: exited}, []string{b}},
		"sandbox":          {&runtimeapi.ContainerFilter{PodSandboxId: sbA}, []string{a}},
		"sandbox not here": {&runtimeapi.ContainerFilter{PodSandboxId: "x"}, nil},
		"pod label": {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": "uid-b"}},
			[]string{b}},
		"other label": {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.container.name": "main"}}, []string{a, b}},
		"both labels": {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{
			"io.kubernetes.pod.uid": "uid-b", "io.kubernetes.container.name": "side"}}, nil},
		"contradiction": {&runtimeapi.ContainerFilter{Id: a, PodSandboxId: sbB}, nil},
	} {
		resp, err := h.rt.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: tc.filter})
		h.must(err)
		var got []string
		for _, c := range resp.Containers {
			got = append(got, c.Id)
		}
		sameSet(t, "containers by "+name, got, tc.want)
	}

	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	for name, tc := range map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		"none":  {nil, []string{sbA, sbB}},
		"id":    {&runtimeapi.PodSandboxFilter{Id: sbB}, []string{sbB}},
		"state": {&runtimeapi.PodSandboxFilter{State: ready}, []string{sbA}},
		"pod label": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": "uid-a"}},
			[]string{sbA}},
		"other label": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": "b"}}, []string{sbB}},
		"absent":      {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"zone": ""}}, nil},
	} {
		resp, err := h.rt.ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{Filter: tc.filter})
		h.must(err)
		var got []string
		for _, s := range resp.Items {
			got = append(got, s.Id)
		}
		sameSet(t, "sandboxes by "+name, got, tc.want)
	}
}

func sameSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestAListThatIsTooLargeFails(t *testing.T) {
	h := start(t, sim.Options{MaxMessage: 1000})
	h.run("a")
	if _, err := h.rt.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{}); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		h.run("b" + strconv.Itoa(i))
	}
	_, err := h.rt.ListContainers(h.ctx, &runtimeapi.ListContainersRequest{})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
}
