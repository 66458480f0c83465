package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var resizeTimes = flag.Int("resizes", 20, "with -cluster: how often a pod is resized as it runs; 0: never")

// resizes measures from the patch of a pod's memory, up and down in turn, to the values of its container's cgroup and its own.
func (b *clusterBench) resizes(ctx context.Context, sub *subject) error {
	if *resizeTimes == 0 {
		return nil
	}
	pods := b.cluster.Admin.CoreV1().Pods(b.namespace)
	seconds, no := int64(grace), false
	of := func(mebibytes int) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse(fmt.Sprintf("%dMi", mebibytes)),
		}
	}
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"},
		Spec: corev1.PodSpec{NodeName: sub.node.Name, TerminationGracePeriodSeconds: &seconds, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "hello", Image: b.stack.HelloImage(), ImagePullPolicy: corev1.PullIfNotPresent,
				Resources: corev1.ResourceRequirements{Requests: of(64), Limits: of(64)}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := b.pods.allReady(ctx, []string{string(pod.UID)}); err != nil {
		return err
	}
	files, err := b.memoryLimits(ctx, string(pod.UID))
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range *resizeTimes {
		mebibytes := 96 - 32*(i%2)
		time.Sleep(time.Duration(rand.Int64N(int64(time.Second)))) // so that the start is random for a subject that polls
		began := time.Now()
		if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, fmt.Appendf(nil,
			`{"spec":{"containers":[{"name":"hello","resources":{"requests":{"memory":"%[1]dMi"},"limits":{"memory":"%[1]dMi"}}}]}}`,
			mebibytes), metav1.PatchOptions{}, "resize"); err != nil {
			return err
		}
		if err := hold(files, fmt.Sprint(mebibytes<<20), began); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if err := b.resized(ctx, pod.Name, of(mebibytes)); err != nil {
			return err
		}
	}
	b.noteSpread("resized, from patch to cgroups, s", sub, took)
	return b.clear(ctx)
}

// memoryLimits are the files that hold the limit of a pod's one container, and of the pod.
func (b *clusterBench) memoryLimits(ctx context.Context, uid string) ([]string, error) {
	list, err := b.stack.ContainersOf(ctx, uid)
	if err != nil || len(list) != 1 {
		return nil, fmt.Errorf("%d containers: %w", len(list), err)
	}
	pid, err := b.stack.ContainerPID(ctx, list[0].Id)
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		at, name := "", ""
		switch fields[1] {
		case "memory":
			at, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case "":
			at, name = "/sys/fs/cgroup", "memory.max"
		}
		for _, group := range []string{fields[2], filepath.Dir(fields[2])} {
			if path := filepath.Join(at, group, name); name != "" && len(out) < 2 {
				if _, err := os.Stat(path); err == nil {
					out = append(out, path)
				}
			}
		}
	}
	if len(out) < 2 {
		return nil, errors.New("the container's cgroup, or its pod's, has no limit of memory")
	}
	return out, nil
}

// hold waits until each of the files holds that value.
func hold(files []string, value string, began time.Time) error {
	for _, file := range files {
		for {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if string(bytes.TrimSpace(text)) == value {
				break
			}
			if time.Since(began) > waitLimit {
				return fmt.Errorf("%s holds %s, not %s", file, text, value)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// resized waits until the pod's status has these resources: the next resize begins after this one.
func (b *clusterBench) resized(ctx context.Context, name string, want corev1.ResourceList) error {
	for began := time.Now(); time.Since(began) < waitLimit; time.Sleep(20 * time.Millisecond) {
		pod, err := b.cluster.Admin.CoreV1().Pods(b.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := pod.Status.ContainerStatuses; len(s) == 1 && s[0].Resources != nil &&
			s[0].Resources.Limits.Memory().Cmp(*want.Memory()) == 0 && pod.Status.ObservedGeneration == pod.Generation {
			return nil
		}
	}
	return errors.New("the pod's status does not tell its resize")
}
