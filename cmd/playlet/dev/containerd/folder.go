package containerd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Folder holds all that a containerd of one's own reads and writes.
type Folder string

// Contents are the names of the entries of a Folder.
var Contents = []string{
	"containerd.toml", "containerd.sock", "containerd.sock.ttrpc", "containerd", "run", "opt", "certs.d", "net.d", "leases",
}

func (f Folder) at(name string) string { return filepath.Join(string(f), name) }

// Socket is where containerd listens.
func (f Folder) Socket() string { return f.at("containerd.sock") }

// Root is containerd's persistent state.
func (f Folder) Root() string { return f.at("containerd") }

// State is containerd's state of this boot.
func (f Folder) State() string { return f.at("run") }

// CNIConf is where the pods' network is configured.
func (f Folder) CNIConf() string { return f.at("net.d") }

// Leases has the network's addresses that are taken.
func (f Folder) Leases() string { return f.at("leases") }

// Write writes all that containerd reads. The paths that lie in the folder, and the snapshotter, are filled in. Pulls from
// the registries of these names go to the address of a registry that listens there.
func (f Folder) Write(s Settings, n Network, address string, registries ...string) error {
	snapshots, err := Snapshotter(string(f))
	if err != nil {
		return err
	}
	s.Snapshotter, s.Root, s.State, s.RuncRoot, s.Socket = snapshots, f.Root(), f.State(), f.State()+"/runc", f.Socket()
	s.Opt, s.Hosts, s.CNIConf, n.Leases = f.at("opt"), f.at("certs.d"), f.CNIConf(), f.Leases()
	toml, err1 := s.TOML()
	network, err2 := n.Conflist()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	files := map[string]string{f.at("containerd.toml"): toml, f.CNIConf() + "/10-playlet.conflist": network}
	for _, name := range registries {
		files[filepath.Join(s.Hosts, name, "hosts.toml")] = hostsTOML(address)
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// hostsTOML sends pulls from a registry's name to where the registry listens (containerd, docs/hosts.md).
func hostsTOML(address string) string {
	return fmt.Sprintf("server = \"http://%[1]s\"\n\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
		address)
}

// Command starts this program over the folder, with env but for another $PATH: containerd looks there for its shim, the shim
// for runc's helpers, and CNI plugins for iptables; beside are the paths of these. It does not report to our service manager.
func (f Folder) Command(containerd string, env []string, beside ...string) *exec.Cmd {
	cmd := exec.Command(containerd, "--config", f.at("containerd.toml"))
	cmd.Dir, cmd.Env = string(f), environment(env, beside)
	return cmd
}

// Snapshotter tests whether the file system of dir supports overlays. If it does not (an overlay itself, for example),
// containerd copies.
func Snapshotter(dir string) (name string, err error) {
	top, err := os.MkdirTemp(dir, "try-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(top)) }()
	for _, layer := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(top, layer), 0o700); err != nil {
			return "", err
		}
	}
	data := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", top)
	if unix.Mount("overlay", top+"/merged", "overlay", 0, data) != nil {
		return "native", nil
	}
	return "overlayfs", unix.Unmount(top+"/merged", 0)
}

func environment(env, programs []string) []string {
	var path []string
	for _, program := range programs {
		path = append(path, filepath.Dir(program))
	}
	path = append(path, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
	out := []string{"PATH=" + strings.Join(path, ":")}
	for _, v := range env {
		if !strings.HasPrefix(v, "PATH=") && !strings.HasPrefix(v, "NOTIFY_SOCKET=") {
			out = append(out, v)
		}
	}
	return out
}

// Ready returns the reason why a runtime, by its answer to Status, or its network is not ready.
func Ready(status *runtimeapi.StatusResponse) error {
	for _, c := range status.GetStatus().GetConditions() {
		if (c.Type == runtimeapi.RuntimeReady || c.Type == runtimeapi.NetworkReady) && !c.Status {
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
	}
	return nil
}
