//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// awaitHere waits until look accepts the agent's state of a pod, by its whole name, and returns the state.
func awaitHere(t *testing.T, a *stack.Agent, name string, look func(*stack.PodState) error) *stack.PodState {
	t.Helper()
	var state *stack.PodState
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err != nil {
			return err
		}
		if state = now.Pod(name); state == nil {
			return fmt.Errorf("the agent knows no pod %s: %+v", name, now.Problems)
		}
		return look(state)
	})
	return state
}

func readyHere(p *stack.PodState) error { return ready(p.Pod) }

// awaitLeft waits until the agent has no pod of that name, and the runtime nothing of it.
func awaitLeft(t *testing.T, s *stack.Stack, a *stack.Agent, name string) {
	t.Helper()
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err == nil && now.Pod(name) != nil {
			err = fmt.Errorf("the agent still has pod %s: %+v", name, now.Pod(name))
		}
		if err != nil {
			return err
		}
		if left := ofPod(t, s, name); len(left) > 0 {
			return fmt.Errorf("the runtime still has %v", left)
		}
		return nil
	})
}

// ofPod lists the containers of a pod, by its whole name.
func ofPod(t *testing.T, s *stack.Stack, name string) []*runtimeapi.Container {
	t.Helper()
	all, err := s.Containers(t.Context())
	must(t, err)
	var out []*runtimeapi.Container
	for _, c := range all {
		if c.Labels["io.kubernetes.pod.name"] == name {
			out = append(out, c)
		}
	}
	return out
}

// awaitTrouble waits until the agent reports, with these words, a problem with the API server.
func awaitTrouble(t *testing.T, a *stack.Agent, words string) {
	t.Helper()
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err != nil {
			return err
		}
		for _, p := range now.Problems {
			if strings.HasPrefix(p.Path, "https://") && strings.Contains(p.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("no problem of the API server with %q among %+v", words, now.Problems)
	})
}

// awaitNoTrouble waits until the agent has no problem.
func awaitNoTrouble(t *testing.T, a *stack.Agent) {
	t.Helper()
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err == nil && len(now.Problems) > 0 {
			err = fmt.Errorf("there are problems: %+v", now.Problems)
		}
		return err
	})
}

// awaitHealth waits until a line of a successful health check has all of the words.
func awaitHealth(t *testing.T, a *stack.Agent, words ...string) {
	t.Helper()
	await(t, func() error {
		code, text, err := a.Healthz(t.Context(), "?verbose")
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("health answers %d: %s, %w", code, text, err)
		}
		for line := range strings.Lines(text) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}
		return fmt.Errorf("health does not say %q: %s", words, text)
	})
}

// awaitWellCluster waits until the health check has no note on the cluster.
func awaitWellCluster(t *testing.T, a *stack.Agent) {
	t.Helper()
	await(t, func() error {
		_, text, err := a.Healthz(t.Context(), "?verbose")
		if err == nil && strings.Contains(text, "the API server") {
			err = errors.New(text)
		}
		return err
	})
}

// mountsOf counts the mounts in the folder of a pod.
func mountsOf(t *testing.T, a *stack.Agent, pod *corev1.Pod) int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	return strings.Count(string(mounts), " "+a.RootDir+"/pods/"+string(pod.UID)+"/")
}

// watchRemoval begins to watch a pod. The returned function waits until its object is removed.
func watchRemoval(t *testing.T, c *cluster.Cluster, ns, name string) func() {
	t.Helper()
	w, err := c.Admin.CoreV1().Pods(ns).Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: name}))
	must(t, err)
	t.Cleanup(w.Stop)
	return func() {
		t.Helper()
		for e := range w.ResultChan() {
			if e.Type == watch.Deleted {
				return
			}
		}
		t.Fatalf("the watch of pod %s ended before it", name)
	}
}

const cloudSleeper = "terminationGracePeriodSeconds: 60\ncontainers: [{name: c, image: HELLO, args: [sleep]}]"

