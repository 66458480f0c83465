package client

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
)

// TestRowsAreKubectls has what "kubectl get pods" prints for the same statuses: READY, STATUS, RESTARTS.
func TestRowsAreKubectls(t *testing.T) {
	initialized := is(v1.PodInitialized)
	for name, c := range map[string]struct {
		pod  *api.Pod
		want string
	}{
		"running":              {podOf("a", v1.PodRunning, runs(true)), "1/1 Running 0"},
		"not ready":            {podOf("a b", v1.PodRunning, runs(true), runs(false)), "1/2 Running 0"},
		"before any container": {podOf("a b", v1.PodPending), "0/2 Pending 0"},
		"being created":        {podOf("a", v1.PodPending, waits("ContainerCreating")), "0/1 ContainerCreating 0"},
		"pull failed":          {podOf("a", v1.PodPending, waits("ErrImagePull")), "0/1 ErrImagePull 0"},
		"pull backed off": {podOf("a b", v1.PodPending, waits("ImagePullBackOff"), waits("ContainerCreating")),
			"0/2 ImagePullBackOff 0"},
		"crash loop": {podOf("a", v1.PodRunning, waits("CrashLoopBackOff").again(3, 10*time.Second)),
			"0/1 CrashLoopBackOff 3 (10s ago)"},
		"restarted": {podOf("a b", v1.PodRunning, runs(true).again(1, 4*time.Hour),
			runs(true).again(2, 90*time.Second)), "2/2 Running 3 (90s ago)"},
		"restarted, forgotten": {podOf("a", v1.PodRunning, func(c *v1.ContainerStatus) { runs(true)(c); c.RestartCount = 2 }),
			"1/1 Running 2"},
		"completed":       {podOf("a", v1.PodSucceeded, ended(0, "Completed")), "0/1 Completed 0"},
		"error":           {podOf("a", v1.PodFailed, ended(1, "Error")), "0/1 Error 0"},
		"OOM":             {podOf("a", v1.PodFailed, ended(137, "OOMKilled")), "0/1 OOMKilled 0"},
		"exit code alone": {podOf("a", v1.PodFailed, ended(3, "")), "0/1 ExitCode:3 0"},
		"signal alone":    {podOf("a", v1.PodFailed, killed(9)), "0/1 Signal:9 0"},
		"one of two done": {podOf("a b", v1.PodRunning, ended(0, "Completed"), runs(true)), "1/2 NotReady 0"},
		"one of two done, the pod ready": {
			with(podOf("a b", v1.PodRunning, ended(0, "Completed"), runs(true)), is(v1.PodReady)), "1/2 Running 0",
		},
		"one completed, one failed": {podOf("a b", v1.PodFailed, ended(0, "Completed"), ended(2, "Error")), "0/2 Error 0"},
		"evicted": {with(podOf("a", v1.PodFailed), func(p *api.Pod) { p.Pod.Status.Reason = "Evicted" }),
			"0/1 Evicted 0"},

		"init first": {podOf("i j|a", v1.PodPending, runs(false), waits("PodInitializing"), waits("PodInitializing")),
			"0/1 Init:0/2 0"},
		"init second": {podOf("i j|a", v1.PodPending, ended(0, "Completed"), runs(false), waits("PodInitializing")),
			"0/1 Init:1/2 0"},
		"init waits": {podOf("i|a", v1.PodPending, waits("ImagePullBackOff"), waits("PodInitializing")),
			"0/1 Init:ImagePullBackOff 0"},
		"init crashes": {podOf("i|a", v1.PodPending, waits("CrashLoopBackOff").again(4, time.Minute),
			waits("PodInitializing")), "0/1 Init:CrashLoopBackOff 4 (60s ago)"},
		"init failed":    {podOf("i|a", v1.PodFailed, ended(1, "Error"), waits("PodInitializing")), "0/1 Init:Error 0"},
		"init exit code": {podOf("i|a", v1.PodFailed, ended(5, "")), "0/1 Init:ExitCode:5 0"},
		"init signal":    {podOf("i|a", v1.PodFailed, killed(15)), "0/1 Init:Signal:15 0"},
		"init done": {podOf("i|a", v1.PodPending, ended(0, "Completed"), waits("PodInitializing")),
			"0/1 PodInitializing 0"},
		"init restarts fade": {podOf("i|a", v1.PodRunning, ended(0, "Completed").again(7, time.Minute), runs(true)),
			"1/1 Running 0"},
		"init again, after a lost sandbox": {
			with(podOf("i|a", v1.PodRunning, runs(false), ended(2, "Error")), initialized), "0/1 Error 0",
		},

		"sidecar starting": {podOf("+s i|a", v1.PodPending, waits("PodInitializing"), waits("PodInitializing")),
			"0/2 Init:0/2 0"},
		"sidecar runs": {podOf("+s i|a", v1.PodPending, runs(true), runs(false), waits("PodInitializing")), "1/2 Init:1/2 0"},
		"sidecar and main": {podOf("+s|a", v1.PodRunning, runs(true).again(2, time.Minute), runs(true).again(1, time.Hour)),
			"2/2 Running 3 (60s ago)"},
		"sidecar unready": {podOf("+s|a", v1.PodRunning, runs(false), runs(true)), "1/2 Running 0"},

		"ending": {with(podOf("a", v1.PodRunning, runs(true)), func(p *api.Pod) { p.Ending = "its manifest is gone" }),
			"1/1 Terminating 0"},
		"ending, being deleted": {
			with(podOf("a", v1.PodRunning, runs(true)), func(p *api.Pod) { p.Pod.DeletionTimestamp = ptr(ago(0)) }),
			"1/1 Terminating 0",
		},
		"ending when it had ended": {
			with(podOf("a", v1.PodSucceeded, ended(0, "Completed")), func(p *api.Pod) { p.Ending = "its manifest is gone" }),
			"0/1 Completed 0",
		},
		"escape sequences stay out": {podOf("a", v1.PodPending, waits("\x1b[2JNope\n")), "0/1 [2JNope 0"},
	} {
		row := podRow(c.pod, noon, false)
		if got := strings.Join(row[2:5], " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if row[5] != "5m" || row[6] != "10.0.0.7" {
			t.Errorf("%s: age %s, IP %s", name, row[5], row[6])
		}
	}
}

