package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// tool is a Debian package, with a check whether its purpose is fulfilled, from any source.
type tool struct {
	pkg   string
	there func() bool
}

// runTools are needed to run the parts: the CNI plugins bridge and portmap call iptables. dbus-daemon is for the test of the
// systemd driver, and chromium for the observatory's.
var runTools = []tool{
	{"iproute2", hasProgram("ip")},
	{"iptables", hasProgram("iptables")},
	{"dbus-daemon", hasProgram("dbus-daemon")},
	{"chromium", hasProgram("chromium")},
}

func hasProgram(name string) func() bool {
	return func() bool {
		_, err := exec.LookPath(name)
		return err == nil
	}
}

func hasFile(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

func hasLibrary(name string) func() bool {
	return func() bool { return exec.Command("pkg-config", "--exists", name).Run() == nil }
}

// apt installs the packages of tools that are not there, naming them.
func (j *job) apt(tools ...tool) error {
	var missing []string
	for _, t := range tools {
		if !t.there() {
			missing = append(missing, t.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := j.canApt("needed: " + strings.Join(missing, " ")); err != nil {
		return err
	}
	return j.step("installing Debian packages: "+strings.Join(missing, " "), func() error {
		if err := j.aptUpdate(); err != nil {
			return err
		}
		return run(j.aptGet("", append([]string{"install", "-y", "--no-install-recommends"}, missing...)...))
	})
}

func (j *job) canApt(why string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s: this is not Debian (no apt-get)", why)
	}
	if os.Geteuid() != 0 {
		return errors.New(why + ": installing packages takes root")
	}
	return nil
}

// aptUpdate fetches the package lists, once.
func (j *job) aptUpdate() error {
	if j.updated {
		return nil
	}
	if err := run(j.aptGet("", "update")); err != nil {
		return err
	}
	j.updated = true
	return nil
}

func (j *job) aptGet(dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(j.ctx, "apt-get", append([]string{"-q"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	return cmd
}
