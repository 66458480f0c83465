package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/e2e/stack"
)

var (
	evictions = flag.Int("evictions", 0, "with -cluster: measure only how long evictions take, so many of each kind; their nodes are small")
	overuses  = flag.String("overuses", "", "with -evictions: only the kinds whose names have one of these words, as in \"inodes,images\"")
)

const (
	diskMiB      = 100  // the file system of the root folder
	diskInodes   = 6000 // of that
	imageDiskMiB = 300  // the file system of images and writable layers
	podMemoryMiB = 400  // the pods' total memory
)

// makeSmall gives the agent a disk and memory that one pod can use up.
func makeSmall(agent *stack.Agent) (undo func(), err error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	total := info.Totalram * uint64(info.Unit)
	agent.Config["systemReserved"] = map[string]string{"memory": fmt.Sprint(total - podMemoryMiB<<20)}
	hard := map[string]string{"memory.available": "150Mi", "nodefs.available": "20Mi", "nodefs.inodesFree": "1000",
		"imagefs.available": "100Mi"}
	agent.Config["evictionHard"] = hard
	if wanted(tasksShort) {
		left, err := tasksLeft()
		if err != nil {
			return nil, err
		}
		hard["pid.available"] = fmt.Sprint(left - moreTasks/2)
		agent.Config["podPidsLimit"] = 2 * moreTasks // whatever happens
	}
	agent.Config["imageGCHighThresholdPercent"], agent.Config["imageMinimumGCAge"] = 100, "1ns"
	agent.Config["evictionPressureTransitionPeriod"] = "1s"
	image := agent.RootDir + ".disk"
	if err := stack.MountDisk(image, agent.RootDir, diskMiB, "-N", fmt.Sprint(diskInodes)); err != nil {
		return nil, err
	}
	return func() { _ = stack.UnmountDisk(agent.RootDir) }, nil
}

// evict measures from a pod's use of too much to the moment at which a watch sees that it is evicted.
func (b *clusterBench) evict(ctx context.Context, sub *subject) error {
	for _, kind := range b.kinds() {
		if !wanted(kind.name) {
			continue
		}
		var took []time.Duration
		for len(took) < *evictions {
			one, err := b.evictOne(ctx, sub, kind)
			if errors.Is(err, errStays) { // it would the next time, too
				fmt.Printf("  %-9s %s: not evicted within %s\n", sub.name, kind.name, waitLimit)
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %w", kind.name, err)
			}
			if one > 0 { // or the pod was refused
				took = append(took, one)
			}
		}
		if len(took) > 0 {
			b.noteSpread(kind.name+", evicted, s", sub, took)
		}
	}
	if wanted(unusedImages) {
		return b.reclaimImages(ctx, sub)
	}
	return nil
}

func (b *clusterBench) noteSpread(figure string, sub *subject, took []time.Duration) {
	b.note(figure+" (p50)", sub, quantile(took, 0.5).Seconds())
	b.note(figure+" (p99)", sub, quantile(took, 0.99).Seconds())
}

const unusedImages = "images' disk is full, an unused image is gone"

// reclaimImages measures from a shortage of space for images to the removal of an unused image, without pods.
func (b *clusterBench) reclaimImages(ctx context.Context, sub *subject) error {
	var took []time.Duration
	for i := range *evictions {
		if err := b.relieved(ctx, sub); err != nil {
			return err
		}
		ref, err := b.stack.PullBig(ctx, fmt.Sprintf("unused-%s-%d", sub.name, i), 20)
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Second))))
		began := time.Now()
		others := filepath.Join(b.stack.DiskRoot(), "others")
		if err := b.fillImageDisk(others); err != nil {
			return err
		}
		for there := true; there; time.Sleep(time.Millisecond) {
			if there, err = b.stack.HasImage(ctx, ref); err != nil {
				return err
			}
			if time.Since(began) > waitLimit {
				return fmt.Errorf("%s: image %s stays", unusedImages, ref)
			}
		}
		took = append(took, time.Since(began))
		if err := os.Remove(others); err != nil {
			return err
		}
	}
	b.noteSpread(unusedImages+", s", sub, took)
	return nil
}

// errStays is returned for a pod that was not evicted in time.
var errStays = errors.New("the pod stays")

// evictOne is one measurement; 0 where the pod did not come to run.
func (b *clusterBench) evictOne(ctx context.Context, sub *subject, kind overuse) (time.Duration, error) {
	if err := b.relieved(ctx, sub); err != nil {
		return 0, err
	}
	seconds, no, limit := int64(grace), false, resource.MustParse("1Mi")
	c := corev1.Container{Name: "hello", Image: b.stack.HelloImage(), ImagePullPolicy: corev1.PullIfNotPresent}
	var volumes []corev1.Volume
	for name, source := range map[string]*corev1.EmptyDirVolumeSource{"disk": {}, "limited": {SizeLimit: &limit}} {
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: source}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	binary, err := os.Executable()
	if err != nil {
		return 0, err
	}
	volumes = append(volumes, corev1.Volume{Name: "tool", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: filepath.Dir(binary)}}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "tool", MountPath: toolDir, ReadOnly: true})
	if kind.limited {
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: limit}
	}
	pod, err := b.cluster.Admin.CoreV1().Pods(b.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"},
		Spec: corev1.PodSpec{NodeName: sub.node.Name, TerminationGracePeriodSeconds: &seconds, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{c}, Volumes: volumes},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	uids := []string{string(pod.UID)}
	if refused, err := b.pods.readyOrEvicted(ctx, uids); err != nil || refused { // a kubelet reports ended pressure late
		return 0, errors.Join(err, b.clear(ctx))
	}
	time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Second)))) // so that the start is random for a subject that polls
	began := time.Now()
	if err := kind.do(ctx, sub, pod); err != nil {
		return 0, err
	}
	at, err := b.pods.allEvicted(ctx, uids)
	if err != nil {
		return 0, errors.Join(errStays, err, b.clear(ctx))
	}
	return at[0].Sub(began), b.clear(ctx)
}

// relieved waits until the node is under no pressure.
func (b *clusterBench) relieved(ctx context.Context, sub *subject) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for ctx.Err() == nil {
		node, err := b.cluster.Admin.CoreV1().Nodes().Get(ctx, sub.node.Name, metav1.GetOptions{})
		pressed := func(c corev1.NodeCondition) bool {
			return c.Type != corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		if err == nil && !slices.ContainsFunc(node.Status.Conditions, pressed) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("the node stays under pressure")
}
