package stack

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
)

// Socket is the path of the runtime's socket; the CRI endpoint is "unix://" before it.
func (s *Stack) Socket() string { return s.files().Socket() }

// PauseImage is the image that the runtime uses for sandboxes.
func (s *Stack) PauseImage() string { return s.Registry.Ref("pause") }

// HelloImage is the image of the hello server, which the runtime has to pull.
func (s *Stack) HelloImage() string { return s.Registry.Ref("hello") }

// Bridge is the name of the bridge that pods are attached to; it is made with the first pod.
func (s *Stack) Bridge() string { return fmt.Sprintf("pods%d", s.number) }

// Subnet has the addresses of pods.
func (s *Stack) Subnet() string {
	if s.subnet != "" {
		return s.subnet
	}
	return fmt.Sprintf("10.%d.%d.0/20", 100+s.number/16, s.number%16*16)
}

// CNIConfDir is where the runtime's network is configured.
func (s *Stack) CNIConfDir() string { return s.files().CNIConf() }

// CNITemplate is containerd 2's template of the network's configuration, rendered with the pods' range of addresses. It only
// exists if a test writes it.
func (s *Stack) CNITemplate() string { return filepath.Join(s.Dir, "net.template") }

// CNIBinDir is the folder of the network's plugins.
func (s *Stack) CNIBinDir() string { return s.parts.CNIDir }

// CNIOwnBinDir is a further folder of plugins, empty and of this stack alone, of containerd 2.
func (s *Stack) CNIOwnBinDir() string { return filepath.Join(s.Dir, "plugins") }

// LeaseDir is where the network's addresses that are taken are kept.
func (s *Stack) LeaseDir() string { return s.files().Leases() }

// files returns the folder of the stack with containerd's files.
func (s *Stack) files() containerd.Folder { return containerd.Folder(s.Dir) }

func (s *Stack) root() string { return s.files().Root() }

// SecondHandler is a handler that the runtime has beside its default one, of the same runc unless Options have another program.
// Kubernetes' own tests look for this name.
const SecondHandler = "test-handler"

func (s *Stack) writeConfig() error {
	settings := containerd.Settings{
		Major: 2, Minor: 1, Sandbox: s.PauseImage(), Runc: s.parts.Runc, Handlers: []string{"runc", SecondHandler},
		Others:  map[string]string{SecondHandler: s.second},
		CNIBins: []string{s.parts.CNIDir, s.CNIOwnBinDir()}, CNITemplate: s.CNITemplate(),
		KeepScore: true, // a container with a test in it may not lower it
	}
	network := containerd.Network{
		Version: "1.1.0", Name: fmt.Sprintf("playlet-%d", s.number), Bridge: s.Bridge(), Subnet: s.Subnet(),
	}
	if s.kind == Containerd1 {
		settings.Major, settings.Minor, network.Version = 1, 6, "1.0.0"
	}
	if err := os.Mkdir(s.CNIOwnBinDir(), 0o755); err != nil {
		return err
	}
	return s.files().Write(settings, network, s.Registry.Addr, s.mirrors...)
}
