package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/containerd"
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
func (s *Stack) hosts() string   { return filepath.Join(s.Dir, "hosts.d") }

// SecondHandler is a handler that the runtime has beside its default one, of the same runc unless Options have another program.
// Kubernetes' own tests look for this name.
const SecondHandler = "test-handler"

func (s *Stack) writeConfig() error {
	snapshots, err := containerd.Snapshotter(s.Dir)
	if err != nil {
		return err
	}
	settings := containerd.Settings{
		Major: 2, Minor: 1, Root: s.root(), State: s.state(), Socket: s.Socket(), Opt: filepath.Join(s.Dir, "opt"),
		Sandbox: s.PauseImage(), Snapshotter: snapshots, Runc: s.parts.Runc, Handlers: []string{"runc", SecondHandler},
		Others:  map[string]string{SecondHandler: s.second},
		CNIBins: []string{s.parts.CNIDir, s.CNIOwnBinDir()}, CNIConf: s.cniConf(), CNITemplate: s.CNITemplate(),
		Hosts:     s.hosts(),
		KeepScore: true, // a container with a test in it may not lower it
	}
	network := containerd.Network{
		Version: "1.1.0", Name: fmt.Sprintf("playlet-%d", s.number), Bridge: s.Bridge(), Subnet: s.Subnet(), Leases: s.leases(),
	}
	if s.kind == Containerd1 {
		settings.Major, settings.Minor, network.Version = 1, 6, "1.0.0"
	}
	text, err := settings.TOML()
	if err != nil {
		return err
	}
	conf, err := network.Conflist()
	if err != nil {
		return err
	}
	for _, dir := range []string{s.cniConf(), s.CNIOwnBinDir()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range s.mirrors {
		dir := filepath.Join(s.hosts(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(containerd.HostsTOML(s.Registry.Addr)), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(s.config(), []byte(text), 0o600),
		os.WriteFile(filepath.Join(s.cniConf(), "10-playlet.conflist"), []byte(conf), 0o644))
}
