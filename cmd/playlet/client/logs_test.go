package client

import (
	"bytes"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// A pod is found by the name that is shown, or by that in its manifest, and never guessed.
func TestFindPod(t *testing.T) {
	f := startFakeAgent(t)
	var all []api.Pod
	for _, name := range []string{"a/web-node", "a/web", "b/db-node", "c/db-node", "c/one-node"} {
		p := podOf("a", v1.PodRunning)
		p.Pod.Namespace, p.Pod.Name, _ = strings.Cut(name, "/")
		p.Pod.Spec.NodeName = "Node"
		all = append(all, *p)
	}
	f.pods = api.Pods{Pods: all}
	for _, c := range []struct{ namespace, name, want, failed string }{
		{"", "one", "c/one-node", ""},
		{"", "one-node", "c/one-node", ""},
		{"", "web", "a/web", ""}, // the name itself comes first
		{"", "db", "", "several pods have this name: b/db-node, c/db-node; -n names the namespace"},
		{"", "none", "", `there is no pod "none" in any namespace`},
	} {
		ns, name, err := findPod(t.Context(), api.NewClient(f.socket), c.namespace, c.name)
		if c.failed != "" {
			if err == nil || !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if err != nil || ns+"/"+name != c.want {
			t.Errorf("%s: %s/%s, %v", c.name, ns, name, err)
		}
	}
}

func TestFlagsOfLogs(t *testing.T) {
	c := &logsCommand{since: time.Minute, tail: 3, limit: 10, now: func() time.Time { return noon }}
	if err := c.settle(); err != nil || !c.options.Since.Equal(noon.Add(-time.Minute)) || *c.options.Tail != 3 ||
		*c.options.LimitBytes != 10 {
		t.Errorf("%+v, %v", c.options, err)
	}
	for _, args := range [][]string{
		{"--tail=-2", "web"}, {"--since=-1s", "web"}, {"--since-time=noon", "web"}, {"--limit-bytes=-1", "web"}, {}, {"a", "b"},
	} {
		var out, errs bytes.Buffer
		if code := run(append([]string{"logs"}, args...), &out, &errs); code != 1 || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%q: %d, %s", args, code, errs.String())
		}
	}
}
