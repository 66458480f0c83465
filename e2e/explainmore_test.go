//go:build e2e

package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Problems of the node's network, its runtime and its disk are named as the cause of waiting pods: no free address, a removed CNI
// plugin, at a start and at an end; no network; a process in a volume; an absent runtime.
func TestTroublesOfTheNodeNameTheirCause(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	config := filepath.Join(s.CNIConfDir(), "10-playlet.conflist")
	text, err := os.ReadFile(config)
	must(t, err)
	narrow := regexp.MustCompile(`"subnet":"([0-9.]+)/20"`).ReplaceAllString(string(text), `"subnet":"$1/30"`) // a gateway and one more
	narrow = strings.Replace(narrow, `"type":"bridge"`, `"type":"movable"`, 1)
	if strings.Count(narrow, `/30"`) != 1 || !strings.Contains(narrow, `"movable"`) {
		t.Fatal(narrow)
	}
	plugin, away := filepath.Join(s.CNIOwnBinDir(), "movable"), filepath.Join(t.TempDir(), "movable")
	must(t, os.Link(filepath.Join(s.CNIBinDir(), "bridge"), plugin))
	must(t, os.WriteFile(config+".new", []byte(narrow), 0o644))
	must(t, os.Rename(config+".new", config))
	must(t, s.RestartRuntime())
	a := s.Agent(t)
	socket := "--admin-socket=" + a.AdminSocket
	here := func(name string) string { return "default/" + onNode(name) }
	sleeps := "terminationGracePeriodSeconds: 1\ncontainers: [{name: c, image: HELLO, args: [sleep]}]"
	write := func(name, spec string) { must(t, a.Write(name+".yaml", manifest(s, name, spec))) }
	write("last", sleeps)
	write("busy", "hostNetwork: true\n"+strings.Replace(withVolume("medium: Memory"), "containers:", "terminationGracePeriodSeconds: 1\ncontainers:", 1))
	up(t, s, "last", "c")
	busy := awaitPod(t, a, "busy", ready)
	n := 0
	write("address", sleeps)
	n += prove(t, a, map[string]situation{here("address"): {cause: "the pods' network has no address left for the pod"}})

	inside := exec.CommandContext(t.Context(), "sleep", "600")
	inside.Dir = filepath.Join(a.RootDir, "pods", string(busy.UID), "volumes/kubernetes.io~empty-dir/v")
	must(t, inside.Start())
	must(t, os.Rename(plugin, away))
	write("plugin", sleeps)
	must(t, a.Remove("last.yaml"))
	must(t, a.Remove("busy.yaml"))
	ending := "the pod is ending because its manifest " + a.ManifestDir + "/last.yaml was removed or no longer contains it: "
	// The runtime misses the plugin, too, and may say so before the pod's sandbox is tried.
	n += prove(t, a, map[string]situation{
		here("plugin"): {cause: "the CNI plugin movable is not installed in ", or: "network is not ready: "},
		here("last"):   {cause: ending + "the runtime cannot stop the pod's sandbox: "},
	})
	await(t, func() error { // which holds nothing up: the folder is left for later
		out, _, _ := playlet(t, "events", onNode("busy"), socket)
		if !strings.Contains(out, "FailedUnMount") || !strings.Contains(out, "volumes of the pod cannot be unmounted: ") || !strings.Contains(out, "busy") {
			return fmt.Errorf("%s", out)
		}
		t.Log(out)
		return nil
	})
	n++
	must(t, inside.Process.Kill())
	_ = inside.Wait()
	must(t, os.Rename(away, plugin))
	forgotten(t, a, "last")
	forgotten(t, a, "busy")
	must(t, a.Remove("address.yaml"))
	must(t, a.Remove("plugin.yaml"))
	forgotten(t, a, "address")
	forgotten(t, a, "plugin")

	must(t, os.Remove(config))
	await(t, func() error { // until the runtime has seen it, a pod gets the network still
		_, notes, _ := playlet(t, "pods", socket)
		if !strings.Contains(notes, "the runtime's network is not ready") {
			return fmt.Errorf("%s", notes)
		}
		return nil
	})
	write("nonet", sleeps)
	n += prove(t, a, map[string]situation{here("nonet"): {cause: "network is not ready: "}})
	must(t, s.KillRuntime())
	write("late", "hostNetwork: true\n"+sleeps)
	n += prove(t, a, map[string]situation{here("late"): {cause: "the container runtime", quiet: true}})
	t.Logf("%d situations", n)
	must(t, os.WriteFile(config, []byte(narrow), 0o644)) // which has an address for one of the two
	must(t, s.StartRuntime())
	up(t, s, "nonet", "c")
	up(t, s, "late", "c")
	for _, name := range []string{"nonet", "late"} {
		must(t, a.Remove(name+".yaml"))
	}
	done(t, s, a)
}

