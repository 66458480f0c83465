package nfs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/nfs"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// agentEnv names the program that a copy of this test runs as an agent would.
const agentEnv = "TEST_NFS_AGENT"

func TestMain(m *testing.M) {
	if program := os.Getenv(agentEnv); program != "" {
		fmt.Println((&nfs.Mounter{Program: program}).Mount(context.Background(), "u", nfs.Source{Server: "s", Path: "/"}, "/nowhere"))
		return
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSource_Arguments(t *testing.T) {
	annotated := map[string]string{v1.MountOptionAnnotation: "soft,timeo=10"}
	for name, c := range map[string]struct {
		source nfs.Source
		want   string
	}{
		"a name":          {nfs.Source{Server: "nas.test", Path: "/data"}, "nas.test:/data /at"},
		"an address":      {nfs.Source{Server: "10.0.0.1", Path: "/"}, "10.0.0.1:/ /at"},
		"IPv6":            {nfs.Source{Server: "fd00::1", Path: "/data"}, "[fd00::1]:/data /at"},
		"IPv6 and a zone": {nfs.Source{Server: "fe80::1%eth0", Path: "/data"}, "[fe80::1%eth0]:/data /at"},
		"read-only":       {nfs.Inline(&v1.NFSVolumeSource{Server: "s", Path: "/", ReadOnly: true}), "s:/ /at -o ro"},
		"options":         {volume([]string{"soft", "nfsvers=4.2", "ro", "soft", ""}, nil, true), "s:/p /at -o nfsvers=4.2,soft,ro"},
		"annotated":       {volume([]string{"hard"}, annotated, false), "s:/p /at -o soft,timeo=10"},
		"no background":   {volume([]string{"hard,bg"}, nil, false), "s:/p /at -o hard,bg,fg"},
		"of a shell":      {nfs.Source{Server: "s", Path: "/$(touch x);'"}, "s:/$(touch x);' /at"},
	} {
		t.Run(name, func(t *testing.T) {
			var m nfs.Mounter
			calls := volumestest.FakeMountNFS(t, &m, "")
			must(t, c.source.Check())
			must(t, m.Mount(t.Context(), "u", c.source, "/at"))
			if got := volumestest.CallsOf(t, calls); len(got) != 1 || got[0] != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// volume returns the source of a PersistentVolume, which is marked read-only: only the use of its claim counts.
func volume(options []string, annotations map[string]string, readOnly bool) nfs.Source {
	pv := &v1.PersistentVolume{}
	pv.Annotations, pv.Spec.MountOptions = annotations, options
	pv.Spec.NFS = &v1.NFSVolumeSource{Server: "s", Path: "/p", ReadOnly: true}
	return nfs.OfVolume(pv, readOnly)
}

func TestSource_Check(t *testing.T) {
	for want, s := range map[string]nfs.Source{
		"no name or address": {Server: "", Path: "/"}, `"-oremount"`: {Server: "-oremount", Path: "/"}, `"a/b"`: {Server: "a/b", Path: "/"},
		"not absolute": {Server: "s", Path: "data"}, "the path": {Server: "s", Path: "/a\nb"}, "the server": {Server: "s\x00", Path: "/"},
		"the mount option": {Server: "s", Path: "/", Options: []string{"soft", "a\tb"}},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want an error with %s", s, err, want)
		}
	}
}

func TestMounter_Recognise(t *testing.T) {
	s := nfs.Source{Server: "FD00::1", Path: "/data/"}
	for name, c := range map[string]struct {
		at              mountinfo.Info
		readOnly        bool
		refused, warned bool
	}{
		"the same":            {at: mountinfo.Info{FSType: "nfs4", Source: "[fd00::1]:/data"}},
		"version 3":           {at: mountinfo.Info{FSType: "nfs", Source: "[FD00::1]://data"}},
		"another's":           {at: mountinfo.Info{FSType: "nfs4", Source: "[fd00::2]:/data"}, warned: true},
		"of another kind":     {at: mountinfo.Info{FSType: "ext4", Source: "/dev/sda1"}, refused: true},
		"with write access":   {at: mountinfo.Info{FSType: "nfs4", Source: "[fd00::1]:/data", Options: "rw", VFSOptions: "rw"}, readOnly: true, refused: true},
		"without":             {at: mountinfo.Info{FSType: "nfs4", Source: "[fd00::1]:/data", Options: "relatime,ro", VFSOptions: "rw"}, readOnly: true},
		"of a read-only root": {at: mountinfo.Info{FSType: "nfs4", Source: "[fd00::1]:/data", Options: "rw", VFSOptions: "ro,vers=4.2"}, readOnly: true},
	} {
		s.ReadOnly = c.readOnly
		var log strings.Builder
		err := (&nfs.Mounter{}).Recognise(slog.New(slog.NewTextHandler(&log, nil)), s, &c.at)
		if (err != nil) != c.refused || (log.Len() > 0) != c.warned {
			t.Errorf("%s: got %v and the log %q", name, err, log.String())
		}
	}
}

// The messages are those of nfs-utils 2.6.
func TestMounter_Causes(t *testing.T) {
	for output, want := range map[string]messages.CauseCode{
		"mount.nfs: Connection refused":                                                                  messages.CauseServerUnreachable,
		"mount.nfs: Connection refused for nas.test:/data on /at":                                        messages.CauseServerUnreachable,
		"mount.nfs: Connection timed out":                                                                messages.CauseServerUnreachable,
		"mount.nfs: No route to host":                                                                    messages.CauseServerUnreachable,
		"mount.nfs: Network is unreachable":                                                              messages.CauseServerUnreachable,
		"mount.nfs: Failed to resolve server nas.test: Name or service not known":                        messages.CauseServerUnresolved,
		"mount.nfs: access denied by server while mounting nas.test:/data":                               messages.CauseExportDenied,
		"mount.nfs: Operation not permitted":                                                             messages.CauseExportDenied,
		"mount.nfs: mounting nas.test:/data failed, reason given by server: No such file or directory":   messages.CauseExportAbsent,
		"mount.nfs: an incorrect mount option was specified":                                             messages.CauseMountOptions,
		"mount.nfs: requested NFS version or transport protocol is not supported":                        messages.CauseMountOptions,
		"mount.nfs: Protocol not supported":                                                              messages.CauseMountOptions,
		"mount.nfs: No such device":                                                                      messages.CauseFileSystemAbsent,
		"mount.nfs: rpc.statd is not running but is required for remote locking.\nmount.nfs: Either use": messages.CauseLocksAbsent,
		"mount.nfs: Stale file handle":                                                                   "",
	} {
		var m nfs.Mounter
		volumestest.FakeMountNFS(t, &m, "echo '"+output+"' >&2; exit 32")
		err := m.Mount(t.Context(), "u", nfs.Source{Server: "nas.test", Path: "/data"}, "/at")
		if err == nil {
			t.Fatalf("%s: no error", output)
		}
		got := messages.CauseOf(err)
		if first, _, _ := strings.Cut(output, "\n"); got.Code != want || got.Name != "nas.test:/data" ||
			!strings.HasPrefix(err.Error(), "nas.test:/data: ") || !strings.Contains(err.Error(), first) {
			t.Errorf("%s: got %+v, %v", output, got, err)
		}
	}
	m := nfs.Mounter{Program: "/absent/mount.nfs"}
	err := m.Mount(t.Context(), "u", nfs.Source{Server: "s", Path: "/"}, "/at")
	if got := messages.CauseOf(err); got.Code != messages.CauseMountProgramAbsent || !strings.Contains(err.Error(), "nfs-common or nfs-utils") {
		t.Errorf("no program: got %+v, %v", got, err)
	}
}

// hangs is a script that hangs together with a child, and whose processes write their IDs to the file.
func hangs(file string) string {
	return "sleep 100000 >/dev/null 2>&1 & echo $! $$ >" + file + ".new; mv " + file + ".new " + file + "; wait"
}

// pidsIn waits for the IDs of the processes of hangs.
func pidsIn(t *testing.T, file string) (pids []int) {
	t.Helper()
	for {
		text, err := os.ReadFile(file)
		if err == nil {
			for _, field := range strings.Fields(string(text)) {
				pid, err := strconv.Atoi(field)
				must(t, err)
				pids = append(pids, pid)
			}
			return pids
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
}

// isOver waits for the end of a process.
func isOver(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // only a failure takes so long
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(text), ") Z ") {
			return
		}
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d still runs", pid)
		}
	}
}

// The end of a pod, or of the operation, kills the program with all its processes. Other pods' programs go on.
func TestMounter_KillsTheWholeGroup(t *testing.T) {
	var m nfs.Mounter
	file := filepath.Join(t.TempDir(), "pids")
	volumestest.FakeMountNFS(t, &m, hangs(file))
	for name, end := range map[string]func(cancel func()){"the pod": func(func()) { m.Stop("u") }, "the operation": func(cancel func()) { cancel() }} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Mount(ctx, "u", nfs.Source{Server: "s", Path: "/"}, "/at") }()
		pids := pidsIn(t, file)
		m.Stop("other")
		end(cancel)
		if err := <-done; err == nil || strings.Contains(err.Error(), "the pod is ending") != (name == "the pod") {
			t.Errorf("%s: got %v", name, err)
		}
		for _, pid := range pids {
			isOver(t, pid)
		}
		cancel()
		must(t, os.Remove(file))
	}
}

// A program that the agent started does not outlive a killed agent: it could mount the volume of a pod that has ended.
func TestMounter_ProgramEndsWithTheAgent(t *testing.T) {
	var m nfs.Mounter
	file := filepath.Join(t.TempDir(), "pids")
	volumestest.FakeMountNFS(t, &m, hangs(file))
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), agentEnv+"="+m.Program)
	must(t, agent.Start())
	pids := pidsIn(t, file)
	must(t, agent.Process.Kill())
	var killed *exec.ExitError
	if err := agent.Wait(); !errors.As(err, &killed) {
		t.Error(err)
	}
	isOver(t, pids[1])
	_ = syscall.Kill(pids[0], syscall.SIGKILL) // its child
}
