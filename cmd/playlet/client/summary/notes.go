package summary

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

// Notes says what the table cannot: why pods wait, one line a pod. In the wide table it is a column.
func Notes(pods []api.Pod, now time.Time) []string {
	var out []string
	for i := range pods {
		if text := WaitingFor(&pods[i], now); text != "" {
			out = append(out, fmt.Sprintf("%s/%s: %s", pods[i].Pod.Namespace, pods[i].Pod.Name, text))
		}
	}
	return out
}

// NodeNotes says what is wrong with the node as a whole: its runtime, its sources, the manifests of the
// pods that are meant; nil: all.
func NodeNotes(n *api.Node, mayMean func(namespace, name string) bool, now time.Time) []string {
	var out []string
	if r := n.Runtime; !r.Ready {
		text := "the container runtime is not ready"
		if r.Endpoint != "" {
			text = fmt.Sprintf("the container runtime at %s is not ready", r.Endpoint)
		}
		if !r.Since.IsZero() && !now.IsZero() {
			text += " since " + duration.HumanDuration(now.Sub(r.Since))
		}
		if r.Reason != nil {
			text += ": " + r.Reason.String()
		}
		out = append(out, cli.Plain(text)+"; pods are shown as they were last seen")
	} else if !r.NetworkReady {
		out = append(out,
			cli.Plain("the runtime's network is not ready, only pods on the host's network can start: "+r.NetworkReason))
	}
	out = append(out, n.Short...)
	for _, s := range n.Unheard {
		out = append(out, fmt.Sprintf("%s has not been heard yet; what it wants is not shown", s))
	}
	for _, p := range n.Problems {
		namespace, name, named := strings.Cut(p.Pod, "/")
		if named && mayMean != nil && !mayMean(namespace, name) {
			continue
		}
		out = append(out, "manifest problem: "+cli.Plain(api.ProblemText(p)))
	}
	return out
}
