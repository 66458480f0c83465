package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
)

// Socket is the path of the runtime's socket; the CRI endpoint is "unix://" before it.
func (s *Stack) Socket() string { return filepath.Join(s.Dir, "c.sock") }

// PauseImage is the image that the runtime uses for sandboxes.
func (s *Stack) PauseImage() string { return s.Registry.Ref("pause") }

// HelloImage is the image of the hello server, which the runtime has to pull.
func (s *Stack) HelloImage() string { return s.Registry.Ref("hello") }

// Bridge is the name of the bridge that pods are attached to; it is made with the first pod.
func (s *Stack) Bridge() string { return fmt.Sprintf("pods%d", s.number) }

// Subnet is where pods' addresses are from.
func (s *Stack) Subnet() string { return fmt.Sprintf("10.%d.%d.0/20", 100+s.number/16, s.number%16*16) }

// CNIConfDir is where the runtime's network is configured.
func (s *Stack) CNIConfDir() string { return s.cniConf() }

// CNITemplate is the file of which containerd 2 makes the network's configuration when it is told the pods' range of addresses. It is
// not there unless a test writes it.
func (s *Stack) CNITemplate() string { return filepath.Join(s.Dir, "net.template") }

// CNIBinDir is the folder of the network's plugins.
func (s *Stack) CNIBinDir() string { return s.parts.CNIDir }

// CNIOwnBinDir is a further folder of plugins, empty and of this stack alone, of containerd 2.
func (s *Stack) CNIOwnBinDir() string { return filepath.Join(s.Dir, "plugins") }

// LeaseDir is where the network's addresses that are taken are kept.
func (s *Stack) LeaseDir() string { return s.leases() }

func (s *Stack) root() string    { return filepath.Join(s.Dir, "root") }
func (s *Stack) state() string   { return filepath.Join(s.Dir, "state") }
func (s *Stack) config() string  { return filepath.Join(s.Dir, "containerd.toml") }
func (s *Stack) cniConf() string { return filepath.Join(s.Dir, "net.d") }
func (s *Stack) leases() string  { return filepath.Join(s.Dir, "leases") }

// SecondHandler is a handler that the runtime has beside its default one, of the same runc.
const SecondHandler = "runc-second"

// settings are what the templates below take.
type settings struct {
	Root, State, Socket, Opt, Sandbox, Snapshotter, Runc, Second, CNIBin, CNIOwnBin, CNIConf, CNITemplate string
}

// newConfig is for containerd 2. Lowering oom_score_adj takes CAP_SYS_RESOURCE, which a container with a test in it
// may not have. AppArmor profiles and NRI sockets would be the machine's, not ours.
const newConfig = `version = 3
root = "{{.Root}}"
state = "{{.State}}"
imports = []

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{{.Snapshotter}}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Sandbox}}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.CNIBin}}", "{{.CNIOwnBin}}"]
    conf_dir = "{{.CNIConf}}"
    conf_template = "{{.CNITemplate}}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{{.Runc}}"
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{{.Second}}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{{.Second}}.options]
      BinaryName = "{{.Runc}}"
      SystemdCgroup = false

[plugins."io.containerd.nri.v1.nri"]
  disable = true

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Opt}}"
`

// oldConfig is the same for containerd 1.6.
const oldConfig = `version = 2
root = "{{.Root}}"
state = "{{.State}}"
imports = []

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Sandbox}}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.CNIBin}}"
    conf_dir = "{{.CNIConf}}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{{.Snapshotter}}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{{.Runc}}"
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{{.Second}}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{{.Second}}.options]
      BinaryName = "{{.Runc}}"
      SystemdCgroup = false

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Opt}}"
`

// network is the CNI configuration; containerd adds the loopback plugin by itself. CNI 1.1 has STATUS and GC.
const network = `{
  "cniVersion": "%s",
  "name": "playlet-%d",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "%s",
      "isGateway": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "%s",
        "ranges": [[{"subnet": "%s"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]
}
`

func (s *Stack) writeConfig() error {
	text, cniVersion := newConfig, "1.1.0"
	if s.kind == Containerd1 {
		text, cniVersion = oldConfig, "1.0.0"
	}
	var out strings.Builder
	err := template.Must(template.New("containerd").Parse(text)).Execute(&out, settings{
		Root: s.root(), State: s.state(), Socket: s.Socket(), Opt: filepath.Join(s.Dir, "opt"),
		Sandbox: s.PauseImage(), Snapshotter: snapshotter(s.Dir),
		Runc: s.parts.Runc, Second: SecondHandler, CNIBin: s.parts.CNIDir, CNIOwnBin: s.CNIOwnBinDir(), CNIConf: s.cniConf(), CNITemplate: s.CNITemplate(),
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.config(), []byte(out.String()), 0o600); err != nil {
		return err
	}
	for _, dir := range []string{s.cniConf(), s.CNIOwnBinDir()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	conf := fmt.Sprintf(network, cniVersion, s.number, s.Bridge(), s.leases(), s.Subnet())
	return os.WriteFile(filepath.Join(s.cniConf(), "10-playlet.conflist"), []byte(conf), 0o644)
}

// snapshotter tries whether the file system of dir can carry an overlay; where it cannot (it is one itself, say),
// containerd copies instead.
func snapshotter(dir string) string {
	var layers []string
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		path := filepath.Join(dir, "try-"+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			return "native"
		}
		layers = append(layers, path)
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", layers[0], layers[1], layers[2])
	if err := syscall.Mount("overlay", layers[3], "overlay", 0, data); err != nil {
		return "native"
	}
	if err := syscall.Unmount(layers[3], 0); err != nil {
		return "native"
	}
	return "overlayfs"
}
