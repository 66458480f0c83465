package facts

import (
	"errors"
	"reflect"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

func labels(name string) map[string]string {
	l := map[string]string{cri.LabelPodUID: "u1", cri.LabelPodName: "web", cri.LabelPodNamespace: "default"}
	if name != "" {
		l[cri.LabelContainerName] = name
	}
	return l
}

func exited() *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: "other", Attempt: 3},
		State:     runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt: 1_000_000_001, StartedAt: 2_000_000_000, FinishedAt: 3_000_000_000,
		ExitCode: 137, Reason: "OOMKilled", Message: "from the runtime",
		Image: &runtimeapi.ImageSpec{Image: "busybox:1"}, ImageRef: "busybox@sha256:aa", ImageId: "sha256:bb",
		Labels: labels("app"), Annotations: map[string]string{"k": "v"}, LogPath: "/logs/0.log",
		User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1, Gid: 2, SupplementalGroups: []int64{3}}},
	}
}

func TestContainer(t *testing.T) {
	full := messages.ContainerFact{
		ID: "c1", Name: "app", Attempt: 3, State: messages.ContainerExited,
		CreatedAt: time.Unix(1, 1), StartedAt: time.Unix(2, 0), FinishedAt: time.Unix(3, 0),
		ExitCode: 137, Reason: "OOMKilled", Message: "from the runtime",
		Image: "busybox:1", ImageRef: "busybox@sha256:aa", ImageID: "sha256:bb",
		Annotations: map[string]string{"k": "v"}, LogPath: "/logs/0.log",
		User: &messages.ContainerUser{UID: 1, GID: 2, Groups: []int64{3}},
	}
	tests := map[string]struct {
		change func(*runtimeapi.ContainerStatus)
		want   func(*messages.ContainerFact)
	}{
		"exited": {},
		"running has no end, whatever is said": {
			change: func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_RUNNING },
			want: func(f *messages.ContainerFact) {
				f.State, f.FinishedAt, f.ExitCode, f.Reason, f.Message = messages.ContainerRunning, time.Time{}, 0, "", ""
			},
		},
		"created has not started": {
			change: func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_CREATED },
			want: func(f *messages.ContainerFact) {
				f.State, f.FinishedAt, f.ExitCode, f.Reason, f.Message = messages.ContainerCreated, time.Time{}, 0, "", ""
				f.StartedAt = time.Time{}
			},
		},
		"zero times stay zero": {
			change: func(s *runtimeapi.ContainerStatus) { s.CreatedAt, s.StartedAt, s.FinishedAt = 0, 0, 0 },
			want: func(f *messages.ContainerFact) {
				f.CreatedAt, f.StartedAt, f.FinishedAt = time.Time{}, time.Time{}, time.Time{}
			},
		},
		"an unset time converted is zero": {
			change: func(s *runtimeapi.ContainerStatus) { s.StartedAt = time.Time{}.UnixNano() },
			want:   func(f *messages.ContainerFact) { f.StartedAt = time.Time{} },
		},
		"an old runtime": {
			change: func(s *runtimeapi.ContainerStatus) { s.ImageId, s.User = "", nil },
			want:   func(f *messages.ContainerFact) { f.ImageID, f.User = "busybox@sha256:aa", nil },
		},
		"a state of the future": {
			change: func(s *runtimeapi.ContainerStatus) { s.State = 99 },
			want: func(f *messages.ContainerFact) {
				f.State, f.FinishedAt, f.ExitCode, f.Reason, f.Message = messages.ContainerUnknown, time.Time{}, 0, "", ""
			},
		},
		"no image": {
			change: func(s *runtimeapi.ContainerStatus) { s.Image = nil },
			want:   func(f *messages.ContainerFact) { f.Image = "" },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			status, want := exited(), full
			if tc.change != nil {
				tc.change(status)
				tc.want(&want)
			}
			got, err := Container(status)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

func TestForeign(t *testing.T) {
	without := func(key string) map[string]string {
		l := labels("app")
		delete(l, key)
		return l
	}
	all := []string{cri.LabelPodUID, cri.LabelPodName, cri.LabelPodNamespace, cri.LabelContainerName}
	for _, key := range all {
		status := exited()
		status.Labels = without(key)
		if _, err := Container(status); !errors.Is(err, ErrForeign) {
			t.Errorf("a status without %s: %v", key, err)
		}
		item := &runtimeapi.Container{Id: "c", Metadata: &runtimeapi.ContainerMetadata{}, Labels: without(key)}
		if _, err := Listed(item); !errors.Is(err, ErrForeign) {
			t.Errorf("an item without %s: %v", key, err)
		}
		podSandbox := &runtimeapi.PodSandbox{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{}, Labels: without(key)}
		if _, err := ListedSandbox(podSandbox); errors.Is(err, ErrForeign) != (key != cri.LabelContainerName) {
			t.Errorf("a sandbox without %s: %v", key, err)
		}
	}
	for what, f := range map[string]func() error{
		"a UID with a slash": func() error {
			l := labels("app")
			l[cri.LabelPodUID] = "u1/app"
			_, err := OwnerOf(l)
			return err
		},
		"nil status":           func() error { _, err := Container(nil); return err },
		"nil item":             func() error { _, err := Listed(nil); return err },
		"nil sandbox":          func() error { _, err := Sandbox(nil); return err },
		"nil listed sandbox":   func() error { _, err := ListedSandbox(nil); return err },
		"status without an ID": func() error { s := exited(); s.Id = ""; _, err := Container(s); return err },
		"without metadata":     func() error { s := exited(); s.Metadata = nil; _, err := Container(s); return err },
	} {
		if err := f(); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func sandboxStatus(net *runtimeapi.PodSandboxNetworkStatus, ready, host bool) *runtimeapi.PodSandboxStatus {
	s := &runtimeapi.PodSandboxStatus{
		Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 2}, CreatedAt: 5, Labels: labels(""), Network: net,
		State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}}},
	}
	if ready {
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	if host {
		s.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
	}
	return s
}

