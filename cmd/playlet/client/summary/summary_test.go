package summary

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

// TestRowsAreKubectls compares with the output of "kubectl get pods" for the same statuses: READY, STATUS, RESTARTS.
func TestRowsAreKubectls(t *testing.T) {
	pod, runs, waits, ended, killed, with := fake.Pod, fake.Runs, fake.Waits, fake.Ended, fake.Killed, fake.With
	initialized := fake.Is(v1.PodInitialized)
	for name, c := range map[string]struct {
		pod  *api.Pod
		want string
	}{
		"running":              {pod("a", v1.PodRunning, runs(true)), "1/1 Running 0"},
		"not ready":            {pod("a b", v1.PodRunning, runs(true), runs(false)), "1/2 Running 0"},
		"before any container": {pod("a b", v1.PodPending), "0/2 Pending 0"},
		"being created":        {pod("a", v1.PodPending, waits("ContainerCreating")), "0/1 ContainerCreating 0"},
		"pull failed":          {pod("a", v1.PodPending, waits("ErrImagePull")), "0/1 ErrImagePull 0"},
		"pull backed off": {pod("a b", v1.PodPending, waits("ImagePullBackOff"), waits("ContainerCreating")),
			"0/2 ImagePullBackOff 0"},
		"crash loop": {pod("a", v1.PodRunning, waits("CrashLoopBackOff").Again(3, 10*time.Second)),
			"0/1 CrashLoopBackOff 3 (10s ago)"},
		"restarted": {pod("a b", v1.PodRunning, runs(true).Again(1, 4*time.Hour),
			runs(true).Again(2, 90*time.Second)), "2/2 Running 3 (90s ago)"},
		"restarted, forgotten": {pod("a", v1.PodRunning, func(c *v1.ContainerStatus) { runs(true)(c); c.RestartCount = 2 }),
			"1/1 Running 2"},
		"completed":       {pod("a", v1.PodSucceeded, ended(0, "Completed")), "0/1 Completed 0"},
		"error":           {pod("a", v1.PodFailed, ended(1, "Error")), "0/1 Error 0"},
		"OOM":             {pod("a", v1.PodFailed, ended(137, "OOMKilled")), "0/1 OOMKilled 0"},
		"exit code alone": {pod("a", v1.PodFailed, ended(3, "")), "0/1 ExitCode:3 0"},
		"signal alone":    {pod("a", v1.PodFailed, killed(9)), "0/1 Signal:9 0"},
		"one of two done": {pod("a b", v1.PodRunning, ended(0, "Completed"), runs(true)), "1/2 NotReady 0"},
		"one of two done, the pod ready": {
			with(pod("a b", v1.PodRunning, ended(0, "Completed"), runs(true)), fake.Is(v1.PodReady)), "1/2 Running 0",
		},
		"one completed, one failed": {pod("a b", v1.PodFailed, ended(0, "Completed"), ended(2, "Error")), "0/2 Error 0"},
		"evicted": {with(pod("a", v1.PodFailed), func(p *api.Pod) { p.Pod.Status.Reason = "Evicted" }),
			"0/1 Evicted 0"},

		"init first": {pod("i j|a", v1.PodPending, runs(false), waits("PodInitializing"), waits("PodInitializing")),
			"0/1 Init:0/2 0"},
		"init second": {pod("i j|a", v1.PodPending, ended(0, "Completed"), runs(false), waits("PodInitializing")),
			"0/1 Init:1/2 0"},
		"init waits": {pod("i|a", v1.PodPending, waits("ImagePullBackOff"), waits("PodInitializing")),
			"0/1 Init:ImagePullBackOff 0"},
		"init crashes": {pod("i|a", v1.PodPending, waits("CrashLoopBackOff").Again(4, time.Minute),
			waits("PodInitializing")), "0/1 Init:CrashLoopBackOff 4 (60s ago)"},
		"init failed":    {pod("i|a", v1.PodFailed, ended(1, "Error"), waits("PodInitializing")), "0/1 Init:Error 0"},
		"init exit code": {pod("i|a", v1.PodFailed, ended(5, "")), "0/1 Init:ExitCode:5 0"},
		"init signal":    {pod("i|a", v1.PodFailed, killed(15)), "0/1 Init:Signal:15 0"},
		"init done": {pod("i|a", v1.PodPending, ended(0, "Completed"), waits("PodInitializing")),
			"0/1 PodInitializing 0"},
		"init restarts fade": {pod("i|a", v1.PodRunning, ended(0, "Completed").Again(7, time.Minute), runs(true)),
			"1/1 Running 0"},
		"init again, after a lost sandbox": {
			with(pod("i|a", v1.PodRunning, runs(false), ended(2, "Error")), initialized), "0/1 Error 0",
		},

		"sidecar starting": {pod("+s i|a", v1.PodPending, waits("PodInitializing"), waits("PodInitializing")),
			"0/2 Init:0/2 0"},
		"sidecar runs": {pod("+s i|a", v1.PodPending, runs(true), runs(false), waits("PodInitializing")), "1/2 Init:1/2 0"},
		"sidecar and main": {pod("+s|a", v1.PodRunning, runs(true).Again(2, time.Minute), runs(true).Again(1, time.Hour)),
			"2/2 Running 3 (60s ago)"},
		"sidecar unready": {pod("+s|a", v1.PodRunning, runs(false), runs(true)), "1/2 Running 0"},

		"ending": {with(pod("a", v1.PodRunning, runs(true)), func(p *api.Pod) { p.Ending = "its manifest is gone" }),
			"1/1 Terminating 0"},
		"ending, being deleted": {
			with(pod("a", v1.PodRunning, runs(true)), func(p *api.Pod) { p.Pod.DeletionTimestamp = new(fake.Ago(0)) }),
			"1/1 Terminating 0",
		},
		"ending when it had ended": {
			with(pod("a", v1.PodSucceeded, ended(0, "Completed")), func(p *api.Pod) { p.Ending = "its manifest is gone" }),
			"0/1 Completed 0",
		},
		"escape sequences stay out": {pod("a", v1.PodPending, waits("\x1b[2JNope\n")), "0/1 [2JNope 0"},
	} {
		row := Row(c.pod, fake.Noon, false)
		if got := strings.Join(row[2:5], " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if row[5] != "5m" || row[6] != "10.0.0.7" {
			t.Errorf("%s: age %s, IP %s", name, row[5], row[6])
		}
	}
}

