package explain

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
)

// Check is the result of one check of the agent's health.
type Check struct {
	Name, Failed string // Failed is empty where it is well
	Notes        []string
}

// remedies are by check.
var remedies = map[string]string{
	"runtime":     "start the container runtime and see its log; playlet doctor looks at its configuration and network",
	"supervisors": "see the agent's log; the actor is retried automatically, and at once when the agent restarts",
	"sources":     "fix the manifest, URL or connection named above",
	"pods":        "check the agent's log and the node's disk",
	"listeners":   "free the address, or configure another",
	"probes":      "give the node more CPU, or reduce the number of probes",
	"dns": "set clusterDNS (--cluster-dns) if pods need the names of Services; pods with dnsPolicy: Default use the node's " +
		"resolver without this note",
	"identity": "approve a certificate that awaits it (kubectl get csr), or change the setting named above; playlet help flags " +
		"explains each",
	"port": "change the setting named above (playlet help flags explains each); a standalone node works with the port " +
		"closed",
	"shutdown": "start logind (systemctl status systemd-logind) and see the agent's log, or set shutdownGracePeriod: 0s",
	"cluster":  "check that the API server can be reached and that the node's credentials have its rights",
}

// pressures names the resource of each pressure.
var pressures = map[v1.NodeConditionType]string{
	v1.NodeMemoryPressure: "memory",
	v1.NodeDiskPressure:   "disk space",
	v1.NodePIDPressure:    "process IDs",
}

// Short returns a sentence about the pressure and its effect on admission.
func Short(of v1.NodeConditionType) string {
	admitted := "static and critical pods"
	if of == v1.NodeMemoryPressure {
		admitted += ", and pods that request memory or CPU,"
	}
	return "the node is short of " + pressures[of] + ": only " + admitted + " are admitted"
}

// Node explains the node: failed checks first, then shortages, and then other facts.
func Node(checks []Check, s *board.Snapshot) Explanation {
	out := Explanation{Kind: "Node"}
	var all, notes []Finding
	for _, c := range checks {
		out.Evidence = append(out.Evidence, c.Name+": ok")
		if c.Failed != "" {
			f := Finding{Code: c.Name, Cause: c.Failed, Remedy: remedies[c.Name]}
			if c.Name == "runtime" {
				f.Since = s.Runtime.Since
			}
			all = append(all, f)
			out.Evidence[len(out.Evidence)-1] = c.Name + ": " + c.Failed
		}
		for _, n := range c.Notes {
			if c.Name == "volumes" { // these are Held, with a remedy each
				break
			}
			notes = append(notes, Finding{Code: c.Name, Cause: n, Remedy: remedies[c.Name]})
		}
	}
	for _, u := range s.Under {
		all = append(all, Finding{Code: string(u), Cause: Short(u),
			WaitsFor: "free " + pressures[u], Remedy: "free " + pressures[u] + ", or end pods"})
	}
	for _, f := range s.Held {
		notes = append(notes, Held(f))
	}
	if len(all) == 0 {
		state := "is healthy"
		if len(notes) > 0 {
			state = "works, with " + count(len(notes), "note")
		}
		all = []Finding{{Cause: fmt.Sprintf("the node %s: the runtime and its network are ready, all sources have reported, and "+
			"the agent has %s", state, count(len(s.Pods), "pod"))}}
	}
	all = append(all, notes...)
	out.Finding, out.Others = all[0], all[1:]
	return out
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Absent explains a pod that does not exist, by name and, unless empty, namespace: its manifest has a problem, or a source
// has not reported yet. It returns false if there is no explanation.
func Absent(namespace, name string, s *board.Snapshot) (Explanation, bool) {
	out := Explanation{Kind: "Pod", Namespace: namespace, Name: name}
	var all, perhaps []Finding
	for _, p := range s.Problems {
		if p.Warning {
			continue
		}
		space, its, _ := strings.Cut(p.Pod, "/")
		switch f := problem(p); {
		case p.Pod == "", (namespace == "" || space == namespace) && strings.HasPrefix(its, name+"-"):
			// An undecodable manifest names no pod, and a static pod's name ends with the node's.
			f.Cause = "a manifest that may be the pod's cannot be used: " + ProblemText(p)
			perhaps = append(perhaps, f)
		case its == name && (namespace == "" || space == namespace):
			all = append(all, f)
		}
	}
	all = append(all, perhaps...)
	for _, u := range s.Unheard {
		all = append(all, unheard(u))
	}
	if len(all) == 0 {
		return out, false
	}
	out.Finding, out.Others = all[0], all[1:]
	return out, true
}
