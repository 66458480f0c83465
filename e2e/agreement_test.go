//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ofNode selects the pods of a node.
func ofNode(node string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
}

// podsOf returns the API server's pods of a node.
func podsOf(t *testing.T, c *cluster.Cluster, node string) ([]corev1.Pod, error) {
	t.Helper()
	list, err := c.Admin.CoreV1().Pods("").List(t.Context(), ofNode(node))
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// awaitAgreement waits until the API server has that many pods of a node, mirror pods too, all ready, and the runtime has those
// and no others: each with one sandbox that is ready, and with the very containers that its status names.
func awaitAgreement(t *testing.T, c *cluster.Cluster, s *stack.Stack, node string, pods int) []corev1.Pod {
	t.Helper()
	var all []corev1.Pod
	await(t, func() (err error) {
		if all, err = podsOf(t, c, node); err != nil {
			return err
		}
		if len(all) != pods {
			return fmt.Errorf("the API server has %d pods of the node, want %d", len(all), pods)
		}
		return agreement(t, s, all)
	})
	return all
}

func agreement(t *testing.T, s *stack.Stack, all []corev1.Pod) error {
	sandboxes, err := s.Sandboxes(t.Context())
	if err != nil {
		return err
	}
	ready1 := map[string]int{} // by UID
	for _, b := range sandboxes {
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready1[b.Metadata.Uid]++
		}
	}
	containers, err := s.CRI().ListContainers(t.Context(), onlyRunning)
	if err != nil {
		return err
	}
	runs := map[string][]string{}
	for _, c := range containers.Containers {
		uid := c.Labels[stack.UIDLabel]
		runs[uid] = append(runs[uid], c.Id)
	}
	for i := range all {
		p := &all[i]
		if err := ready(p); err != nil {
			return err
		}
		said := idsIn(p)
		uid := uidHere(p)
		has := slices.Sorted(slices.Values(runs[uid]))
		if !slices.Equal(said, has) || ready1[uid] != 1 {
			return fmt.Errorf("pod %s: the API server has the containers %v, the runtime %v in %d sandboxes", p.Name, said, has,
				ready1[uid])
		}
	}
	if len(ready1) != len(all) || len(runs) != len(all) {
		return fmt.Errorf("%d pods have sandboxes, %d containers that run, and the API server has %d", len(ready1), len(runs),
			len(all))
	}
	return nil
}

// uidHere returns the UID of a pod on the node: for a mirror pod, the static pod's.
func uidHere(p *corev1.Pod) string {
	if static, is := p.Annotations[corev1.MirrorPodAnnotationKey]; is {
		return static
	}
	return string(p.UID)
}

// idsIn returns the IDs of the running containers in a pod's status, sorted.
func idsIn(p *corev1.Pod) []string {
	var ids []string
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Running != nil {
			ids = append(ids, strings.TrimPrefix(c.ContainerID, "containerd://"))
		}
	}
	slices.Sort(ids)
	return ids
}

// noneRestarted checks that no container of these pods was started twice.
func noneRestarted(t *testing.T, s *stack.Stack, pods []corev1.Pod) {
	t.Helper()
	left := neverRan(t, s)
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount != left[p.Name] {
				t.Errorf("container %s of pod %s was restarted %d times: %+v", c.Name, p.Name, c.RestartCount,
					c.LastTerminationState)
			}
		}
	}
}

// steadiness watches the pods of a node and records ready pods that become unready.
type steadiness struct {
	stop  context.CancelFunc
	ended chan []string
}

// watchSteadiness begins with the pods as they are.
func watchSteadiness(t *testing.T, c *cluster.Cluster, node string) *steadiness {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	list, err := c.Admin.CoreV1().Pods("").List(ctx, ofNode(node))
	must(t, err)
	options := ofNode(node)
	options.ResourceVersion = list.ResourceVersion
	w, err := c.Admin.CoreV1().Pods("").Watch(ctx, options)
	must(t, err)
	wasReady := map[string]bool{}
	for i := range list.Items {
		wasReady[list.Items[i].Name] = ready(&list.Items[i]) == nil
	}
	s := &steadiness{cancel, make(chan []string, 1)}
	go func() {
		var fell []string
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok || e.Type == watch.Deleted {
				continue
			}
			is := ready(p) == nil
			if wasReady[p.Name] && !is && p.DeletionTimestamp == nil {
				fell = append(fell, fmt.Sprintf("%s: %+v", p.Name, p.Status.Conditions))
			}
			wasReady[p.Name] = is
		}
		s.ended <- fell
	}()
	return s
}

// end reports each pod that became unready.
func (s *steadiness) end(t *testing.T) {
	t.Helper()
	s.stop()
	for _, line := range <-s.ended {
		t.Errorf("a ready pod was said not to be: %s", line)
	}
}
