package isolate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
)

// initial is PID 1 of the namespaces: it sets them up, starts the body, and reaps until the body ends. Everything else
// in the namespaces ends with it.
func initial() (int, error) {
	dir := os.Getenv(dirVar)
	if err := os.Setenv(stageVar, "body"); err != nil {
		return codeFailed, err
	}
	status, err := namespaces.Init([]namespaces.Step{
		{What: "own mounts", Do: func() error { return namespaces.OwnMounts(syscall.MS_PRIVATE) }},
		{What: "cgroups", Do: func() error { return namespaces.EnterCgroups(groupName(filepath.Base(dir))) }},
		{What: "own directories", Do: ownDirs},
		{What: "shared mounts", Do: namespaces.ShareMounts},
		{What: "host name", Do: func() error { return syscall.Sethostname([]byte(HostName)) }},
		{What: "network", Do: network},
	}, os.Args, nil, func(s os.Signal) os.Signal { return s })
	if err != nil {
		return codeFailed, err
	}
	return exitCode(status), nil
}

// ownDirs hides the folders of the machine's own containerd, CNI plugins and kubelet, and provides ours: /run is empty, and
// /var/lib and /var/log look as outside but lose every change.
func ownDirs() error {
	resolv, resolvErr := os.ReadFile("/etc/resolv.conf")
	if err := namespaces.Tmpfs("/run", "755"); err != nil {
		return err
	}
	for dir, upper := range map[string]string{"/var/lib": "/run/var-lib", "/var/log": "/run/var-log"} {
		if err := forgetful(dir, upper); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	// resolv.conf may have been a link into /run; sandboxes get a copy of it.
	target, err := os.Readlink("/etc/resolv.conf")
	if resolvErr != nil || err != nil {
		return nil
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join("/etc", target)
	}
	if !strings.HasPrefix(target, "/run/") {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, resolv, 0o644)
}

// forgetful lays a file system over a directory that takes every change to it, and keeps them below upper.
func forgetful(dir, upper string) error {
	for _, d := range []string{upper, upper + "/changes", upper + "/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	data := "lowerdir=" + dir + ",upperdir=" + upper + "/changes,workdir=" + upper + "/work"
	return syscall.Mount("overlay", dir, "overlay", 0, data)
}

func network() error {
	for _, line := range []string{
		"link set lo up",
		"link add " + HostName + " type bridge",
		"addr add " + NodeIP + "/24 dev " + HostName,
		"link set " + HostName + " up",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