// The API server's pods run beside a static one, wait for their readiness gates, and end as specified by their deletion, also if
// its grace period is shortened or the object is removed.
func TestPodsOfTheAPIServer(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, nil)
	must(t, a.Write("static.yaml", manifest(s, "static", cloudSleeper)))
	web := create(t, c, ns, n.Name, manifest(s, "web", "volumes: [{name: v, emptyDir: {medium: Memory}}]\n"+
		strings.Replace(cloudSleeper, "args: [sleep]", "args: [sleep], volumeMounts: [{name: v, mountPath: /v}]", 1)))
	create(t, c, ns, n.Name, manifest(s, "gated", "readinessGates: [{conditionType: example.com/open}]\n"+cloudSleeper))
	create(t, c, ns, n.Name, manifest(s, "forced", cloudSleeper))
	create(t, c, ns, n.Name, manifest(s, "stubborn",
		"terminationGracePeriodSeconds: 3600\ncontainers: [{name: c, image: HELLO, args: [ignore-term], lifecycle: {preStop: {sleep: {seconds: 3000}}}}]"))
	for _, name := range []string{"web", "forced", "stubborn"} {
		awaitHere(t, a, name, readyHere)
	}
	awaitHere(t, a, "static-"+n.Name, readyHere)
	if got := ofPod(t, s, "web"); len(got) != 1 || got[0].Labels["io.kubernetes.pod.uid"] != string(web.UID) ||
		got[0].Labels["io.kubernetes.pod.namespace"] != ns {
		t.Errorf("the runtime has %+v", got)
	}

	awaitHere(t, a, "gated", func(p *stack.PodState) error {
		for _, c := range p.Pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Reason == "ReadinessGatesNotReady" &&
				strings.Contains(c.Message, "example.com/open") {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", p.Pod.Status.Conditions)
	})
	_, err := c.Admin.CoreV1().Pods(ns).Patch(t.Context(), "gated", "application/strategic-merge-patch+json",
		[]byte(`{"status":{"conditions":[{"type":"example.com/open","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	awaitHere(t, a, "gated", readyHere)

	awaitAPIPod(t, c, ns, "gated", ready)
	if mountsOf(t, a, web) == 0 {
		t.Error("nothing is mounted for the pod's volume in memory")
	}
	removed := watchRemoval(t, c, ns, "web")
	remove(t, c, ns, "web")
	removed()
	if n := mountsOf(t, a, web); n > 0 {
		t.Errorf("%d of its volumes are mounted when its object has gone", n)
	}
	awaitLeft(t, s, a, "web")
	remove(t, c, ns, "stubborn")
	awaitHere(t, a, "stubborn", func(p *stack.PodState) error {
		if p.Ending == "" || p.Phase != "terminating" {
			return fmt.Errorf("it is %s, ending: %q", p.Phase, p.Ending)
		}
		return nil
	})
	must(t, c.Admin.CoreV1().Pods(ns).Delete(t.Context(), "stubborn", metav1.DeleteOptions{GracePeriodSeconds: new(int64(2))}))
	awaitNoAPIPod(t, c, ns, "stubborn")
	awaitLeft(t, s, a, "stubborn")
	must(t, c.Admin.CoreV1().Pods(ns).Delete(t.Context(), "forced", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	awaitLeft(t, s, a, "forced")
	awaitHere(t, a, "gated", readyHere)
	awaitHere(t, a, "static-"+n.Name, readyHere)
}

func hasHostname(n *corev1.Node) error {
	if n.Labels[corev1.LabelHostname] != n.Name {
		return fmt.Errorf("the labels are %v", n.Labels)
	}
	return nil
}

// The API server is killed, and comes back without recent changes or restored from a backup; the agent is killed in the meantime.
// Pods only change according to the final state of the API server.
func TestPodsOutliveTheAPIServer(t *testing.T) {
	c := cluster.Start(t)
	ns := c.Namespace(t)
	p := c.Proxy(t)
	n := c.NodeBehind(t, p)
	s, a := inCluster(t, c, n, nil)
	create(t, c, ns, n.Name, manifest(s, "web", cloudSleeper))
	awaitHere(t, a, "web", readyHere)
	_, err := c.Admin.CoreV1().Nodes().Patch(t.Context(), n.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"kubernetes.io/hostname":null}}}`), metav1.PatchOptions{})
	must(t, err)
	must(t, c.Save()) // of a Node that lacks a label, which an agent sets on one that it meets
	create(t, c, ns, n.Name, manifest(s, "late", cloudSleeper))
	awaitHere(t, a, "late", readyHere)
	before, err := s.Containers(t.Context())
	must(t, err)

	for _, answer := range []struct {
		code  int
		words string
	}{{401, "401 Unauthorized"}, {403, "system:node:" + n.Name}, {429, "429 Too Many Requests"},
		{500, "fault of its own (500)"}} {
		p.Answer(answer.code)
		p.Cut()
		awaitTrouble(t, a, answer.words)
		if answer.code == http.StatusForbidden { // the lease is renewed each 10 s: once is enough
			awaitHealth(t, a, "the node's lease cannot be renewed: the API server", answer.words)
		}
	}
	asStarted(t, s, before)
	p.Answer(0)
	awaitNoTrouble(t, a)
	awaitNode(t, c, n.Name, nodeReady)
	create(t, c, ns, n.Name, manifest(s, "more", cloudSleeper)) // its Events are among the last ones, which were rejected
	awaitHere(t, a, "more", readyHere)
	awaitWellCluster(t, a)

	must(t, c.KillAPIServer())
	awaitTrouble(t, a, "cannot be re")
	must(t, a.Kill9())
	must(t, a.Start())
	awaitTrouble(t, a, "cannot be re")
	must(t, a.Write("static.yaml", manifest(s, "static", cloudSleeper)))
	awaitHere(t, a, "static-"+n.Name, readyHere)
	asStarted(t, s, before)
	must(t, c.StartAPIServer())
	must(t, c.Forget(t.Context()))
	create(t, c, ns, n.Name, manifest(s, "next", cloudSleeper))
	for _, name := range []string{"web", "late", "next"} {
		awaitHere(t, a, name, readyHere)
	}
	awaitNoTrouble(t, a)
	asStarted(t, s, before)

	awaitNode(t, c, n.Name, hasHostname)
	before = ofPod(t, s, "web")
	must(t, c.GoBack())
	asStarted(t, s, before)
	must(t, a.Kill9()) // as by an operator after restoring a backup
	must(t, a.Start())
	awaitLeft(t, s, a, "late")
	awaitLeft(t, s, a, "more")
	awaitLeft(t, s, a, "next")
	awaitHere(t, a, "web", readyHere)
	awaitHere(t, a, "static-"+n.Name, readyHere)
	asStarted(t, s, before)
	awaitNode(t, c, n.Name, hasHostname)
	awaitNode(t, c, n.Name, nodeReady)
}
