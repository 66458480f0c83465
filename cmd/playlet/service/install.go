// Package service installs the agent as a systemd service.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/doctor"
	"github.com/playlet-dev/playlet/config/systemd"
)

const installLong = `Install playlet as a systemd service: this binary, a unit that is started at boot and restarted when it
exits, and a configuration file that opens no port to the outside. An existing configuration file is kept; if the agent could
not work with it on this machine (see playlet doctor), nothing is installed. Containers outlive the service.

With --replace-kubelet, kubelet.service runs playlet with the kubelet's arguments; uninstall returns the node to the kubelet.`

const installExample = `  # Install, enable and start
  sudo playlet install

  # See what would be written, and change nothing
  playlet install --dry-run

  # With your own configuration file, such as a kubelet's
  sudo playlet install --config=/var/lib/kubelet/config.yaml

  # Replace the kubelet of this machine, with its arguments and under its service
  sudo playlet install --replace-kubelet`

const uninstallExample = `  # Stop and remove the service, or return the node to its kubelet; containers keep running
  sudo playlet uninstall

  # Remove the configuration file as well
  sudo playlet uninstall --purge`

// installer puts the service's files in place, and takes them away.
type installer struct {
	root   string // "/", but for tests
	binary string
	config string
	self   string // the program that is installed
	v1     bool   // this host has cgroups of version 1

	dryRun, noStart, replaceKubelet, purge bool
	onlyRoot                               bool // can examine the machine, and the user is not root

	out       io.Writer
	systemctl func(ctx context.Context, args ...string) (string, error)
	refuse    func(ctx context.Context, args []string) error // is why an agent could not work with these arguments
}

const (
	unitDir      = "/etc/systemd/system"
	environment  = "/etc/default/playlet"
	systemdLives = "/run/systemd/system" // is there where systemd is the service manager; sd_booted(3)
)

// NewInstallCommand is "playlet install".
func NewInstallCommand() *cobra.Command {
	i := &installer{root: "/", systemctl: systemctl, refuse: doctor.Refuse}
	cmd := i.runs(&cobra.Command{
		Use: "install", Short: "Install playlet as a systemd service", Long: installLong, Example: installExample,
	}, i.install)
	cmd.Flags().BoolVar(&i.noStart, "no-start", false, "Only write the files; neither enable nor start the service")
	cmd.Flags().BoolVar(&i.replaceKubelet, "replace-kubelet", false,
		"Replace the installed kubelet: kubelet.service starts playlet, with the kubelet's arguments; its "+
			"containers "+
			"are taken over")
	return cmd
}

// NewUninstallCommand is "playlet uninstall".
func NewUninstallCommand() *cobra.Command {
	i := &installer{root: "/", systemctl: systemctl}
	cmd := i.runs(&cobra.Command{
		Use: "uninstall", Short: "Stop and remove the service, or return the node to its kubelet; containers keep running",
		Example: uninstallExample,
	}, i.uninstall)
	cmd.Flags().BoolVar(&i.purge, "purge", false, "Remove the configuration file too")
	return cmd
}

// runs has a command, which it returns, do this once all is prepared.
func (i *installer) runs(cmd *cobra.Command, do func(context.Context) error) *cobra.Command {
	cmd.Args = cli.NoArguments
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		i.out = cmd.OutOrStdout()
		if err := i.prepare(); err != nil {
			return err
		}
		return do(cmd.Context())
	}
	cmd.Flags().StringVar(&i.binary, "binary", "/usr/local/bin/playlet", "Path at which the program is installed")
	cmd.Flags().StringVar(&i.config, "config", systemd.ConfigPath,
		"The service's KubeletConfiguration; it is written if it does not exist")
	cmd.Flags().BoolVar(&i.dryRun, "dry-run", false, "Print the steps, and do nothing")
	return cmd
}

// prepare checks the user and the paths.
func (i *installer) prepare() error {
	for flag, path := range map[string]string{"--binary": i.binary, "--config": i.config} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s=%s: must be an absolute path, since the service has no working folder", flag, path)
		}
	}
	i.onlyRoot = os.Geteuid() != 0
	if !i.dryRun && i.onlyRoot {
		return errors.New("only root can do this; --dry-run shows what would be done")
	}
	var err error
	if i.self, err = os.Executable(); err != nil {
		return err
	}
	_, err = os.Stat("/sys/fs/cgroup/cgroup.controllers")
	i.v1 = errors.Is(err, fs.ErrNotExist)
	return nil
}