func TestAgeAndIP(t *testing.T) {
	p := fake.Pod("a", v1.PodPending)
	p.Pod.CreationTimestamp = fake.Ago(49 * time.Hour)
	p.Pod.Status.PodIPs = []v1.PodIP{{IP: "fd00::1"}, {IP: "10.0.0.8"}}
	if row := Row(p, fake.Noon, false); row[5] != "2d1h" || row[6] != "fd00::1" {
		t.Errorf("%q", row)
	}
	p.Pod.CreationTimestamp, p.Pod.Status = metav1.Time{}, v1.PodStatus{}
	if row := Row(p, fake.Noon, false); row[5] != "<unknown>" || row[6] != "<none>" {
		t.Errorf("%q", row)
	}
}

func TestWhatAPodWaitsFor(t *testing.T) {
	for want, state := range map[string]api.PodState{
		"": {},
		"no such image; failing for 2m; retry in 20s": {Cause: "no\nsuch image", Waiting: &api.Reason{RetryAt: fake.Noon.Add(20 * time.Second),
			Since: fake.Noon.Add(-2 * time.Minute)}},
		"due":                       {Cause: "due", Waiting: &api.Reason{RetryAt: fake.Noon.Add(-time.Second)}},
		"x; retrying will not help": {Cause: "x", Waiting: &api.Reason{Permanent: true}},
		"stuck; killed in 9s":       {Cause: "stuck", Waiting: &api.Reason{Code: "Killing", RetryAt: fake.Noon.Add(9 * time.Second)}},
		"its manifest is gone":      {Cause: "its manifest is gone"},
		"nil map; retry in 5m":      {Cause: "nil map", Quarantine: &api.Quarantine{Until: fake.Noon.Add(5 * time.Minute)}},
	} {
		if got := WaitingFor(&api.Pod{PodState: state}, fake.Noon); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAPodInALine(t *testing.T) {
	p := &api.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}}
	p.Pod.Status.Phase = v1.PodPending
	p.Cause, p.Waiting = "no such\timage", &api.Reason{Code: "ImagePullBackOff", RetryAt: time.Now().Add(time.Hour)}
	first := Line(p)
	if !strings.HasPrefix(first, "Pending  0/1 ready  (") || !strings.Contains(first, "no such") ||
		strings.Contains(first, "\t") {
		t.Errorf("%q", first)
	}
	if again := Line(p); again != first {
		t.Errorf("it changes with time: %q, %q", first, again)
	}
	p.Waiting, p.Cause = nil, ""
	p.Pod.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "192.0.2.1", PodIPs: []v1.PodIP{{IP: "192.0.2.1"}},
		ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", Ready: true, RestartCount: 2, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		}}
	if got := Line(p); got != "Running  1/1 ready  192.0.2.1  2 restarts" {
		t.Errorf("%q", got)
	}
}

func TestWhatIsSaidOfTheNode(t *testing.T) {
	n := &api.Node{Runtime: api.Runtime{Ready: true, NetworkReady: true}, Short: []string{"the node is short of memory"}}
	if got := NodeNotes(n, nil, time.Time{}); !slices.Equal(got, n.Short) {
		t.Errorf("%q", got)
	}
}
