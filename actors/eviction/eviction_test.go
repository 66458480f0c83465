package eviction

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/internal/overdue"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func memory(mebibytes int64) Measurement {
	return Measurement{Readings: map[Signal]Reading{MemoryAvailable: {mebibytes << 20, 1000 << 20}}}
}

// step is a measurement some time after the previous one, and the expected kinds of pressure.
type step struct {
	after time.Duration
	m     Measurement
	under string
}

func TestHysteresis(t *testing.T) {
	full := Measurement{Readings: map[Signal]Reading{NodeFsAvailable: {5, 100}, NodeFsInodesFree: {50, 100},
		PIDAvailable: {4, 100}}}
	for name, c := range map[string]struct {
		limits Limits
		steps  []step
	}{
		"at once, and for the whole period after it": {Limits{Hard: map[string]string{"memory.available": "100Mi"}}, []step{
			{0, memory(100), ""}, {0, memory(99), "MemoryPressure"}, {time.Minute, memory(500), "MemoryPressure"},
			{3*time.Minute + 59*time.Second, memory(500), "MemoryPressure"}, {time.Second, memory(500), ""},
		}},
		"the period begins anew": {Limits{Hard: map[string]string{"memory.available": "100Mi"}}, []step{
			{0, memory(99), "MemoryPressure"}, {4 * time.Minute, memory(99), "MemoryPressure"},
			{4 * time.Minute, memory(500), "MemoryPressure"}, {time.Minute, memory(500), ""},
		}},
		"after an hour without a measurement": {Limits{Hard: map[string]string{"memory.available": "100Mi"}}, []step{
			{0, memory(99), "MemoryPressure"}, {time.Hour, memory(99), "MemoryPressure"}, {time.Hour, memory(100), ""},
		}},
		"soft ones count at once": {Limits{Soft: map[string]string{"memory.available": "50%"},
			SoftGrace: map[string]string{"memory.available": "1m"}}, []step{
			{0, memory(499), "MemoryPressure"},
		}},
		"more has to be reclaimed, when the grace has passed": {Limits{
			Soft: map[string]string{"memory.available": "100Mi"}, SoftGrace: map[string]string{"memory.available": "1m"},
			MinimumReclaim: map[string]string{"memory.available": "100Mi"},
		}, []step{
			{0, memory(50), "MemoryPressure"}, {2 * time.Minute, memory(150), "MemoryPressure"},
			{10 * time.Minute, memory(199), "MemoryPressure"},
			{4 * time.Minute, memory(200), "MemoryPressure"}, {6 * time.Minute, memory(150), ""},
		}},
		"each kind by itself": {Limits{Hard: map[string]string{"nodefs.available": "10%", "nodefs.inodesFree": "5%",
			"pid.available": "5", "memory.available": "1Gi"}}, []step{
			{0, full, "DiskPressure PIDPressure"},
		}},
		"turned off, and not measured": {Limits{Hard: map[string]string{"nodefs.available": "100%", "pid.available": "0%",
			"imagefs.available": "99%"}}, []step{{0, full, ""}}},
		"a measurement that fails ends nothing at once": {Limits{Hard: map[string]string{"memory.available": "100Mi"}}, []step{
			{0, memory(99), "MemoryPressure"}, {time.Minute, Measurement{}, "MemoryPressure"},
			{5 * time.Minute, Measurement{}, ""},
		}},
		"nothing is set": {Limits{}, []step{{0, full, ""}}},
	} {
		b, now := pressureState{limits: c.limits.list(), transition: 5 * time.Minute}, begin
		for i, s := range c.steps {
			now = now.Add(s.after)
			b = b.observe(s.m, now)
			var under []string
			for _, p := range b.pressures() {
				if p.Under {
					under = append(under, string(p.Type))
				}
			}
			if got := strings.Join(under, " "); got != s.under {
				t.Errorf("%s: after step %d %q, want %q", name, i, got, s.under)
			}
		}
	}
}

