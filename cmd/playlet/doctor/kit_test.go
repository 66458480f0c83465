package doctor

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSystem is a kernel with configured answers.
type fakeSystem struct {
	disk         Disk
	devices      map[string]uint64 // of folders on other file systems than the root folder's
	diskErr      error
	unwritable   map[string]bool
	wall         []time.Time // one an answer
	monotonic    time.Duration
	unsync       bool
	openat2      error
	cgroupsMagic int64
}

func (s *fakeSystem) Disk(path string) (Disk, error) {
	if strings.HasSuffix(path, "fs/cgroup") {
		return Disk{Type: s.cgroupsMagic}, nil
	}
	disk := s.disk
	disk.Device = s.devices[path]
	return disk, s.diskErr
}

func (s *fakeSystem) Writable(path string) error {
	if s.unwritable[path] {
		return &os.PathError{Op: "writing to", Path: path, Err: unix.EROFS}
	}
	return nil
}

func (s *fakeSystem) Clocks() (time.Time, time.Duration) {
	now := s.wall[0]
	if len(s.wall) > 1 {
		s.wall = s.wall[1:]
	}
	return now, s.monotonic
}

func (s *fakeSystem) Synchronised() (bool, error) { return !s.unsync, nil }
func (s *fakeSystem) Openat2(string) error        { return s.openat2 }

// fakeRuntime is a runtime with configured answers.
type fakeRuntime struct {
	name, version string

	err      error
	status   *runtimeapi.StatusResponse
	driver   *runtimeapi.RuntimeConfigResponse
	noDriver error
	images   string
	noEvents error
}

func (r *fakeRuntime) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: cmp.Or(r.name, "fake"), RuntimeVersion: cmp.Or(r.version, "1"),
		RuntimeApiVersion: "v1"}, r.err
}

func (r *fakeRuntime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return r.status, nil
}

func (r *fakeRuntime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return r.driver, r.noDriver
}

func (r *fakeRuntime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: r.images}}}}, nil
}

func (r *fakeRuntime) GetContainerEvents(ctx context.Context, opened func(), _ func(*runtimeapi.ContainerEventResponse)) error {
	opened()
	if r.noEvents != nil {
		return r.noEvents
	}
	<-ctx.Done()
	return ctx.Err()
}

func (r *fakeRuntime) Close() error { return nil }

// rig is a machine of files that is fit, for tests to break.
type rig struct {
	*Machine
	t       *testing.T
	system  *fakeSystem
	runtime *fakeRuntime
}

func newRig(t *testing.T, flags ...string) *rig {
	t.Helper()
	dir := t.TempDir()
	fs := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
	known := config.AddFlags(fs)
	must(t, fs.Parse(append([]string{"--root-dir=" + dir + "/root", "--pod-manifest-path=" + dir + "/manifests",
		"--container-runtime-endpoint=unix://" + dir + "/c.sock"}, flags...)))
	node, _, err := config.Load(known, fs)
	must(t, err)
	r := &rig{t: t, system: &fakeSystem{
		disk:         Disk{Size: 100 << 30, Free: 50 << 30, Inodes: 1000, InodesFree: 900},
		cgroupsMagic: unix.CGROUP2_SUPER_MAGIC,
		wall:         []time.Time{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
	}, runtime: &fakeRuntime{images: dir,
		status: &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
		}}}, driver: &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}}}
	r.Machine = &Machine{
		Node: node, Proc: dir + "/proc", Sys: dir + "/sys", Run: dir + "/run", System: r.system,
		TrialDir: dir + "/trials", NetNSDir: dir + "/netns", CNIConfDir: dir + "/cni",
		Dial:  func(*config.Node) (Runtime, error) { return r.runtime, nil },
		Agent: func(context.Context) (RunningAgent, error) { return RunningAgent{}, errors.New("none runs") },
		Held:  func(context.Context) ([]api.Finding, error) { return nil, errors.New("none runs") },
		UserBounds: func(context.Context, uint32) (pod.UserRange, error) {
			return pod.UserRange{First: 65536, Length: 110 * 65536}, nil
		},
		Addresses: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("203.0.113.77")} },
	}
	for path, text := range map[string]string{
		"root/x": "", "manifests/a.yaml": "# none", "run/x": "",
		"proc/self/mountinfo": "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 0:30 / " + r.Sys +
			"/fs/cgroup rw shared:2 - cgroup2 cgroup2 rw\n",
		"proc/self/status":                     "Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n",
		"proc/meminfo":                         "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n",
		"proc/swaps":                           "Filename\tType\tSize\tUsed\tPriority\n",
		"proc/net/tcp":                         "  sl  local_address rem_address   st\n",
		"proc/locks":                           "",
		"sys/fs/cgroup/cgroup.controllers":     "cpuset cpu io memory hugetlb pids\n",
		"sys/fs/cgroup/cgroup.subtree_control": "cpuset cpu memory pids\n",
		"sys/fs/cgroup/cgroup.procs":           "1\n",
	} {
		r.write(filepath.Join(dir, path), text)
	}
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/pid_max":                "4194304",
		"fs/inotify/max_user_instances": "1024", "fs/inotify/max_user_watches": "1000000", "user/max_user_namespaces": "1000", "kernel/osrelease": "6.12.48+deb13-cloud-amd64\n",
		"net/ipv4/ip_forward": "1",
	} {
		r.write(filepath.Join(r.Proc, "sys", name), value+"\n")
	}
	return r
}

