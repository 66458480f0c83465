//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// inNamespace is a manifest of a pod in this namespace.
func inNamespace(ns, name, manifest string) string {
	return strings.Replace(manifest, "{name: "+name+"}", "{name: "+name+", namespace: "+ns+"}", 1)
}

const oneSecond = "containers: [{name: main, image: HELLO}]\nterminationGracePeriodSeconds: 1"

// A static pod has a mirror pod with its status, which is recreated when it is deleted or changed by others, and removed with it.
// None of that touches a container. The agent is the node, and no administrator.
func TestMirrorPods(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) {
		if a.Binary == "" { // a kubelet has no such folder
			a.Args = append(a.Args, "--object-dir="+t.TempDir())
		}
	})
	must(t, a.Write("web.yaml", inNamespace(ns, "web", manifest(s, "web", oneSecond))))
	name := "web-" + n.Name
	first := awaitAPIPod(t, c, ns, name, ready)
	node := awaitNode(t, c, n.Name, nodeReady)
	static := first.Annotations["kubernetes.io/config.hash"]
	if static == "" || first.Annotations["kubernetes.io/config.mirror"] != static ||
		first.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("its annotations are %v", first.Annotations)
	}
	if o := first.OwnerReferences; len(o) != 1 || o[0].UID != node.UID || o[0].Controller == nil || !*o[0].Controller {
		t.Errorf("it belongs to %+v", o)
	}
	if first.Status.ObservedGeneration != 0 || first.Status.PodIP == "" { // a static pod has no generation (KEP-5067)
		t.Errorf("its status is %+v", first.Status)
	}
	container := first.Status.ContainerStatuses[0].ContainerID

	another := func(was *corev1.Pod) *corev1.Pod {
		t.Helper()
		return awaitAPIPod(t, c, ns, name, func(p *corev1.Pod) error {
			if p.UID == was.UID {
				return errors.New("it is not made again")
			}
			return ready(p)
		})
	}
	remove(t, c, ns, name)
	second := another(first)
	patch := `{"spec":{"containers":[{"name":"main","image":"another"}]}}`
	_, err := c.Admin.CoreV1().Pods(ns).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	must(t, err)
	third := another(second)
	if third.Status.ContainerStatuses[0].ContainerID != container {
		t.Errorf("the container %s became %s", container, third.Status.ContainerStatuses[0].ContainerID)
	}

	// A static pod with a reference to an object is rejected by the API server, and runs.
	if a.Binary == "" {
		must(t, a.Write("refers.yaml", inNamespace(ns, "refers",
			manifest(s, "refers", "imagePullSecrets: [{name: none}]\n"+oneSecond))))
		awaitHere(t, a, "refers-"+n.Name, readyHere)
		awaitHealth(t, a, "pod "+ns+"/refers-"+n.Name+": its mirror pod cannot be created", "The static pod runs all the same")
		must(t, a.Remove("refers.yaml"))
	}

	// A pod of that name that is none of the node's stays.
	foreign := create(t, c, ns, "", inNamespace(ns, "taken-"+n.Name, manifest(s, "taken-"+n.Name, oneSecond)))
	must(t, a.Write("taken.yaml", inNamespace(ns, "taken", manifest(s, "taken", oneSecond))))
	await(t, func() error {
		_, text, err := a.Healthz(t.Context(), "?verbose")
		if err == nil && !strings.Contains(text, "pod "+ns+"/taken-"+n.Name+": its mirror pod cannot be created") {
			err = errors.New(text)
		}
		return err
	})
	if p := awaitAPIPod(t, c, ns, foreign.Name, func(*corev1.Pod) error { return nil }); p.UID != foreign.UID {
		t.Error("it was replaced")
	}
	remove(t, c, ns, foreign.Name)
	awaitAPIPod(t, c, ns, foreign.Name, ready)

	must(t, a.Remove("web.yaml"))
	must(t, a.Remove("taken.yaml"))
	awaitNoAPIPod(t, c, ns, name)
	awaitNoAPIPod(t, c, ns, "taken-"+n.Name)
	must(t, s.AwaitNoLeftovers())
}