// The message names the signal, and changes only with the met thresholds.
func TestWhatIsSaid(t *testing.T) {
	b := pressureState{limits: Limits{Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%",
		"nodefs.inodesFree": "5%"}}.list(), transition: time.Minute}
	b = b.observe(memory(99), begin)
	p := b.pressures()[0]
	want := messages.Pressure{
		Type: v1.NodeMemoryPressure, Under: true, Reason: "KubeletHasInsufficientMemory", Since: begin,
		Message: "kubelet has insufficient memory available: memory.available is 99Mi of 1000Mi, less than 100Mi (evictionHard)",
	}
	if p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	for _, m := range []Measurement{memory(80), memory(200)} {
		b = b.observe(m, begin.Add(10*time.Second))
		if got := b.pressures()[0]; got != want {
			t.Errorf("later %+v", got)
		}
	}
	b = b.observe(memory(200), begin.Add(2*time.Minute))
	if got := b.pressures()[0]; got.Under || got.Reason != "KubeletHasSufficientMemory" ||
		got.Message != "kubelet has sufficient memory available" || !got.Since.Equal(begin.Add(2*time.Minute)) {
		t.Errorf("at the end %+v", got)
	}
	b = b.observe(Measurement{Readings: map[Signal]Reading{NodeFsAvailable: {1 << 30, 20 << 30}}}, begin)
	b = b.observe(Measurement{Readings: map[Signal]Reading{NodeFsAvailable: {1 << 30, 20 << 30}, NodeFsInodesFree: {1, 100}}},
		begin)
	if got := b.pressures()[1].Message; got != "kubelet has disk pressure: nodefs.available is 1Gi of 20Gi, less than 10% (evictionHard); nodefs.inodesFree is 1 of 100, less than 5% (evictionHard)" {
		t.Error(got)
	}
}

// For any measurements, a kind seen within the period is present, and every other is absent.
func TestPressureIsWhatWasSeenWithinThePeriod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const period = 60
		b, now, last := pressureState{limits: Limits{Hard: map[string]string{"memory.available": "100Mi"}}.list(),
			transition: period * time.Second}, 0, -1000
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.IntRange(1, 50).Draw(t, "seconds")
			mebibytes := rapid.Int64Range(50, 150).Draw(t, "available")
			if mebibytes < 100 {
				last = now
			}
			b = b.observe(memory(mebibytes), begin.Add(time.Duration(now)*time.Second))
			if got, want := b.pressures()[0].Under, now-last < period; got != want {
				t.Fatalf("at %d, seen at %d: %v", now, last, got)
			}
		}
	})
}

func TestTheActor(t *testing.T) {
	m := memory(50)
	m.Failed = map[Signal]error{PIDAvailable: errors.New("no /proc")}
	o := Options{NodeName: "n", Limits: Limits{Hard: map[string]string{"memory.available": "100Mi", "pid.available": "5%"}},
		Transition: 5 * time.Minute, Measure: func(context.Context) Measurement { return m }}
	construct := New(o)
	k := supervisortest.New(t, messages.Eviction, construct(""))
	k.RunWork()
	sent := func() []messages.Pressure {
		t.Helper()
		var out []messages.Pressure
		for _, one := range k.Take() {
			if p, ok := one.Msg.(messages.NodePressureObserved); ok && one.To == messages.Registration {
				out = p.Pressures
			}
		}
		if len(out) != 3 {
			t.Fatalf("told %v", out)
		}
		return out
	}
	if got := sent(); !got[0].Under || got[1].Under || got[2].Under {
		t.Errorf("%+v", got)
	}
	m = memory(500)
	k = supervisortest.New(t, messages.Eviction, construct("")) // it is restarted
	k.Clock.SetTime(k.Now().Add(time.Minute))
	k.RunWork()
	if got := sent(); !got[0].Under {
		t.Errorf("after its restart %+v", got)
	}
	k.Advance(10 * time.Minute)
	if len(k.Work) != 1 {
		t.Errorf("%d measurements at once", len(k.Work))
	}
	k.RunWork()
	if got := sent(); got[0].Under {
		t.Errorf("ten minutes later %+v", got)
	}
}

type imageFs struct {
	at  string
	err error
}

func (f imageFs) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: f.at}}}}, f.err
}

