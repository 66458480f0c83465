//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podMemory is the last known status of a pod.
type podMemory struct {
	phase    corev1.PodPhase
	restarts map[string]int32
	ids      map[string]string // of a container that may run once
}

// keep checks each status that the API server gets until ctx ends.
func (m *mixedSoak) keep(ctx context.Context) {
	known := map[types.UID]*podMemory{}
	for ctx.Err() == nil {
		seconds := int64(60)
		w, err := m.c.Admin.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{TimeoutSeconds: &seconds,
			FieldSelector: "spec.nodeName=" + m.node})
		if err != nil {
			time.Sleep(time.Second)
			continue
		}
		for e := range w.ResultChan() {
			p, is := e.Object.(*corev1.Pod)
			if !is {
				continue
			}
			was := known[p.UID]
			if was == nil {
				was = &podMemory{restarts: map[string]int32{}, ids: map[string]string{}}
				known[p.UID] = was
			}
			m.compareStatus(p, was)
			if e.Type == watch.Deleted {
				m.checkEnd(p)
			}
		}
	}
}

func (m *mixedSoak) compareStatus(p *corev1.Pod, was *podMemory) {
	if (was.phase == corev1.PodSucceeded || was.phase == corev1.PodFailed) && p.Status.Phase != was.phase {
		m.violation("pod %s %s was %s and is %s", p.Name, p.UID, was.phase, p.Status.Phase)
	}
	was.phase = p.Status.Phase
	codes := map[string]int32{}
	if text := p.Annotations[codesAnnotation]; text != "" {
		_ = json.Unmarshal([]byte(text), &codes)
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.RestartCount < was.restarts[c.Name] {
			m.violation("container %s of pod %s %s had %d restarts and has %d", c.Name, p.Name, p.UID, was.restarts[c.Name], c.RestartCount)
		}
		was.restarts[c.Name] = c.RestartCount
		if p.DeletionTimestamp != nil {
			continue
		}
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if unknownEnd(end) {
				m.unknown.Store(p.UID, true)
			} else if want, is := codes[c.Name]; is && end != nil && end.ExitCode != want {
				m.violation("container %s of pod %s %s ended with %d (%s %q), want %d; id %s", c.Name, p.Name, p.UID, end.ExitCode,
					end.Reason, end.Message, want, end.ContainerID)
			}
		}
		if p.Spec.RestartPolicy == corev1.RestartPolicyNever && c.Name != "side" && c.ContainerID != "" {
			if id := was.ids[c.Name]; id != "" && id != c.ContainerID {
				m.violation("container %s of pod %s %s, which may run once, was %s and is %s", c.Name, p.Name, p.UID, id, c.ContainerID)
			}
			was.ids[c.Name] = c.ContainerID
		}
	}
	_, unknown := m.unknown.Load(p.UID)
	if k := kindOf(p); !unknown && p.DeletionTimestamp == nil && over(p) && p.Status.Phase != k.phase {
		m.violation("pod %s %s is %s (%s: %s), want %q", p.Name, p.UID, p.Status.Phase, p.Status.Reason, p.Status.Message, k.phase)
	}
}

// unknownEnd reports whether a fault explains the exit code: the runtime was killed before it stored the code, or the agent was
// killed while the runtime started the program.
func unknownEnd(end *corev1.ContainerStateTerminated) bool {
	return end != nil && (end.ExitCode == 255 && end.Reason == "Unknown" || end.ExitCode == 128 && end.Reason == "StartError")
}

// checkEnd compares the starts of the programs of a pod with its last status.
func (m *mixedSoak) checkEnd(p *corev1.Pod) {
	m.count("pods that ended")
	if _, forced := m.forced.Load(p.UID); forced || kindOf(p).name == "" {
		return
	}
	// A runtime that is killed while it starts a program has the container as created afterwards: its program may run again.
	killed := p.CreationTimestamp.UnixNano() < m.runtimeKilled.Load()
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		starts := m.starts(p, c.Name)
		once := p.Spec.RestartPolicy == corev1.RestartPolicyNever && c.Name != "side"
		if once && starts > 1 && !killed {
			m.violation("container %s of pod %s %s, which may run once, ran %d times", c.Name, p.Name, p.UID, starts)
		}
		if starts > int(c.RestartCount)+1 && !killed {
			m.violation("container %s of pod %s %s ran %d times and has %d restarts", c.Name, p.Name, p.UID, starts, c.RestartCount)
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Running != nil {
			m.violation("pod %s %s is gone, and its last status has container %s running", p.Name, p.UID, c.Name)
		}
	}
}

// keepRuntime looks for two of one thing in the runtime until ctx ends.
func (m *mixedSoak) keepRuntime(ctx context.Context) {
	told := map[string]bool{}
	for ctx.Err() == nil {
		first := m.doubles(ctx)
		if len(first) > 0 {
			time.Sleep(300 * time.Millisecond)
			for text := range m.doubles(ctx) {
				if first[text] && !told[text] {
					told[text] = true
					m.violation("%s", text)
				}
			}
		}
		time.Sleep(700 * time.Millisecond)
	}
}

func (m *mixedSoak) doubles(ctx context.Context) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	containers, err := m.s.CRI().ListContainers(ctx, onlyRunning)
	if err != nil {
		return nil
	}
	boxes, err := m.s.Sandboxes(ctx)
	if err != nil {
		return nil
	}
	all := map[string][]string{}
	for _, c := range containers.Containers {
		key := fmt.Sprintf("pod %s %s runs container %s twice:", c.Labels["io.kubernetes.pod.name"], c.Labels[stack.UIDLabel], c.Metadata.Name)
		all[key] = append(all[key], c.Id)
	}
	for _, b := range boxes {
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			key := fmt.Sprintf("pod %s %s has two ready sandboxes:", b.Metadata.Name, b.Metadata.Uid)
			all[key] = append(all[key], b.Id)
		}
	}
	found := map[string]bool{}
	for key, ids := range all {
		if len(ids) > 1 {
			slices.Sort(ids)
			found[key+" "+strings.Join(ids, " ")] = true
		}
	}
	return found
}
