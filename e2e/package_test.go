//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// systemctl replaces systemd, which this machine does not have, for the package's scripts: it starts the unit's command, and
// stops it as with KillMode=process, the agent alone.
const systemctl = `#!/bin/sh
echo "$@" >>/systemctl.log
pid() { cat /run/playlet.pid 2>/dev/null; }
alive() { readlink "/proc/$(pid)/exe" >/dev/null 2>&1; }
stop() { alive || return 0; kill -TERM "$(pid)"; while alive; do sleep 0.1; done; }
start() {
	set -a; . /etc/default/playlet; set +a
	line=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/playlet.service)
	setsid sh -c 'echo $$ >/run/playlet.pid; exec '"$line" >>/var/log/playlet.log 2>&1 </dev/null &
}
[ "$1" != --no-block ] || shift
case "$1" in
enable) start ;;
try-restart) if alive; then stop; start; fi ;;
disable) stop ;;
daemon-reload) ;;
*) exit 1 ;;
esac
`

// packed makes the .deb of a version, and gives its path on the machine.
func (m *newcomer) packed(version string) string {
	m.t.Helper()
	const dir = "/srv/debs"
	cmd := exec.Command("go", "run", "./.ci/package", "-arch", goarch, "-version", version, "-out", m.path(dir))
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOSUMDB=off", "GOPROXY=file://"+outside(m.t, "go", "env", "GOMODCACHE")+"/cache/download")
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return dir + "/playlet_" + strings.TrimPrefix(version, "v") + "_" + goarch + ".deb"
}

// A package is installed on a fresh Debian, upgraded, removed and purged while pods run: not one of their processes ends.
func TestThePackageWhilePodsRun(t *testing.T) {
	leavesNothing(t)
	m := startNewcomer(t)
	one, two := m.packed("v1.0.0"), m.packed("v1.1.0")
	n := m.startContainerd()
	m.write("/usr/bin/systemctl", systemctl)
	must(t, os.Chmod(m.path("/usr/bin/systemctl"), 0o755))
	m.runs("mkdir -p /run/systemd/system", 0)
	t.Cleanup(func() { // an agent that a failed test leaves
		_, err := m.shell(context.WithoutCancel(t.Context()), "systemctl disable").Output()
		must(t, err)
	})
	m.write("/etc/hosts", "127.0.0.1 localhost\n") // containerd copies it for pods
	web := "/etc/kubernetes/manifests/web.yaml"
	m.write(web, helloManifest("web", n.registry.Ref("hello")))
	mine := configuration(settings + "staticPodPath: /etc/kubernetes/manifests")

	m.runs("! update-alternatives --list kubelet && ! test -e /usr/bin/kubelet", 0)
	m.runs("dpkg -i "+one, 0)
	if out := m.runs("update-alternatives --list kubelet && kubelet --version", 0); !regexp.MustCompile(
		`^/usr/bin/playlet\nKubernetes v1\.36\.3\+playlet-v1\.0\.0\n$`).MatchString(out) {
		t.Errorf("as a kubelet it is %q", out)
	}
	if out := m.runs("stat -c %a /etc/playlet/config.yaml", 0); out != "600\n" {
		t.Errorf("the configuration has the mode %s", out)
	}
	m.write("/etc/playlet/config.yaml", mine)
	m.runs("systemctl enable --now playlet.service", 0)
	const running = "web-node0 +1/1 +Running +0 "
	m.until("playlet pods", running)
	tasks := func() string { return m.runs("ctr -n k8s.io tasks list | sort", 0) }
	before, agent := tasks(), m.runs("cat /run/playlet.pid", 0)
	if strings.Count(before, "RUNNING") != 2 { // the sandbox's and the container's
		t.Fatalf("there runs\n%s", before)
	}
	undisturbed := func(after string) {
		t.Helper()
		if now := tasks(); now != before {
			t.Errorf("after %s there runs\n%s\nand before\n%s", after, now, before)
		}
	}

	m.runs("dpkg -i "+two, 0)
	m.until("playlet --version", "1.1.0")
	m.until("playlet pods", running)
	if now := m.runs("cat /run/playlet.pid", 0); now == agent {
		t.Error("the agent is that of before the upgrade")
	}
	undisturbed("the upgrade")
	if text, err := os.ReadFile(m.path("/etc/playlet/config.yaml")); err != nil || string(text) != mine {
		t.Errorf("the upgrade has made of the configuration %q, %v", text, err)
	}

	const object = "/etc/playlet/objects/mine.yaml"
	m.write(object, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine}\n")
	m.runs("dpkg -r playlet", 0)
	m.runs("test ! -e /usr/bin/playlet && test -e /etc/playlet/config.yaml && ! readlink /proc/$(cat /run/playlet.pid)/exe", 0)
	m.runs("! update-alternatives --list kubelet && ! test -e /usr/bin/kubelet && ! test -e /usr/lib/systemd/system/kubelet.service", 0)
	undisturbed("the removal")
	m.runs("dpkg -P playlet", 0)
	m.runs("test -e "+object+" && test ! -e /etc/playlet/config.yaml && test ! -e /etc/default/playlet", 0)
	undisturbed("the purge")

	m.runs("dpkg -i "+two, 0) // it finds the pod, and ends it
	m.write("/etc/playlet/config.yaml", mine)
	m.runs("systemctl enable --now playlet.service", 0)
	m.until("playlet pods", running)
	undisturbed("another installation")
	must(t, os.Remove(m.path(web)))
	m.until("playlet pods -o name", "^$")
	m.runs("dpkg -P playlet", 0)
	if log := m.runs("cat /systemctl.log", 0); !strings.Contains(log, "--no-block try-restart playlet.service") ||
		strings.Count(log, "disable --now playlet.service") != 2 {
		t.Errorf("systemctl was called so:\n%s", log)
	}
}