// refuses returns the reason why an agent could not work with the present configuration, or with the one that would be written.
func (i *installer) refuses(ctx context.Context) error {
	if _, err := os.Lstat(i.path(i.config)); err == nil {
		return i.refuse(ctx, []string{"--config=" + i.path(i.config)})
	}
	dir, err := os.MkdirTemp("", "playlet-install-")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, filepath.Base(i.config))
	err = os.WriteFile(file, []byte(systemd.Configuration(i.v1)), 0o600)
	if err == nil {
		err = i.refuse(ctx, []string{"--config=" + file})
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func (i *installer) install(ctx context.Context) error {
	if _, err := os.Lstat(i.path(systemd.TakeoverPath)); err == nil {
		i.replaceKubelet = true // by an earlier call
	}
	if err := i.checkManager(ctx); err != nil {
		return err
	}
	if i.replaceKubelet {
		return i.takeOver(ctx)
	}
	if i.onlyRoot {
		i.say("not looked at: whether an agent can work with %s on this machine; sudo playlet doctor does that", i.config)
	} else if err := i.refuses(ctx); err != nil {
		return fmt.Errorf("nothing was installed, for %s would not do: %w", i.config, err)
	}
	if err := i.writeProgram(); err != nil {
		return err
	}
	if _, err := os.Lstat(i.path(i.config)); err == nil {
		i.say("kept %s, which was there", i.config)
	} else if err := i.write(i.config, []byte(systemd.Configuration(i.v1)), 0o600); err != nil {
		return err
	}
	if err := i.write(filepath.Join(unitDir, systemd.UnitName), []byte(systemd.Unit(i.binary, i.config)), 0o600); err != nil {
		return err
	}
	if i.noStart {
		i.say("not started: systemctl enable --now %s does that", systemd.UnitName)
		return nil
	}
	for _, args := range [][]string{{"daemon-reload"}, {"enable", systemd.UnitName}} {
		if err := i.control(ctx, args...); err != nil {
			return err
		}
	}
	// restart, not start: a service that runs is to run this program.
	if err := i.control(ctx, "restart", systemd.UnitName); err != nil {
		return fmt.Errorf("%w (journalctl -u %s says why)", err, systemd.UnitName)
	}
	if !i.dryRun {
		i.say("%s runs; playlet pods shows its pods", systemd.UnitName)
	}
	return nil
}

func (i *installer) writeProgram() error {
	program, err := os.ReadFile(i.self)
	if err != nil || i.path(i.binary) == i.self {
		return err
	}
	return i.write(i.binary, program, 0o755)
}

// checkManager sees to it that there is a service manager, and that no kubelet is stopped unasked.
func (i *installer) checkManager(ctx context.Context) error {
	if i.noStart || i.dryRun {
		return nil
	}
	if _, err := os.Stat(i.path(systemdLives)); err != nil {
		return errors.New("this machine is not run by systemd; --no-start writes the files alone, and any supervisor can run " +
			"playlet")
	}
	state, _ := i.systemctl(ctx, "is-active", systemd.KubeletUnit) // the exit code has the same information
	// A kubelet that systemd starts again and again, e.g. before kubeadm has configured it, is activating.
	if slices.Contains([]string{"active", "activating", "reloading"}, strings.TrimSpace(state)) && !i.replaceKubelet {
		return errors.New("a kubelet runs here (kubelet.service), and both would manage the same containers; --replace-kubelet " +
			"has kubelet.service run playlet instead")
	}
	return nil
}

// wroteConfig reports whether the configuration is one that install writes: at its own path, or unchanged at another.
func (i *installer) wroteConfig() bool {
	text, err := os.ReadFile(i.path(i.config))
	return i.config == systemd.ConfigPath || err == nil &&
		slices.Contains([]string{systemd.Configuration(true), systemd.Configuration(false)}, string(text))
}

func (i *installer) uninstall(ctx context.Context) error {
	if _, err := os.Lstat(i.path(systemd.TakeoverPath)); err == nil {
		if err := i.giveBack(ctx, "try-restart"); err != nil {
			return err
		}
	}
	unit := filepath.Join(unitDir, systemd.UnitName)
	if _, err := os.Stat(i.path(systemdLives)); err == nil {
		if _, err := os.Lstat(i.path(unit)); err == nil {
			if err := i.control(ctx, "disable", "--now", systemd.UnitName); err != nil {
				return err
			}
		}
	}
	paths := []string{unit, i.binary}
	if i.purge {
		paths = append(paths, environment)
		if i.wroteConfig() {
			paths = append(paths, i.config)
		}
	}
	installed := slices.ContainsFunc(paths, func(path string) bool { _, err := os.Lstat(i.path(path)); return err == nil })
	for _, path := range append(paths, systemd.LogindPath) {
		if err := i.remove(path); err != nil {
			return err
		}
	}
	if _, err := os.Stat(i.path(systemdLives)); err == nil {
		if err := i.control(ctx, "daemon-reload"); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(i.path(i.config)); err == nil && i.wroteConfig() {
		i.say("%s is left; --purge removes it", i.config)
	} else if err == nil {
		i.say("%s is left; install did not write it", i.config)
	}
	if !installed {
		i.say("nothing was installed: there is no %s", strings.Join(paths, ", no "))
		return nil
	}
	i.say("containers go on running, and their data and logs stay")
	return nil
}
