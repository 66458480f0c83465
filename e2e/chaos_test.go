//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
)

// Shipped experiments leave real containers alone and pods ready, also on the API server; the actions are in Events of the node
// and in the flight recorder. An agent without the flag refuses.
func TestShippedExperiments(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	s, a := inCluster(t, c, n, func(a *stack.Agent) { quick(a); a.Args = append(a.Args, "--enable-chaos") })
	socket := "--admin-socket=" + a.AdminSocket
	names := []string{"one", "two", "three"}
	for _, name := range names {
		create(t, c, ns, n.Name, manifest(s, name, `containers:
- {name: c, image: HELLO, args: [sleep], readinessProbe: {periodSeconds: 1, exec: {command: [/hello, exit, "0"]}}}
- {name: d, image: HELLO, args: [sleep]}
terminationGracePeriodSeconds: 1`))
	}
	since := map[string]string{}
	for _, name := range names {
		pod := awaitAPIPod(t, c, ns, name, ready)
		since[name] = readySince(pod)
	}
	before, err := s.Containers(t.Context())
	must(t, err)
	for _, name := range []string{"kills", "messages"} {
		report := filepath.Join(t.TempDir(), "report")
		out, notes, code := playlet(t, "chaos", "run", "builtin:"+name, "--report="+report, socket)
		t.Log(out)
		if code != 0 || !strings.Contains(out, "passed: the node was steady again after ") {
			t.Errorf("%s: %d %s", name, code, notes)
		}
	}
	asStarted(t, s, before)
	for _, name := range names {
		awaitAPIPod(t, c, ns, name, func(p *corev1.Pod) error {
			if err := ready(p); err != nil {
				return err
			}
			if got := readySince(p); got != since[name] {
				return fmt.Errorf("pod %s was not ready for a time: since %s, and %s before", name, got, since[name])
			}
			return nil
		})
	}
	awaitEvents(t, c, "default", n.Name, map[string]int32{"Warning Chaos : playlet chaos injected 4 faults on purpose (rule 1: kill pods/** --seed=12) into ": 1})
	out, notes, _ := playlet(t, "chaos", "list", "-o", "json", socket)
	var list struct {
		Rules []struct {
			Over  bool `json:"over"`
			Acted int  `json:"acted"`
		} `json:"rules"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Rules) < 10 {
		t.Errorf("%v: %s%s", err, out, notes)
	}
	for i, r := range list.Rules {
		if !r.Over {
			t.Errorf("rule %d is in force: %+v", i, r)
		}
	}
	if out, notes, _ = playlet(t, "trace", "actor/runtime", "-o", "json", socket); !strings.Contains(out, "panic: rule ") {
		t.Errorf("what was done is not in the recorder: %s%s", out, notes)
	}
	_, err = a.Term()
	must(t, err)
	a.Args = a.Args[:len(a.Args)-1]
	must(t, a.Start())
	await(t, func() error {
		if _, notes, code := playlet(t, "chaos", "kill", "volumes", socket); code != 1 || !strings.Contains(notes, "chaos is not enabled") {
			return fmt.Errorf("%d %s", code, notes)
		}
		return nil
	})
	asStarted(t, s, before)
}

// readySince is since when the API server has the pod as ready.
func readySince(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return string(c.Status) + c.LastTransitionTime.String()
		}
	}
	return "never"
}
