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
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/playlet-dev/playlet/e2e/stack"
)

var evictions = flag.Int("evictions", 0, "with -cluster: measure only how long evictions take, so many of each kind; their nodes are small")

const (
	diskMiB      = 100 // the file system of the root folder
	podMemoryMiB = 400 // what pods have of memory together
)

// makeSmall gives the agent a disk and memory that one pod can use up.
func makeSmall(agent *stack.Agent) (undo func(), err error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return nil, err
	}
	total := info.Totalram * uint64(info.Unit)
	agent.Config["systemReserved"] = map[string]string{"memory": fmt.Sprint(total - podMemoryMiB<<20)}
	agent.Config["evictionHard"] = map[string]string{"memory.available": "150Mi", "nodefs.available": "20Mi"}
	agent.Config["evictionPressureTransitionPeriod"] = "1s"
	image := agent.RootDir + ".disk"
	if err := stack.MountDisk(image, agent.RootDir, diskMiB); err != nil {
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
	fill := func(volume string, mebibytes int) func(context.Context, *subject, *corev1.Pod) error {
		return func(_ context.Context, sub *subject, pod *corev1.Pod) error {
			dir := filepath.Join(sub.root, "pods", string(pod.UID), "volumes/kubernetes.io~empty-dir", volume)
			return os.WriteFile(filepath.Join(dir, "much"), make([]byte, mebibytes<<20), 0o644)
		}
	}
	for _, kind := range []overuse{
		{"the disk is full", fill("disk", 75)}, {"an emptyDir is above its limit", fill("limited", 2)},
		{"pods' memory is used up", b.allocate},
	} {
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
		b.note(kind.name+", evicted, s (p50)", sub, quantile(took, 0.5).Seconds())
		b.note(kind.name+", evicted, s (last)", sub, slices.Max(took).Seconds())
	}
	return nil
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
