package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"

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
	podMemoryMiB = 400  // what pods have of memory together
)

// makeSmall gives the agent a disk and memory that one pod can use up.
func makeSmall(agent *stack.Agent) (undo func(), err error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	total := info.Totalram * uint64(info.Unit)
	agent.Config["systemReserved"] = map[string]string{"memory": fmt.Sprint(total - podMemoryMiB<<20)}
	agent.Config["evictionHard"] = map[string]string{"memory.available": "150Mi", "nodefs.available": "20Mi",
		"nodefs.inodesFree": "1000", "imagefs.available": "100Mi"}
	agent.Config["imageGCHighThresholdPercent"], agent.Config["imageMinimumGCAge"] = 100, "1ns"
	agent.Config["evictionPressureTransitionPeriod"] = "1s"
	image := agent.RootDir + ".disk"
	if err := stack.MountDisk(image, agent.RootDir, diskMiB, "-N", fmt.Sprint(diskInodes)); err != nil {
		return nil, err
	}
	return func() { _ = stack.UnmountDisk(agent.RootDir) }, nil
}

// overuse is a way in which a pod uses more than it may; it is done when that has begun.
type overuse struct {
	name string
	do   func(ctx context.Context, sub *subject, pod *corev1.Pod) error
}

// evict measures from a pod's use of too much to the moment at which a watch sees that it is evicted.
func (b *clusterBench) evict(ctx context.Context, sub *subject) error {
	in := func(volume string, use func(dir string) error) func(context.Context, *subject, *corev1.Pod) error {
		return func(_ context.Context, sub *subject, pod *corev1.Pod) error {
			return use(filepath.Join(sub.root, "pods", string(pod.UID), "volumes/kubernetes.io~empty-dir", volume))
		}
	}
	fill := func(mebibytes int64) func(dir string) error {
		return func(dir string) error { return stack.Fill(filepath.Join(dir, "much"), mebibytes<<20) }
	}
	kinds := []overuse{
		{"the disk is full", in("disk", fill(75))},
		{"inodes are used up", in("disk", func(dir string) error { return stack.UseInodes(dir, diskInodes-1000) })},
		{"an emptyDir is above its limit", in("limited", fill(2))}, {"pods' memory is used up", b.allocate},
		{"a writable layer fills images' disk", b.fillLayer},
	}
	wanted := func(name string) bool {
		return slices.ContainsFunc(strings.Split(*overuses, ","), func(word string) bool { return strings.Contains(name, word) })
	}
	for _, kind := range kinds {
		if !wanted(kind.name) {
			continue
		}
		var took []time.Duration
		for range *evictions {
			one := time.Duration(0)
			for one == 0 { // the pod was refused
				var err error
				if one, err = b.evictOne(ctx, sub, kind); err != nil {
					return fmt.Errorf("%s: %w", kind.name, err)
				}
			}
			took = append(took, one)
		}
		b.noteSpread(kind.name+", evicted, s", sub, took)
	}
	if wanted(unusedImages) {
		return b.reclaimImages(ctx, sub)
	}
	return nil
}

func (b *clusterBench) noteSpread(figure string, sub *subject, took []time.Duration) {
	b.note(figure+" (p50)", sub, quantile(took, 0.5).Seconds())
	b.note(figure+" (last)", sub, slices.Max(took).Seconds())
}

const unusedImages = "images' disk is full, an unused image is gone"

// reclaimImages measures from the moment at which there is too little left where images are to the one at which an image that nobody
// uses is gone. No pod is there.
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

// fillImageDisk leaves 80 MiB where images are.
func (b *clusterBench) fillImageDisk(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(b.stack.DiskRoot(), &fs); err != nil {
		return err
	}
	return stack.Fill(path, int64(fs.Bavail)*fs.Frsize-80<<20)
}

// fillLayer has the pod's container use what is left where images are.
func (b *clusterBench) fillLayer(ctx context.Context, _ *subject, pod *corev1.Pod) error {
	list, err := b.stack.ContainersOf(ctx, string(pod.UID))
	if err != nil || len(list) != 1 {
		return fmt.Errorf("%d containers: %w", len(list), err)
	}
	pid, err := b.stack.ContainerPID(ctx, list[0].Id)
	if err != nil {
		return err
	}
	return b.fillImageDisk(fmt.Sprintf("/proc/%d/root/much", pid))
}

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
	pod, err := b.cluster.Admin.CoreV1().Pods(b.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"},
		Spec: corev1.PodSpec{NodeName: sub.node.Name, TerminationGracePeriodSeconds: &seconds, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{c}, Volumes: volumes},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	uids := []string{string(pod.UID)}
	if refused, err := b.pods.readyOrEvicted(ctx, uids); err != nil || refused { // a kubelet tells late of pressure that it still sees
		return 0, errors.Join(err, b.clear(ctx))
	}
	time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Second)))) // it meets who looks now and then at any moment
	began := time.Now()
	if err := kind.do(ctx, sub, pod); err != nil {
		return 0, err
	}
	at, err := b.pods.allEvicted(ctx, uids)
	if err != nil {
		return 0, err
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

// allocate has a command in the pod's container use memory until the pod ends.
func (b *clusterBench) allocate(ctx context.Context, sub *subject, pod *corev1.Pod) error {
	to, err := url.Parse(fmt.Sprintf("%s/exec/%s/%s/hello?%s", sub.api.Host, pod.Namespace, pod.Name,
		url.Values{"output": {"1"}, "command": {"/hello", "alloc", "300", "--", "sleep"}}.Encode()))
	if err != nil {
		return err
	}
	e, err := remotecommand.NewSPDYExecutor(sub.api, http.MethodPost, to)
	if err != nil {
		return err
	}
	go func() { _ = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: os.Stderr}) }() // it ends with the pod
	return nil
}
