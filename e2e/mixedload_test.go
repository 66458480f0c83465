//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// codesAnnotation has the exit codes of a pod's containers, unless the pod is deleted before.
const codesAnnotation = "e2e/codes"

// mixedKind is one kind of pod of the mixed load. In its spec, START(c) stands for the beginning of the arguments of container c:
// they record each start in a file.
type mixedKind struct {
	name, spec string
	codes      map[string]int32
	phase      corev1.PodPhase // at its end; empty for a pod that runs until it is deleted
}

const mixedVolumes = `
volumes:
- {name: trace, hostPath: {path: TRACE}}
- {name: data, emptyDir: {}}
- {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
- {name: cm, configMap: {name: conf}}
- {name: sec, secret: {secretName: sec}}
- {name: all, projected: {sources: [{configMap: {name: conf}}, {secret: {name: sec}}, {serviceAccountToken: {path: token}},
  {downwardAPI: {items: [{path: uid, fieldRef: {fieldPath: metadata.uid}}]}}]}}`

var mixedKinds = []mixedKind{
	{name: "web", spec: `
terminationGracePeriodSeconds: 3
initContainers:
- {name: i, image: HELLO, args: [START(i), write, /data/f, x, '--', cat, /all/token, '--', exit, '0'], MOUNTS}
- {name: side, image: HELLO, restartPolicy: Always, args: [START(side), sleep], MOUNTS,
   startupProbe: {periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 100, exec: {command: [/hello, check-file, /data/f]}}}
containers:
- {name: c, image: HELLO, args: [START(c), serve, '8080'], MOUNTS, readinessProbe: {periodSeconds: 1, httpGet: {port: 8080, path: /}},
   livenessProbe: {periodSeconds: 2, timeoutSeconds: 60, failureThreshold: 100, exec: {command: [/hello, exit, '0']}},
   lifecycle: {postStart: {exec: {command: [/hello, append, /data/hook, x]}}, preStop: {exec: {command: [/hello, exit, '0']}}}}`},
	{name: "job", phase: corev1.PodSucceeded, codes: map[string]int32{"i": 0, "c": 0}, spec: `
restartPolicy: Never
initContainers: [{name: i, image: HELLO, args: [START(i), exit, '0'], MOUNTS}]
containers: [{name: c, image: HELLO, args: [START(c), exit, '0', '2'], MOUNTS}]`},
	{name: "failjob", phase: corev1.PodFailed, codes: map[string]int32{"c": 3, "d": 0}, spec: `
restartPolicy: Never
containers:
- {name: c, image: HELLO, args: [START(c), exit, '3', '1'], MOUNTS}
- {name: d, image: HELLO, args: [START(d), exit, '0', '4'], MOUNTS}`},
	{name: "failinit", phase: corev1.PodFailed, codes: map[string]int32{"i": 4}, spec: `
restartPolicy: Never
initContainers: [{name: i, image: HELLO, args: [START(i), exit, '4', '1'], MOUNTS}]
containers: [{name: c, image: HELLO, args: [START(c), exit, '0'], MOUNTS}]`},
	{name: "onfailure", phase: corev1.PodSucceeded, codes: map[string]int32{"d": 0}, spec: `
restartPolicy: OnFailure
terminationGracePeriodSeconds: 2
containers:
- {name: c, image: HELLO, args: [START(c), check-file, /data/go, '--', exit, '0'], MOUNTS}
- {name: d, image: HELLO, args: [START(d), sleep, '6', '--', write, /data/go, x, '--', exit, '0'], MOUNTS}`},
	{name: "sidejob", phase: corev1.PodSucceeded, codes: map[string]int32{"c": 0}, spec: `
restartPolicy: Never
terminationGracePeriodSeconds: 2
initContainers: [{name: side, image: HELLO, restartPolicy: Always, args: [START(side), sleep], MOUNTS}]
containers: [{name: c, image: HELLO, args: [START(c), exit, '0', '3'], MOUNTS}]`},
	{name: "crash", spec: `
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [START(c), exit, '7', '1'], MOUNTS}, {name: d, image: HELLO, args: [START(d), sleep], MOUNTS}]`,
		codes: map[string]int32{"c": 7}},
	{name: "size", spec: `
terminationGracePeriodSeconds: 1
containers: [{name: c, image: HELLO, args: [START(c), sleep], MOUNTS, resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}],
  resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}}]`},
	{name: "slow", spec: `
terminationGracePeriodSeconds: 4
containers: [{name: c, image: HELLO, args: [START(c), ignore-term], MOUNTS, lifecycle: {preStop: {sleep: {seconds: 2}}}}]`},
}

// mixedPod is a pod of a kind.
func (m *mixedSoak) mixedPod(k *mixedKind, name string) (*corev1.Pod, error) {
	spec := k.spec + mixedVolumes
	for {
		before, after, found := strings.Cut(spec, "START(")
		if !found {
			break
		}
		container, rest, _ := strings.Cut(after, ")")
		spec = before + "append, '/trace/$(POD).$(UID)." + container + "', x, '--'" + rest
	}
	spec = strings.ReplaceAll(spec, "MOUNTS", `env: [{name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}, `+
		`{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}], volumeMounts: [{name: trace, mountPath: /trace}, `+
		`{name: data, mountPath: /data}, {name: mem, mountPath: /mem}, {name: cm, mountPath: /cm}, {name: sec, mountPath: /sec}, `+
		`{name: all, mountPath: /all}]`)
	spec = strings.ReplaceAll(spec, "TRACE", m.trace)
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(manifest(m.s, name, spec)), pod); err != nil {
		return nil, err
	}
	codes, err := json.Marshal(k.codes)
	pod.Annotations = map[string]string{codesAnnotation: string(codes)}
	pod.Labels = map[string]string{"kind": k.name}
	pod.Spec.NodeName = m.node
	return pod, err
}