// A status is written by patches that preserve others' fields; a restarted agent reports the same as before; and the last status
// is written before the object is removed. A status is never written to another pod of the same name.
func TestStatusesInTheCluster(t *testing.T) {
	c := cluster.Shared(t)
	p, ns := c.Proxy(t), c.Namespace(t)
	n := c.NodeBehind(t, p)
	s, a := inCluster(t, c, n, quick)
	names := &namesakes{c: c, ns: ns, was: map[string]*corev1.Pod{}}
	for _, name := range []string{"away", "told", "deleted"} {
		names.was[name] = create(t, c, ns, n.Name, manifest(s, name, oneSecond))
	}
	made := create(t, c, ns, n.Name, manifest(s, "one", oneSecond+"\nreadinessGates: [{conditionType: example.com/gate}]"))
	closed := awaitAPIPod(t, c, ns, "one", func(p *corev1.Pod) error {
		if r := conditionOf(p, corev1.ContainersReady); r == nil || r.Status != corev1.ConditionTrue {
			return fmt.Errorf("status is %+v", p.Status)
		}
		return nil
	})
	if r := conditionOf(closed, corev1.PodReady); r == nil || r.Status != corev1.ConditionFalse ||
		closed.Status.ObservedGeneration != made.Generation {
		t.Errorf("with its gate closed: %+v", closed.Status)
	}
	patch := `{"status":{"conditions":[{"type":"example.com/gate","status":"True"},{"type":"example.com/other","status":"Unknown","message":"mine"}]}}`
	_, err := c.Admin.CoreV1().Pods(ns).Patch(t.Context(), "one", types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status")
	must(t, err)
	open := awaitAPIPod(t, c, ns, "one", ready)

	names.await(t)
	must(t, a.Kill9())
	begun := time.Now()
	must(t, names.replace(t.Context(), "away"))
	must(t, a.Start())
	create(t, c, ns, n.Name, manifest(s, "two", oneSecond))
	awaitAPIPod(t, c, ns, "two", ready)
	again := awaitAPIPod(t, c, ns, "one", ready)
	was, is := conditionOf(open, corev1.PodReady), conditionOf(again, corev1.PodReady)
	if !was.LastTransitionTime.Equal(&is.LastTransitionTime) {
		t.Errorf("Ready was %+v and is %+v", was, is)
	}
	if o := conditionOf(again, "example.com/other"); o == nil || o.Message != "mine" || o.Status != corev1.ConditionUnknown {
		t.Errorf("the condition of another is %+v", o)
	}
	if got := podWrites(t, c, n, "one", begun); len(got) != 0 {
		t.Errorf("after the restart the agent wrote of a pod that is as it was: %v", got)
	}

	replaced := names.replaceAt(t, p, map[string]string{"told": http.MethodPatch, "deleted": http.MethodDelete})
	remove(t, c, ns, "told")
	remove(t, c, ns, "deleted")
	replaced()
	names.await(t)
	awaitRequest(t, c, n, begun, "told", "patch", http.StatusUnprocessableEntity)
	awaitRequest(t, c, n, begun, "deleted", "delete", http.StatusConflict)
	for name := range names.was {
		remove(t, c, ns, name)
		awaitNoAPIPod(t, c, ns, name)
	}

	remove(t, c, ns, "one")
	remove(t, c, ns, "two")
	awaitNoAPIPod(t, c, ns, "one")
	awaitNoAPIPod(t, c, ns, "two")
	await(t, func() error {
		got := podWrites(t, c, n, "one", begun)
		if i := slices.Index(got, "delete"); i < 1 || got[i-1] != "patch" || slices.Index(got[i+1:], "delete") >= 0 {
			return fmt.Errorf("the agent wrote %v", got)
		}
		return nil
	})
	must(t, s.AwaitNoLeftovers())
}

// namesakes are pods, by name, each as it was made last.
type namesakes struct {
	c   *cluster.Cluster
	ns  string
	was map[string]*corev1.Pod
}

// await waits until all of them are ready: those that were made last, and not others of their names.
func (n *namesakes) await(t *testing.T) {
	t.Helper()
	for name, was := range n.was {
		awaitAPIPod(t, n.c, n.ns, name, func(p *corev1.Pod) error {
			if p.UID != was.UID {
				return fmt.Errorf("pod %s is %s", name, p.UID)
			}
			return ready(p)
		})
	}
}

// replace takes the pod away without grace and makes another one like it, with its name.
func (n *namesakes) replace(ctx context.Context, name string) error {
	pods, now, was := n.c.Admin.CoreV1().Pods(n.ns), int64(0), n.was[name]
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		return err
	}
	next, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: was.Spec}, metav1.CreateOptions{})
	n.was[name] = next
	return err
}

// replaceAt replaces each of the named pods while the next request of this method about it is in transit; the returned function
// waits until all were.
func (n *namesakes) replaceAt(t *testing.T, p *cluster.Proxy, methods map[string]string) func() {
	left := len(methods)
	done := make(chan struct{}, left)
	p.AnswerWhere(func(r *http.Request) int {
		name := path.Base(strings.TrimSuffix(r.URL.Path, "/status"))
		if methods[name] == r.Method {
			delete(methods, name)
			if err := n.replace(t.Context(), name); err != nil {
				t.Error(err)
			}
			done <- struct{}{}
		}
		return 0
	})
	return func() {
		t.Helper()
		for range left {
			select {
			case <-done:
			case <-time.After(waitLimit):
				t.Fatal("the agent has not asked for it")
			}
		}
	}
}

// awaitRequest waits until a node's request about a pod was answered so.
func awaitRequest(t *testing.T, c *cluster.Cluster, n *cluster.Node, begun time.Time, pod, verb string, code int) {
	t.Helper()
	await(t, func() error {
		all, err := c.Requests(n.Name)
		for _, r := range cluster.Since(all, begun) {
			if r.Object.Resource == "pods" && r.Object.Name == pod && r.Verb == verb && r.Answer.Code == code {
				return nil
			}
		}
		return fmt.Errorf("no %s of pod %s was answered with %d: %w", verb, pod, code, err)
	})
}

func conditionOf(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// podWrites returns a node's writes about a pod since then.
func podWrites(t *testing.T, c *cluster.Cluster, n *cluster.Node, pod string, begun time.Time) []string {
	t.Helper()
	all, err := c.Requests(n.Name)
	must(t, err)
	var out []string
	for _, r := range cluster.Since(all, begun) {
		if r.Object.Resource == "pods" && r.Object.Name == pod &&
			slices.Contains([]string{"patch", "update", "create", "delete"}, r.Verb) {
			out = append(out, r.Verb)
		}
	}
	return out
}
