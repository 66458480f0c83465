//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// passedOver and unreadable are the static pods of a kubelet, by the fault in their manifest. The pods of passedOver are adopted.
var (
	passedOver = map[string]func(string) string{
		"misspelt": func(m string) string { return m + "  nodeSelectr: {a: b}\n" },
		"case":     func(m string) string { return m + "  HostNetwork: true\n" },
		"twice":    func(m string) string { return m + "  dnsPolicy: Default\n  dnsPolicy: ClusterFirst\n" },
		"top":      func(m string) string { return m + "replicas: 3\n" },
		"version":  func(m string) string { return strings.Replace(m, "metadata: {", "metadata: {clusterName: old, ", 1) },
		"gates":    func(m string) string { return m + "  readinessGates: [{conditionType: example.com/a}]\n" },
	}
	unreadable = map[string]func(string) string{
		"syntax": func(string) string { return "apiVersion: v1\nkind: Pod\nmetadata: {name: syn" },
		"kind":   func(m string) string { return strings.Replace(m, "kind: Pod", "kind: Pood", 1) },
		"type":   func(m string) string { return strings.Replace(m, "metadata: {", "metadata: 5 # {", 1) },
		"value":  func(m string) string { return m + "  restartPolicy: Sometimes\n" },
		"field": func(m string) string {
			return m + "  volumes: [{name: data, fc: {targetWWNs: [50060e801049cfd1], lun: 0}}]\n"
		},
		"empty": func(string) string { return "" },
	}
)

// No static pod of a kubelet ends because its manifest is read otherwise here, or was damaged while nothing looked: the first
// kind is adopted with a warning, the second is left alone and reported until its manifest is corrected or removed.
func TestTakenOverWithFaultyManifests(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) { asKubelet(t, a) })
	text := func(name string) string {
		return inNamespace(ns, name, manifest(s, name, oneSecond)) + "\n"
	}
	names := append(slices.Collect(maps.Keys(passedOver)), slices.Collect(maps.Keys(unreadable))...)
	for _, name := range names {
		m := text(name)
		if spoil := passedOver[name]; spoil != nil {
			m = spoil(m)
		}
		must(t, a.Write(name+".yaml", m))
	}
	mirrors := map[string]string{}
	for _, name := range names {
		look := ready
		if name == "gates" {
			look = inPhase(corev1.PodRunning)
		}
		mirrors[name] = string(awaitAPIPod(t, c, ns, name+"-"+n.Name, look).UID)
	}
	before := containersByID(t, s)
	_, err := a.Term()
	must(t, err)
	for name, spoil := range unreadable {
		must(t, a.Write(name+".yaml", spoil(text(name))))
	}
	a.Binary = "" // ours
	for range 2 {
		must(t, a.Start())
		settled(t, a)
		create(t, c, ns, n.Name, manifest(s, "ours", sleeper)) // other terminations have started by the time it ends
		awaitAPIPod(t, c, ns, "ours", ready)
		remove(t, c, ns, "ours")
		awaitNoAPIPod(t, c, ns, "ours")
		untouched(t, s, before)
		for _, name := range names {
			if p := awaitAPIPod(t, c, ns, name+"-"+n.Name, inPhase(corev1.PodRunning)); string(p.UID) != mirrors[name] {
				t.Errorf("the mirror pod of %s was made again", name)
			}
		}
		awaitHealth(t, a, "misspelt.yaml", "nodeSelectr: is not a field of the API here; did you mean nodeSelector?")
		for name := range unreadable {
			awaitHealth(t, a, "pod "+ns+"/"+name+"-"+n.Name+" runs, and no manifest that can be used names it")
		}
		_, err := a.Term()
		must(t, err)
	}
	must(t, a.Start())
	for name := range unreadable {
		if name != "value" {
			must(t, a.Remove(name+".yaml"))
		}
	}
	must(t, a.Write("value.yaml", text("value")))
	for name := range unreadable {
		if name != "value" {
			awaitNoAPIPod(t, c, ns, name+"-"+n.Name)
		}
	}
	await(t, func() error {
		now, err := a.Snapshot(t.Context())
		if err == nil && now.Pod("value-"+n.Name) != nil {
			return nil
		}
		return fmt.Errorf("the corrected pod is not adopted: %v", err)
	})
	for id, one := range containersByID(t, s) {
		if was := before[id]; was == nil {
			t.Errorf("container %s of pod %s is new", id, one.Labels["io.kubernetes.pod.name"])
		}
	}
	for _, name := range append(slices.Collect(maps.Keys(passedOver)), "value") {
		must(t, a.Remove(name+".yaml"))
	}
	must(t, s.AwaitNoLeftovers())
}
