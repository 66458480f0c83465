package cni

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// attach attaches a container to a network of one plugin with addresses and one without.
func attach(t *testing.T, a Attachments, log, container, netns string) {
	t.Helper()
	conf, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		{"type": "main", "log": %q, "ipam": {"type": "addresses"}}, {"type": "main", "log": %q}]}`, log, log))
	must(t, err)
	_, err = a.config().AddNetworkList(t.Context(), conf, &libcni.RuntimeConf{ContainerID: container, NetNS: netns, IfName: "eth0",
		Args: [][2]string{{"K8S_POD_UID", "u"}}})
	must(t, err)
}

func TestAttachmentsAreGivenBack(t *testing.T) {
	p := places(t, "main")
	a := Attachments{BinDirs: p.BinDirs, CacheDir: t.TempDir(), Proc: t.TempDir()}
	log, space := filepath.Join(t.TempDir(), "calls"), filepath.Join(t.TempDir(), "netns")
	must(t, os.WriteFile(space, nil, 0o600)) // the mount point of a namespace
	const lost, stranger = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
	attach(t, a, log, lost, space)
	attach(t, a, log, stranger, space)
	must(t, os.Remove(log))

	process := filepath.Join(a.Proc, "17", "ns")
	must(t, os.MkdirAll(process, 0o755))
	info, err := os.Stat(space)
	must(t, err)
	inhabit := func(inode uint64) {
		t.Helper()
		_ = os.Remove(filepath.Join(process, "net")) // there is none the first time
		must(t, os.Symlink(fmt.Sprintf("net:[%d]", inode), filepath.Join(process, "net")))
	}
	inhabit(inode(info))
	if n, err := a.Release(t.Context(), lost); !errors.Is(err, ErrInUse) || n != 0 {
		t.Errorf("in use: %d, %v", n, err)
	}
	inhabit(1)
	a.BinDirs = nil
	if n, err := a.Release(t.Context(), lost); err == nil || n != 0 {
		t.Errorf("without plugins: %d, %v", n, err)
	}
	a.BinDirs = p.BinDirs
	if n, err := a.Release(t.Context(), lost); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	calls, err := os.ReadFile(log)
	must(t, err)
	if got := strings.Fields(string(calls)); !slices.Equal(got, []string{"DEL", lost, "DEL", lost}) {
		t.Errorf("calls %v", got)
	}
	if n, err := a.Release(t.Context(), lost); err != nil || n != 0 {
		t.Errorf("once more: %d, %v", n, err)
	}
	if _, err := a.Release(t.Context(), ""); err == nil {
		t.Error("no ID at all")
	}
	if left, err := a.Of(stranger); err != nil || len(left) != 1 {
		t.Errorf("of the stranger there is %v, %v", left, err)
	}
	must(t, os.RemoveAll(a.Proc))
	if _, err := a.Release(t.Context(), stranger); err == nil {
		t.Error("no processes are seen, and it is taken for unused")
	}
}

func inode(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// An address without a record of libcni is released by the network in force, once per interface, unless a process runs in a
// cgroup with the container's name.
func TestAddressesThatNobodyRecorded(t *testing.T) {
	p, log, leases := places(t, "main"), filepath.Join(t.TempDir(), "calls"), t.TempDir()
	p.write(t, "10.conf", fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "type": "main", "log": %q,
		"ipam": {"type": "host-local", "dataDir": %q}}`, log, leases))
	networks, err := Load(p)
	must(t, err)
	a := Attachments{BinDirs: p.BinDirs, CacheDir: t.TempDir(), Proc: t.TempDir(), Networks: networks}
	const lost, recorded = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
	attach(t, a, log, recorded, "")
	must(t, os.Remove(log))
	const cut = "cccccccccccccccc"
	must(t, os.WriteFile(filepath.Join(a.CacheDir, "results", "pods-"+cut+"-eth0"), []byte("{"), 0o600))
	must(t, os.Mkdir(filepath.Join(leases, "pods"), 0o755))
	for file, text := range map[string]string{"10.0.0.2": lost + "\r\neth0", "fd00__2": lost + "\r\neth0", "10.0.0.3": recorded,
		"10.0.0.5": cut, "10.0.0.4": "", "lock": "", "last_reserved_ip.0": "10.0.0.3"} {
		must(t, os.WriteFile(filepath.Join(leases, "pods", file), []byte(text), 0o600))
	}
	if got, err := a.Unrecorded(); err != nil || !slices.Equal(got, []string{lost}) {
		t.Errorf("unrecorded are %v, %v", got, err)
	}
	if _, err := a.Release(t.Context(), lost); err == nil {
		t.Error("no processes are seen, and it is taken for unused")
	}
	process := filepath.Join(a.Proc, "17")
	must(t, os.Mkdir(process, 0o755))
	must(t, os.WriteFile(filepath.Join(process, "cgroup"), []byte("0::/kubepods/podu/"+lost+"\n"), 0o600))
	if n, err := a.Release(t.Context(), lost); !errors.Is(err, ErrInUse) || n != 0 {
		t.Errorf("in use: %d, %v", n, err)
	}
	must(t, os.WriteFile(filepath.Join(process, "cgroup"), []byte("0::/\n"), 0o600))
	if n, err := a.Release(t.Context(), lost); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	calls, err := os.ReadFile(log)
	must(t, err)
	if got := strings.Fields(string(calls)); !slices.Equal(got, []string{"DEL", lost}) {
		t.Errorf("calls %v", got)
	}
}