// load makes, changes and deletes pods at random until ctx ends. Requests that fail while the API server is away are dropped.
func (m *mixedSoak) load(ctx context.Context, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		if err := m.act(ctx, rng, n); err != nil && ctx.Err() == nil {
			m.count("failed requests of the load")
		}
		m.sleep(ctx, rng, 100*time.Millisecond, 2*time.Second)
	}
}

func (m *mixedSoak) sleep(ctx context.Context, rng *rand.Rand, least, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(least + time.Duration(rng.Int64N(int64(most-least)))):
	}
}

func (m *mixedSoak) act(ctx context.Context, rng *rand.Rand, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	pods := m.c.Admin.CoreV1().Pods(m.ns)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "kind"})
	if err != nil {
		return err
	}
	var live []*corev1.Pod
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			live = append(live, &list.Items[i])
		}
	}
	switch what := rng.IntN(10); {
	case what < 4 && len(list.Items) < mixedPods:
		k := &mixedKinds[rng.IntN(len(mixedKinds))]
		pod, err := m.mixedPod(k, fmt.Sprintf("%s-%d", k.name, n))
		if err == nil {
			_, err = pods.Create(ctx, pod, metav1.CreateOptions{})
		}
		if err == nil {
			m.count("pods created: " + k.name)
		}
		return err
	case what == 4:
		return m.editStatic(rng)
	case len(live) == 0:
		return nil
	case what < 7:
		p := live[rng.IntN(len(live))]
		if k := kindOf(p); k.phase != "" && !over(p) && rng.IntN(5) > 0 {
			return nil
		}
		options := metav1.DeleteOptions{}
		if rng.IntN(8) == 0 {
			now := int64(0)
			options.GracePeriodSeconds = &now
			m.forced.Store(p.UID, true)
		}
		m.count("pods deleted")
		return pods.Delete(ctx, p.Name, options)
	case what == 7:
		for _, p := range live {
			if kindOf(p).name == "size" {
				m.count("resizes")
				memory := fmt.Sprintf("%dMi", 40+rng.IntN(40))
				_, err := pods.Patch(ctx, p.Name, types.StrategicMergePatchType, fmt.Appendf(nil,
					`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"%dm"},"limits":{"memory":%q}}}]}}`,
					20+rng.IntN(50), memory), metav1.PatchOptions{}, "resize")
				return err
			}
		}
		return nil
	default:
		m.stream(rng, live[rng.IntN(len(live))])
		return nil
	}
}

// stream begins a log that is followed or a command in a pod, and gives it up after some seconds.
func (m *mixedSoak) stream(rng *rand.Rand, p *corev1.Pod) {
	limit := time.Duration(rng.IntN(20)) * time.Second
	m.count("streams")
	which := rng.IntN(3)
	m.others.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		switch which {
		case 0:
			in, err := m.c.Admin.CoreV1().Pods(m.ns).GetLogs(p.Name, &corev1.PodLogOptions{Follow: true,
				Container: p.Spec.Containers[0].Name}).Stream(ctx)
			if err == nil {
				_, _ = io.Copy(io.Discard, in)
				_ = in.Close()
			}
		case 1:
			_, _ = m.a.Command(ctx, "logs", "-f", "-n", m.ns, p.Name, "-c", p.Spec.Containers[0].Name)
		default:
			cmd := exec.CommandContext(ctx, program(), "exec", "--admin-socket="+m.a.AdminSocket, "-n", m.ns, p.Name,
				"-c", p.Spec.Containers[0].Name, "--", "/hello", "sleep", "30")
			_ = cmd.Run()
		}
	})
}

// editStatic writes, changes or removes the manifest of one of three static pods.
func (m *mixedSoak) editStatic(rng *rand.Rand) error {
	name := fmt.Sprintf("static%d", rng.IntN(3))
	if rng.IntN(3) == 0 {
		err := m.a.Remove(name + ".yaml")
		if os.IsNotExist(err) {
			return nil
		}
		m.count("static pods removed")
		return err
	}
	m.count("static pods written")
	return m.a.Write(name+".yaml", inNamespace(m.ns, name, manifest(m.s, name, fmt.Sprintf(`
terminationGracePeriodSeconds: 2
containers: [{name: c, image: HELLO, args: [sleep], env: [{name: V, value: "%d"}]}]`, rng.IntN(4)))))
}

func kindOf(p *corev1.Pod) *mixedKind {
	for i := range mixedKinds {
		if mixedKinds[i].name == p.Labels["kind"] {
			return &mixedKinds[i]
		}
	}
	return &mixedKind{}
}

func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// starts is how often a container's program has begun.
func (m *mixedSoak) starts(p *corev1.Pod, container string) int {
	text, err := os.ReadFile(filepath.Join(m.trace, fmt.Sprintf("%s.%s.%s", p.Name, p.UID, container)))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "x\n")
}
