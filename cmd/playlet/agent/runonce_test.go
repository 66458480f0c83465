package agent

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cri/sim"
)

// once runs an agent with --runonce over a simulated runtime until it ends by itself.
func once(t *testing.T, r *rig) error {
	t.Helper()
	ended := make(chan error, 1)
	a := r.prepare()
	go func() { ended <- a.run(t.Context(), nil) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(waitLimit):
		t.Fatal("it does not end")
		return nil
	}
}

func TestRunOnceEndsWhenAllPodsRun(t *testing.T) {
	r := newRig(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{Func: func(c sim.Target) (sim.Behaviour, bool) {
		return sim.Behaviour{Exits: true}, c.Container == "job" // ends well at once
	}}}, "--runonce")
	r.write("web.yaml", manifest("web", "Always", nil, []string{"c image"}))
	r.write("job.yaml", manifest("job", "Never", nil, []string{"job image"}))
	if err := once(t, r); err != nil {
		t.Error(err)
	}
	running := 0
	for _, c := range r.runtime.Snapshot().Containers {
		if c.PodName == "web-node" && c.Running() {
			running++
		}
	}
	if running != 1 {
		t.Errorf("%d containers of the pod run after the agent has ended", running)
	}
	for _, want := range []string{"pod finished.*default/job-node", "pod is running.*default/web-node"} {
		if !regexp.MustCompile(want).MatchString(r.log.String()) {
			t.Errorf("the log lacks %q: %s", want, r.log)
		}
	}
}

func TestRunOnceFailsWithWhatFailed(t *testing.T) {
	r := newRig(t, sim.Options{Preload: []string{"image"}, Script: sim.Script{Func: func(c sim.Target) (sim.Behaviour, bool) {
		return sim.Behaviour{Exits: true, Code: 3}, c.Container == "job"
	}}}, "--runonce")
	r.write("bad.yaml", "kind: Pod\nnonsense: true\n")
	r.write("job.yaml", manifest("job", "Never", nil, []string{"job image"}))
	err := once(t, r)
	if err == nil || !strings.Contains(err.Error(), "pod default/job-node failed: container job exited with code 3 (Error)") || !strings.Contains(err.Error(), "bad.yaml") {
		t.Errorf("%v", err)
	}
}

// A user who interrupts the wait gets the pods that are not up yet, and the reasons.
func TestRunOnceThatIsStopped(t *testing.T) {
	r := newRig(t, sim.Options{Images: map[string]sim.Image{"denied:1": {Err: status.Error(codes.Unknown, "401 Unauthorized")}}}, "--runonce")
	r.write("web.yaml", manifest("web", "Always", nil, []string{"c denied:1"}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	a := r.prepare()
	go func() { ended <- a.run(ctx, nil) }()
	for now := a.observatory.board.Now(); len(now.Pods) == 0 || now.Pods[0].Waiting == nil || !strings.Contains(now.Pods[0].Waiting.Message, "401"); {
		next, err := a.observatory.board.After(t.Context(), now.Version)
		if err != nil {
			t.Fatal(err)
		}
		now = next
	}
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "pod default/web-node: ErrImagePull") ||
		!strings.Contains(err.Error(), "401 Unauthorized") {
		t.Errorf("%v", err)
	}
}

func TestRunOnceIsForManifestsAlone(t *testing.T) {
	r := newRig(t, sim.Options{}, "--runonce", "--kubeconfig=/etc/kubernetes/kubelet.conf")
	if err := Run(t.Context(), r.node(), slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("%v", err)
	}
}

// At the timeout, the pods that are not up are named, with the reasons.
func TestRunOnceNamesWhatItWaitedFor(t *testing.T) {
	board := pods.NewBoard()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Status: v1.PodStatus{Phase: v1.PodPending}}
	job := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job"}, Status: v1.PodStatus{Phase: v1.PodFailed, Reason: "Error"}}
	board.Publish(pods.Snapshot{Pods: []pods.PublishedPod{{Pod: pod, Status: &pod.Status}, {Pod: job, Status: &job.Status}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := runOnce(ctx, board, time.Hour, slog.New(slog.DiscardHandler))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "pod default/web: it is not up yet") ||
		!strings.Contains(err.Error(), "pod default/job failed: Error") {
		t.Errorf("%v", err)
	}
}
