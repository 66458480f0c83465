package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/e2e/daemon"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// floorCommand runs the floor in this binary: floor-agent KUBECONFIG NODE SOCKET TEMPLATE LOGS.
const floorCommand = "floor-agent"

// floorParallel is the number of pods that the floor starts or ends at a time.
const floorParallel = 4

// floorSubject is the least agent that there can be: a watch, the three CRI calls of a start and one status patch per pod, and
// for a deletion two stops and the deletion of the object. It has no Events, probes, volumes, cgroups or restarts.
func (b *clusterBench) floorSubject(t *owner) (*subject, error) {
	node := b.cluster.Node(t)
	dir := filepath.Join(b.stack.Dir, "floor")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	template := filepath.Join(dir, "template.json")
	d := &daemon.Daemon{Name: "the floor", Log: filepath.Join(dir, "floor.log")}
	start := func() error {
		if err := b.like.Save(template); err != nil {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		cmd := exec.Command(self, floorCommand, node.Kubeconfig, node.Name, b.stack.Socket(), template,
			filepath.Join(dir, "logs"))
		cmd.Env = os.Environ()
		return d.Start(cmd)
	}
	return &subject{name: "floor", start: start, kill: func() error { return d.End(syscall.SIGKILL) }, pid: d.PID, log: d.Text,
		node: node, least: true}, nil
}

// floor is the state of the floor's process.
type floor struct {
	api        kubernetes.Interface
	cri        *stack.CRI
	like       *stack.Template
	node, logs string

	mu      sync.Mutex
	running map[types.UID]*floorPod
	queue   chan func() error
	later   chan func() error // removals, while nothing else is to do
}

type floorPod struct{ sandbox, container string }

func floorAgent(args []string) error {
	ctx := context.Background()
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return err
	}
	config.QPS = -1
	f := &floor{node: args[1], logs: args[4], running: map[types.UID]*floorPod{}, queue: make(chan func() error, 10000),
		later: make(chan func() error, 10000)}
	if f.api, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if f.cri, err = stack.Dial(args[2]); err != nil {
		return err
	}
	if f.like, err = stack.LoadTemplate(args[3]); err != nil {
		return err
	}
	if err := f.register(ctx); err != nil {
		return err
	}
	for range floorParallel {
		go f.work()
	}
	return f.watch(ctx)
}

// work carries out starts and ends in their order, and removals while there are none.
func (f *floor) work() {
	for {
		var next func() error
		select {
		case next = <-f.queue:
		default:
			select {
			case next = <-f.queue:
			case next = <-f.later:
			}
		}
		if err := next(); err != nil {
			fmt.Fprintln(os.Stderr, "floor:", err)
		}
	}
}

// register creates the Node and reports it as ready once.
func (f *floor) register(ctx context.Context) error {
	nodes := f.api.CoreV1().Nodes()
	node, err := nodes.Get(ctx, f.node, metav1.GetOptions{})
	if err != nil {
		node, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.node}}, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	now := metav1.Now()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now,
		LastTransitionTime: now, Reason: "Floor"}}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func (f *floor) watch(ctx context.Context) error {
	mine := "spec.nodeName=" + f.node
	pods := f.api.CoreV1().Pods("")
	list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: mine})
	if err != nil {
		return err
	}
	for i := range list.Items {
		f.see(ctx, &list.Items[i])
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = mine
			return pods.Watch(ctx, o)
		},
	})
	if err != nil {
		return err
	}
	for e := range w.ResultChan() {
		if pod, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
			f.see(ctx, pod)
		}
	}
	return errors.New("the watch ended")
}

// see queues the start of a new pod, and the end of a deleted one.
func (f *floor) see(ctx context.Context, pod *corev1.Pod) {
	p := f.running[pod.UID]
	switch {
	case p == nil && pod.DeletionTimestamp == nil:
		p = &floorPod{}
		f.running[pod.UID] = p
		f.queue <- func() error { return f.begin(ctx, pod, p) }
	case p != nil && pod.DeletionTimestamp != nil:
		delete(f.running, pod.UID)
		f.queue <- func() error { return f.end(ctx, pod, p) }
	}
}

// begin starts the pod and reports it as ready.
func (f *floor) begin(ctx context.Context, pod *corev1.Pod, p *floorPod) error {
	logs := filepath.Join(f.logs, string(pod.UID))
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	sandbox, container := f.like.Requests(string(pod.UID), pod.Namespace, pod.Name, logs)
	ran, err := f.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		return err
	}
	made, err := f.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: ran.PodSandboxId, Config: container,
		SandboxConfig: sandbox})
	if err != nil {
		return err
	}
	if _, err := f.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		return err
	}
	f.mu.Lock()
	p.sandbox, p.container = ran.PodSandboxId, made.ContainerId
	f.mu.Unlock()
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`,
		pod.UID)
	_, err = f.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status")
	return err
}

// end stops the pod and deletes its object; its remains are removed later.
func (f *floor) end(ctx context.Context, pod *corev1.Pod, p *floorPod) error {
	f.mu.Lock()
	sandbox, container := p.sandbox, p.container
	f.mu.Unlock()
	if _, err := f.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: container,
		Timeout: *pod.DeletionGracePeriodSeconds}); err != nil {
		return err
	}
	if _, err := f.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return err
	}
	f.later <- func() error {
		_, err := f.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
		return err
	}
	now := int64(0)
	return f.api.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now,
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}
