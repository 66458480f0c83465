package nodeapi

import (
	"cmp"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/cri"
)

var podList = metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}

// pods answers GET /pods: the desired pods with their current statuses.
func (a *api) pods(w http.ResponseWriter, _ *http.Request) error {
	now := a.conf.Board.Now()
	out := v1.PodList{TypeMeta: podList, Items: make([]v1.Pod, 0, len(now.Pods))}
	for i := range now.Pods {
		shown := containers.Object(&now.Pods[i])
		shown.TypeMeta = metav1.TypeMeta{}
		out.Items = append(out.Items, *shown)
	}
	return containers.JSON(w, out)
}

// runningPods answers GET /runningpods/ with the running pods of the runtime, desired or not.
func (a *api) runningPods(w http.ResponseWriter, r *http.Request) error {
	sandboxes, err := a.conf.Runtime.ListPodSandbox(r.Context(), &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		return err
	}
	running, err := a.conf.Runtime.ListContainers(r.Context(), &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return err
	}
	return containers.JSON(w, runningPods(sandboxes, running))
}

// runningPods converts the runtime's objects to the list. It omits objects without a pod.
func runningPods(sandboxes []*runtimeapi.PodSandbox, running []*runtimeapi.Container) v1.PodList {
	out := v1.PodList{TypeMeta: podList, Items: []v1.Pod{}}
	index := map[types.UID]int{}
	of := func(labels map[string]string) *v1.Pod {
		uid := types.UID(labels[cri.LabelPodUID])
		if uid == "" {
			return nil
		}
		i, ok := index[uid]
		if !ok {
			i = len(out.Items)
			index[uid] = i
			out.Items = append(out.Items, v1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name: labels[cri.LabelPodName], Namespace: labels[cri.LabelPodNamespace], UID: uid,
			}})
		}
		return &out.Items[i]
	}
	for _, s := range sandboxes {
		of(s.Labels)
	}
	for _, c := range running {
		if pod := of(c.Labels); pod != nil {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
				Name:  c.Labels[cri.LabelContainerName],
				Image: cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()),
			})
		}
	}
	return out
}