func TestSandbox(t *testing.T) {
	net := func(first string, more ...string) *runtimeapi.PodSandboxNetworkStatus {
		n := &runtimeapi.PodSandboxNetworkStatus{Ip: first}
		for _, m := range more {
			n.AdditionalIps = append(n.AdditionalIps, &runtimeapi.PodIP{Ip: m})
		}
		return n
	}
	tests := map[string]struct {
		status *runtimeapi.PodSandboxStatus
		ips    []string
	}{
		"one":            {sandboxStatus(net("10.0.0.1"), true, false), []string{"10.0.0.1"}},
		"two families":   {sandboxStatus(net("10.0.0.1", "fd00::1"), true, false), []string{"10.0.0.1", "fd00::1"}},
		"none":           {sandboxStatus(nil, true, false), nil},
		"empty":          {sandboxStatus(net(""), true, false), nil},
		"no address":     {sandboxStatus(net("nonsense", "10.0.0.1"), true, false), nil},
		"a bad second":   {sandboxStatus(net("10.0.0.1", ""), true, false), []string{"10.0.0.1"}},
		"host's network": {sandboxStatus(net("192.168.1.1"), true, true), nil},
		"not ready":      {sandboxStatus(net("10.0.0.1"), false, false), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := messages.SandboxFact{
				ID: "s1", Attempt: 2, CreatedAt: time.Unix(0, 5), IPs: tc.ips,
				Ready:   tc.status.State == runtimeapi.PodSandboxState_SANDBOX_READY,
				HostNet: tc.status.Linux.Namespaces.Options.Network == runtimeapi.NamespaceMode_NODE,
				NoIP:    name == "empty", // a runtime that reports no network at all is trusted
			}
			if got, err := Sandbox(tc.status); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
	noted := sandboxStatus(nil, true, false)
	noted.Annotations = map[string]string{cri.AnnotationPodStarted: "2026-02-03T04:05:06.789Z"}
	if f, err := Sandbox(noted); err != nil || !f.PodStarted.Equal(time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC)) {
		t.Errorf("the pod's start time: %v, %v", f.PodStarted, err)
	}
	handled := sandboxStatus(nil, true, false)
	handled.RuntimeHandler = "second"
	if f, err := Sandbox(handled); err != nil || f.Handler != "second" {
		t.Errorf("the runtime's handler: %q, %v", f.Handler, err)
	}
	bare := sandboxStatus(nil, true, false)
	bare.Linux = nil
	if f, err := Sandbox(bare); err != nil || f.HostNet {
		t.Errorf("a sandbox that tells no namespaces: %+v, %v", f, err)
	}
}

func TestListing(t *testing.T) {
	sandbox := func(id string, attempt uint32, at int64) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}, CreatedAt: at,
			Labels: labels("")}
	}
	container := func(id string, attempt uint32, at int64) *runtimeapi.Container {
		return &runtimeapi.Container{Id: id, PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Attempt: attempt},
			CreatedAt: at, Labels: labels("app")}
	}
	l := Listing{
		Sandboxes: []*runtimeapi.PodSandbox{
			{Id: "foreign", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u1"}},
			sandbox("old", 0, 900), sandbox("new", 1, 100), // the clock was set back in between
		},
		Containers: []*runtimeapi.Container{
			{Id: "foreign"}, container("a", 0, 10), container("c", 2, 30), container("b", 1, 20),
		},
	}
	pods := l.ByPod()
	if len(pods) != 1 || len(pods["u1"].Sandboxes) != 2 || len(pods["u1"].Containers) != 3 {
		t.Fatalf("%+v", pods)
	}
	p, err := pods["u1"].Light("u1", time.Unix(7, 0))
	if err != nil || p.UID != "u1" || p.Name != "web" || p.Namespace != "default" || !p.ReadAt.Equal(time.Unix(7, 0)) {
		t.Errorf("%+v", p)
	}
	if p.Sandboxes[0].ID != "new" || p.Containers[0].ID != "c" || p.Containers[2].ID != "a" || p.Containers[0].SandboxID != "s" {
		t.Errorf("not newest first: %+v", p)
	}
	if p, err := (Listing{}).Light("gone", time.Time{}); err != nil || p.UID != "gone" || p.Sandboxes != nil ||
		p.Containers != nil {
		t.Errorf("nothing listed: %+v", p)
	}
	nameless := container("odd", 0, 1)
	delete(nameless.Labels, cri.LabelContainerName)
	l.Containers = append(l.Containers, nameless)
	p, err = l.ByPod()["u1"].Light("u1", time.Time{})
	if !errors.Is(err, ErrForeign) || len(p.Containers) != 3 {
		t.Errorf("one that is malformed: %v, %+v", err, p)
	}
}
