package dev

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/progress"
)

// onePod has an address where it is ready.
func onePod(name, uid, ip string) api.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}}
	p.Status.PodIP = ip
	if ip != "" {
		p.Status.Conditions = []v1.PodCondition{{Type: "PodScheduled", Status: "True"}, {Type: "Ready", Status: "True"}}
	}
	return api.Pod{Pod: p}
}

func names(now *api.Pods) (out []string) {
	for _, p := range now.Pods {
		out = append(out, p.Pod.Name+string(p.Pod.UID)+p.Pod.Status.PodIP)
	}
	return out
}

func TestChangesAreApplied(t *testing.T) {
	now := &api.Pods{}
	broken := &api.Node{Runtime: api.Runtime{Ready: true}}
	for i, c := range []struct {
		change api.Change
		want   []string
	}{
		{api.Change{Full: true, Pods: []api.Pod{onePod("b", "1", ""), onePod("a", "2", "")}, Node: broken},
			[]string{"a2", "b1"}},
		{api.Change{Pods: []api.Pod{onePod("b", "1", "9")}}, []string{"a2", "b19"}},
		{api.Change{Pods: []api.Pod{onePod("a", "3", "")}, Gone: []api.Ref{{UID: "2"}, {UID: "7"}}}, []string{"a3", "b19"}},
		{api.Change{Gone: []api.Ref{{UID: "1"}}}, []string{"a3"}},
		{api.Change{Full: true, Pods: []api.Pod{onePod("c", "4", "")}}, []string{"c4"}},
	} {
		apply(now, &c.change)
		if got := names(now); !slices.Equal(got, c.want) || !now.Node.Runtime.Ready {
			t.Errorf("after %d: %q, want %q; the node: %+v", i, got, c.want, now.Node)
		}
	}
}

// aNode returns a node with simple hooks.
func aNode(out *buffer) *node {
	return &node{
		plan: &Plan{}, progress: progress.New(out), agent: &Agent{NodeName: "vm", Failed: make(chan error, 1)},
		Hooks: Hooks{
			Status: func(p *api.Pod) string { return strings.TrimSpace("Running " + p.Pod.Status.PodIP) },
			Notes: func(n *api.Node) []string {
				if n.Runtime.Ready {
					return nil
				}
				return []string{"containerd is not ready: away"}
			},
		},
	}
}

func TestOnlyNewsAreReported(t *testing.T) {
	n := aNode(&buffer{})
	seen := map[string]*printedState{}
	ready := api.Node{Runtime: api.Runtime{Ready: true}}
	for i, c := range []struct {
		now  api.Pods
		want []string
	}{
		{api.Pods{}, []string{"containerd is not ready: away"}},
		{api.Pods{Pods: []api.Pod{onePod("a", "1", "")}}, []string{"default/a  Running"}},
		{api.Pods{Pods: []api.Pod{onePod("a", "1", "")}}, nil},
		{api.Pods{Node: ready, Pods: []api.Pod{onePod("a", "1", "9")}},
			[]string{"default/a  Running 9", "no longer: containerd is not ready"}},
		{api.Pods{Node: ready}, []string{"default/a  gone"}},
		{api.Pods{Node: ready}, nil},
	} {
		if got := n.newLines(&c.now, seen); !slices.Equal(got, c.want) {
			t.Errorf("at %d: %q, want %q", i, got, c.want)
		}
	}
}

// Tries of a pull alternate with pauses, each under another status; that is no news until the pod has been well.
func TestACauseIsReportedOnce(t *testing.T) {
	n := aNode(&buffer{})
	n.Status = func(p *api.Pod) string { return p.Phase + " " + p.Cause }
	seen := map[string]*printedState{}
	const absent, pulling = "image x not found", "image x is being pulled"
	for i, c := range []struct {
		status, cause string
		reported      bool
	}{
		{"Pending", "", true}, {"ErrImagePull", absent, true}, {"ImagePullBackOff", absent, false},
		{"ImagePullBackOff", pulling, true}, {"ErrImagePull", absent, false}, {"ImagePullBackOff", pulling, false},
		{"Running", "", true}, {"Running", "", false}, {"ErrImagePull", absent, true}, {"ErrImagePull", absent, false},
	} {
		p := onePod("a", "1", "")
		p.Phase, p.Cause = c.status, c.cause
		got := n.newLines(&api.Pods{Node: api.Node{Runtime: api.Runtime{Ready: true}}, Pods: []api.Pod{p}}, seen)
		if want := "default/a  " + c.status + " " + c.cause; (len(got) == 1 && got[0] == want) != c.reported || len(got) > 1 {
			t.Errorf("at %d: %q", i, got)
		}
	}
}

func TestANewAddressOfTheSampleIsReported(t *testing.T) {
	dir := t.TempDir()
	program(t, filepath.Join(dir, "curl"), "exit 0")
	t.Setenv("PATH", dir)
	out := &buffer{}
	n := aNode(out)
	pods := func(ip string) *api.Pods { return &api.Pods{Pods: []api.Pod{onePod("hello-vm", "1", ip)}} }
	n.printAddress(pods("192.0.2.1")) // no address was printed yet
	n.url = "http://192.0.2.1:8080/"
	n.printAddress(pods("192.0.2.1"))
	n.printAddress(pods(""))
	n.printAddress(&api.Pods{Pods: []api.Pod{onePod("another", "2", "192.0.2.9")}})
	if got := out.String(); got != "" {
		t.Errorf("it tells %q", got)
	}
	for range 2 {
		n.printAddress(pods("192.0.2.2"))
	}
	if got := out.String(); strings.Count(got, "\n") != 1 ||
		!strings.HasSuffix(got, "  Reach the sample pod: curl http://192.0.2.2:8080/\n") {
		t.Errorf("it tells %q", got)
	}
}

// agentThatTells answers each watch with the next of these streams, and then with none.
func agentThatTells(t *testing.T, streams ...[]api.Change) (socket string) {
	t.Helper()
	socket = filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", socket)
	must(t, err)
	next := make(chan []api.Change, len(streams))
	for _, s := range streams {
		next <- s
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case stream := <-next:
			for _, change := range stream {
				_ = json.NewEncoder(w).Encode(change) // the client may have seen enough
			}
		case <-r.Context().Done():
		}
	})}
	done := make(chan struct{})
	go func() { _ = server.Serve(l); close(done) }()
	t.Cleanup(func() { must(t, server.Close()); <-done })
	return socket
}

func TestAWatchOutlivesItsStreams(t *testing.T) {
	n := aNode(&buffer{})
	n.plan.AdminSocket = agentThatTells(t,
		[]api.Change{{Full: true, Pods: []api.Pod{onePod("a", "1", "")}}},
		[]api.Change{{Full: true, Pods: []api.Pod{onePod("a", "1", "")}}, {Pods: []api.Pod{onePod("b", "2", "")}}})
	err := n.watch(t.Context(), func(now *api.Pods) error {
		if len(now.Pods) == 2 {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		t.Error(err)
	}
	n.agent.Failed = closedWith(errors.New("broken"))
	n.plan.AdminSocket += "-none"
	if err := n.watch(t.Context(), nil); err == nil || err.Error() != "the agent has given up: broken" {
		t.Errorf("%v", err)
	}
	n.agent.Failed = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, ignoreEnd(n.watch(ctx, nil)))
}

func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func closedWith(err error) <-chan error {
	c := make(chan error, 1)
	c <- err
	return c
}