// write writes a file of the machine, given by its whole path.
func (r *rig) write(path, text string) {
	r.t.Helper()
	must(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(r.t, os.WriteFile(path, []byte(text), 0o644))
}

// manifest writes a pod's, with a line of its spec; lines of its container begin with resources or ports.
func (r *rig) manifest(name string, lines ...string) {
	r.t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n"
	container := "  containers:\n  - name: main\n    image: x\n"
	for _, line := range lines {
		if strings.HasPrefix(line, "resources") || strings.HasPrefix(line, "ports") {
			container += "    " + line + "\n"
		} else {
			text += "  " + line + "\n"
		}
	}
	r.write(filepath.Join(r.Node.Kubelet.StaticPodPath, name+".yaml"), text+container)
}

// cpus writes the checkpoint of exclusive CPUs.
func (r *rig) cpus(text string) {
	r.write(r.Node.RootDir+"/cpu_manager_state", text)
}

// staticCPUs configures exclusive CPUs.
func staticCPUs(r *rig) {
	r.Node.Kubelet.CPUManagerPolicy, r.Node.Kubelet.ReservedSystemCPUs = "static", "0"
}

// process makes one in the machine's /proc.
func (r *rig) process(pid, name string, fds ...string) {
	r.t.Helper()
	r.write(filepath.Join(r.Proc, pid, "comm"), name+"\n")
	must(r.t, os.MkdirAll(filepath.Join(r.Proc, pid, "fd"), 0o755))
	for i, to := range fds {
		must(r.t, os.Symlink(to, filepath.Join(r.Proc, pid, "fd", string(rune('3'+i)))))
	}
}

// find runs the one check and expects this finding. For OK, it expects no other.
func (r *rig) find(check string, result Result, says string) {
	r.t.Helper()
	i := slices.IndexFunc(Checks, func(c Check) bool { return c.Name == check })
	all := Run(r.t.Context(), r.Machine, Checks[i:i+1], nil)
	for _, f := range all {
		if (f.Do == "") != (f.Result == OK || f.Result == Skip) || f.Seen == "" {
			r.t.Errorf("%+v says too little, or too much", f)
		}
	}
	if !slices.ContainsFunc(all, func(f Finding) bool {
		return f.Result == result &&
			strings.Contains(f.Seen+" → "+f.Do, says)
	}) {
		r.t.Errorf("no %s with %q among %+v", result, says, all)
	}
	if result == OK && slices.ContainsFunc(all, func(f Finding) bool { return f.Result != OK }) {
		r.t.Errorf("not all is well: %+v", all)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var _ Runtime = (*cri.Client)(nil)