// Causes of waiting and rejected pods with a real API server.
func TestTroublesOfTheClusterNameTheirCause(t *testing.T) {
	c := cluster.Shared(t)
	p, ns := c.Proxy(t), c.Namespace(t)
	n := c.NodeBehind(t, p)
	s, a := inCluster(t, c, n, func(a *stack.Agent) { a.Config["maxPods"] = 9 })
	private := another(t, "team/app")
	private.Protect("robot", hiddenWord)
	wrong := base64.StdEncoding.EncodeToString([]byte("robot:wrong"))
	_, err := c.Admin.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, private.Addr, wrong)}}, metav1.CreateOptions{})
	must(t, err)
	sleeps := "terminationGracePeriodSeconds: 1\ncontainers: [{name: c, image: HELLO, args: [sleep]}]"
	env := func(secret string) string {
		return "containers: [{name: c, image: HELLO, env: [{name: E, valueFrom: {secretKeyRef: {name: " + secret + ", key: k}}}]}]"
	}
	want := map[string]situation{}
	makes := func(name, spec, cause string) {
		create(t, c, ns, n.Name, manifest(s, name, spec))
		if cause != "" {
			want[ns+"/"+name] = situation{cause: cause}
		}
	}
	makes("kept", sleeps, "")
	awaitAPIPod(t, c, ns, "kept", ready)
	_, err = c.Admin.CoreV1().Pods(ns).Patch(t.Context(), "kept", types.MergePatchType, []byte(`{"metadata": {"finalizers": ["example.com/backup"]}}`), metav1.PatchOptions{})
	must(t, err)
	makes("secret", env("none"), "Secret "+ns+"/none does not exist; it is needed by container c")
	makes("credentials", fmt.Sprintf("imagePullSecrets: [{name: wrong}]\ncontainers: [{name: c, image: %q}]", private.Ref("team/app")),
		"container c: image "+private.Ref("team/app")+" cannot be pulled: its registry denied access")
	makes("cpu", "containers: [{name: c, image: HELLO, resources: {requests: {cpu: 4000}}}]", "the node does not have enough CPU left for the pod (in millicores, ")
	makes("label", "nodeSelector: {disk: ssd}\n"+sleeps, "the pod's nodeSelector wants the label disk=ssd, which this node has not")
	makes("windows", "os: {name: windows}\n"+sleeps, "spec.os.name is windows, and this node's is linux")
	makes("claim", strings.Replace(sleeps, "args: [sleep]", "args: [sleep], volumeMounts: [{name: v, mountPath: /v}]", 1)+"\nvolumes: [{name: v, fc: {targetWWNs: [50060e801049cfd1], lun: 0}}]",
		"the pod waits, since it sets what Playlet does not support yet: ")
	p.AnswerWhere(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/secrets") {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	makes("unread", env("unread"), "Secret "+ns+"/unread: it has not been read from the API server yet: ")
	remove(t, c, ns, "kept")
	proved := prove(t, a, want)
	await(t, func() error { // a finished pod is no longer in the list
		out, _, _ := playlet(t, "explain", "kept", "-n", ns, "--admin-socket="+a.AdminSocket)
		events, _, _ := playlet(t, "events", "kept", "-n", ns, "--admin-socket="+a.AdminSocket)
		if words := "its object is kept by its finalizers: example.com/backup"; !strings.Contains(out, words) || !strings.Contains(events, words) {
			return fmt.Errorf("%s%s", out, events)
		}
		return nil
	})
	p.AnswerWhere(nil)

	clear(want)
	_, err = c.Admin.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType,
		[]byte(`{"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}}`), metav1.PatchOptions{})
	must(t, err)
	await(t, func() error { // the agent learns of the taint with a delay
		name := fmt.Sprintf("tainted%d", len(want))
		makes(name, sleeps, "the pod does not tolerate the node's taint out:NoExecute")
		pod := awaitAPIPod(t, c, ns, name, func(p *corev1.Pod) error {
			if p.Status.Phase == corev1.PodPending && p.Status.StartTime == nil {
				return fmt.Errorf("nothing is said of it")
			}
			return nil
		})
		if pod.Status.Reason == "TaintToleration" {
			return nil
		}
		delete(want, ns+"/"+name)
		return fmt.Errorf("it is %s %s", pod.Status.Phase, pod.Status.Reason)
	})
	for i := range 9 {
		makes(fmt.Sprintf("many%d", i), "tolerations: [{operator: Exists}]\n"+sleeps, "")
	}
	makes("many", "tolerations: [{operator: Exists}]\n"+sleeps, "the node already has its maximum number of pods (")
	proved += prove(t, a, want) + 1
	t.Logf("%d situations", proved)
	_, err = c.Admin.CoreV1().Pods(ns).Patch(t.Context(), "kept", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	must(t, err)
}