func TestMeasuring(t *testing.T) {
	write := func(dir string, files map[string]string) {
		for path, text := range files {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	proc := map[string]string{"meminfo": "MemTotal:       1600 kB\nMemAvailable:   7 kB\nHugetlb:        600 kB\n", "sys/kernel/pid_max": "4194304\n",
		"sys/kernel/threads-max": "1000\n", "loadavg": "1.36 3.49 4.53 2/300 3715089\n"}
	for name, cgroups := range map[string]map[string]string{
		"version 2": {"memory.stat": "anon 102400\nfile 204800\ninactive_file 51200\n"},
		"version 1": {"memory/memory.stat": "inactive_file 1\ntotal_inactive_file 51200\n",
			"memory/memory.usage_in_bytes": "307200\n"},
	} {
		dir, groups := t.TempDir(), t.TempDir()
		write(dir, proc)
		write(groups, cgroups)
		m := Places{dir, groups, dir, dir, imageFs{at: dir}, nil}.Meter().Measure(t.Context())
		if got, want := m.Readings[MemoryAvailable], (Reading{1024000 - 256000, 1638400}); got != want {
			t.Errorf("%s: memory %v, want %v", name, got, want)
		}
		if got := m.Readings[PIDAvailable]; got != (Reading{700, 1000}) {
			t.Errorf("%s: pids %v", name, got)
		}
		if node, image := m.Readings[NodeFsAvailable], m.Readings[ImageFsAvailable]; node.Capacity <= 0 ||
			image.Capacity != node.Capacity {
			t.Errorf("%s: disks %v %v", name, node, image)
		}
		if len(m.Failed) > 0 {
			t.Errorf("%s: %v", name, m.Failed)
		}
	}
	m := Places{"/none", "/none", "/none", "/none", imageFs{err: errors.New("away")}, nil}.Meter().Measure(t.Context())
	if len(m.Failed) != 6 || len(m.Readings) > 0 {
		t.Errorf("of nothing: %v", m)
	}
	meter := Places{"/proc", "/sys/fs/cgroup", "/", "/", imageFs{at: "/"}, nil}.Meter()
	m = meter.Measure(t.Context())
	if meter.imageDir != "/" {
		t.Errorf("images are looked at again in %q", meter.imageDir)
	}
	if r := m.Readings[PIDAvailable]; r.Available <= 0 || r.Available >= r.Capacity {
		t.Errorf("of this machine: %v, %v", r, m.Failed)
	}
}

// A hanging file system is named, and all others are measured.
func TestAFileSystemThatHangs(t *testing.T) {
	back := make(chan struct{})
	meter := Places{"/proc", "/sys/fs/cgroup", "/here", "/here", imageFs{at: "/there"}, nil}.Meter()
	meter.disks["/there"] = overdue.New("the file system of /there", time.Millisecond, func() (disk, error) {
		<-back
		return disk{}, nil
	})
	meter.statfs = func(string) (disk, error) { return disk{Reading{5, 100}, Reading{5, 100}, 1}, nil }
	state := &State{}
	limits := Limits{Hard: map[string]string{"nodefs.available": "10%", "imagefs.available": "10%", "imagefs.inodesFree": "10%"}}
	k := supervisortest.New(t, messages.Eviction, New(Options{NodeName: "n", Limits: limits, State: state, Measure: meter.Measure})(""))
	k.RunWork()
	var sent []messages.Pressure
	for _, one := range k.Take() {
		if m, ok := one.Msg.(messages.NodePressureObserved); ok {
			sent = m.Pressures
		}
	}
	if len(sent) != 3 || !sent[1].Under {
		t.Errorf("told %+v", sent)
	}
	if p := state.Problems(); len(p) != 1 || !strings.Contains(p[0],
		"by imagefs.available, imagefs.inodesFree, which counts as none: the file system of /there: it is being read since") {
		t.Errorf("%q", p)
	}
	close(back)
	delete(meter.disks, "/there")
	k.Advance(10 * time.Second)
	k.RunWork()
	if p := state.Problems(); len(p) != 0 {
		t.Errorf("%q", p)
	}
}

// Logs on a file system of their own are not on nodefs, nor on any other with signals. If it cannot be read, they count as there.
func TestMeasure_FileSystemOfLogs(t *testing.T) {
	for want, logs := range map[string]error{elsewhere: nil, onNodeFs: errors.New("away")} {
		meter := Places{Proc: "/proc", Cgroups: "/sys/fs/cgroup", RootDir: "/node", PodLogsDir: "/logs", Images: imageFs{at: "/node"}}.Meter()
		meter.statfs = func(path string) (disk, error) {
			if path == "/logs" {
				return disk{device: 2, space: Reading{1, 7}}, logs
			}
			return disk{device: 1, space: Reading{1, 9}}, nil
		}
		if got := meter.Measure(t.Context()).Layout.Logs; got != want {
			t.Errorf("with %v: logs on %q, want %q", logs, got, want)
		}
	}
}