func TestAgeAndIP(t *testing.T) {
	p := podOf("a", v1.PodPending)
	p.Pod.CreationTimestamp = ago(49 * time.Hour)
	p.Pod.Status.PodIPs = []v1.PodIP{{IP: "fd00::1"}, {IP: "10.0.0.8"}}
	if row := podRow(p, noon, false); row[5] != "2d1h" || row[6] != "fd00::1" {
		t.Errorf("%q", row)
	}
	p.Pod.CreationTimestamp, p.Pod.Status = metav1.Time{}, v1.PodStatus{}
	if row := podRow(p, noon, false); row[5] != "<unknown>" || row[6] != "<none>" {
		t.Errorf("%q", row)
	}
}

func TestWhatAPodWaitsFor(t *testing.T) {
	for want, state := range map[string]api.PodState{
		"": {},
		"no such image; next try in 20s, for 2m": {Cause: "no\nsuch image", Waiting: &api.Reason{RetryAt: noon.Add(20 * time.Second),
			Since: noon.Add(-2 * time.Minute)}},
		"due":                            {Cause: "due", Waiting: &api.Reason{RetryAt: noon.Add(-time.Second)}},
		"x; trying again would not help": {Cause: "x", Waiting: &api.Reason{Permanent: true}},
		"stuck; killed in 9s":            {Cause: "stuck", Waiting: &api.Reason{Code: "Killing", RetryAt: noon.Add(9 * time.Second)}},
		"its manifest is gone":           {Cause: "its manifest is gone"},
		"nil map; next try in 5m":        {Cause: "nil map", Quarantine: &api.Quarantine{Until: noon.Add(5 * time.Minute)}},
	} {
		if got := waitingFor(&api.Pod{PodState: state}, noon); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAPodInALine(t *testing.T) {
	p := &api.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}}
	p.Pod.Status.Phase = v1.PodPending
	p.Cause, p.Waiting = "no such\timage", &api.Reason{Code: "ImagePullBackOff", RetryAt: time.Now().Add(time.Hour)}
	first := PodLine(p)
	if !strings.HasPrefix(first, "Pending  0/1 ready  (") || !strings.Contains(first, "no such") ||
		strings.Contains(first, "\t") {
		t.Errorf("%q", first)
	}
	if again := PodLine(p); again != first {
		t.Errorf("it changes with time: %q, %q", first, again)
	}
	p.Waiting, p.Cause = nil, ""
	p.Pod.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "192.0.2.1", PodIPs: []v1.PodIP{{IP: "192.0.2.1"}},
		ContainerStatuses: []v1.ContainerStatus{
			{Name: "c", Ready: true, RestartCount: 2, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		}}
	if got := PodLine(p); got != "Running  1/1 ready  192.0.2.1  2 restarts" {
		t.Errorf("%q", got)
	}
}
