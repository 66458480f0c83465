package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/config/systemd"
)

// made packs this test's own program instead of playlet: the content of the packages does not depend on it.
func made(t *testing.T, out string) pack {
	t.Helper()
	docs := t.TempDir()
	if err := os.Mkdir(filepath.Join(docs, "man"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"man/playlet.1", "bash", "zsh", "fish"} {
		if err := os.WriteFile(filepath.Join(docs, name), []byte("of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := pack{arch: "amd64", version: "v1.2.3", binary: self, docs: docs, out: out, at: time.Unix(1700000000, 0).UTC()}
	t.Chdir("../..") // for the licence
	if err := errors.Join(p.make(t.Context()), checksums(out)); err != nil {
		t.Fatal(err)
	}
	return p
}

// The .deb, installed by dpkg into a root of its own, puts every file in its place with its permissions.
func TestADebIsInstalled(t *testing.T) {
	for _, program := range []string{"dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("dpkg installs as root")
	}
	out, root := t.TempDir(), newRoot(t)
	made(t, out)
	deb := filepath.Join(out, "playlet_1.2.3_amd64.deb")
	dpkg := func(args ...string) { dpkg(t, root, args...) }
	there := func(want map[string]fs.FileMode) {
		t.Helper()
		for path, mode := range want {
			info, err := os.Stat(filepath.Join(root, path))
			switch {
			case mode == 0 && !errors.Is(err, fs.ErrNotExist):
				t.Errorf("%s is left (%v)", path, err)
			case mode != 0 && (err != nil || info.Mode().Perm() != mode):
				t.Errorf("%s: %v %v, want %v", path, info, err, mode)
			}
		}
	}
	dpkg("-i", deb)
	there(map[string]fs.FileMode{
		"usr/bin/playlet": 0o755, "usr/lib/systemd/system/playlet.service": 0o644, "etc/playlet/config.yaml": 0o600,
		"etc/playlet/objects": 0o700, "etc/default/playlet": 0o644, "usr/share/man/man1/playlet.1": 0o644,
		"usr/share/bash-completion/completions/playlet": 0o644, "usr/share/doc/playlet/copyright": 0o644,
	})
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/playlet.service"))
	if err != nil || !strings.Contains(string(unit), "ExecStart=/usr/bin/playlet --config=/etc/playlet/config.yaml $PLAYLET_ARGS\n") {
		t.Errorf("%v\n%s", err, unit)
	}
	config := filepath.Join(root, "etc/playlet/config.yaml")
	if err := os.WriteFile(config, []byte("# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("-i", deb) // as an upgrade does
	if text, err := os.ReadFile(config); err != nil || string(text) != "# mine\n" {
		t.Errorf("an upgrade has made of the configuration %q %v", text, err)
	}
	object := filepath.Join(root, "etc/playlet/objects/mine.yaml")
	if err := os.WriteFile(object, []byte("kind: Secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("-r", "playlet")
	there(map[string]fs.FileMode{"usr/bin/playlet": 0, "usr/share/man/man1/playlet.1": 0, "etc/playlet/config.yaml": 0o600})
	dpkg("-P", "playlet") // the administrator's objects do not belong to the package
	there(map[string]fs.FileMode{"etc/playlet/config.yaml": 0, "etc/default/playlet": 0, "etc/playlet/objects/mine.yaml": 0o600})
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	dpkg("-i", deb)
	dpkg("-P", "playlet")
	there(map[string]fs.FileMode{"etc/playlet": 0})
}

// newRoot returns the root of a machine without packages. Scripts of packages find it in DPKG_ROOT.
func newRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(root, "var/log"), 0o700), os.MkdirAll(filepath.Join(root, "etc/alternatives"), 0o700))
	for _, dir := range []string{"info", "updates", "alternatives"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o700))
	}
	if err := errors.Join(err, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return root
}

func dpkg(t *testing.T, root string, args ...string) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "dpkg", append([]string{"--root=" + root, "--force-script-chrootless",
		"--force-architecture"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("dpkg %v: %v\n%s", args, err, text)
	}
}

const (
	kubeletsUnit = "usr/lib/systemd/system/kubelet.service"
	takeoverFile = "etc/systemd/system/kubelet.service.d/90-playlet.conf"
)

// kubeletOf returns the kubelet of a root: "playlet", "kubelet", "" without one, or another string.
func kubeletOf(t *testing.T, root string) string {
	t.Helper()
	target, _ := os.Readlink(filepath.Join(root, "usr/bin/kubelet"))
	alternative, _ := os.Readlink(filepath.Join(root, "etc/alternatives/kubelet"))
	program, _ := os.ReadFile(filepath.Join(root, "usr/bin/kubelet"))
	unit, _ := os.ReadFile(filepath.Join(root, kubeletsUnit))
	text, err := exec.CommandContext(t.Context(), "update-alternatives", "--root", root, "--list", "kubelet").Output()
	if target == "" && alternative != "" {
		alternative = "" // a file of a package prevents the link
	}
	switch state := []string{target, alternative, string(program), string(unit)}; {
	case slices.Equal(state, []string{"/etc/alternatives/kubelet", "/usr/bin/playlet", "", systemd.ForKubeadm()}) && err == nil &&
		string(text) == "/usr/bin/playlet\n":
		return "playlet"
	case slices.Equal(state, []string{"", "", "real", "real"}):
		return "kubelet"
	case slices.Equal(state, []string{"", "", "", ""}) && err != nil:
		return ""
	default:
		return fmt.Sprintf("%q, alternatives %q %v", state, text, err)
	}
}

// kubeletDeb builds a package with the files of a kubelet.
func kubeletDeb(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"usr/bin/kubelet": "real", kubeletsUnit: "real", "DEBIAN/control": "Package: kubelet\n" +
		"Version: 1.36.3-1.1\nArchitecture: all\nMaintainer: nobody\nDescription: a kubelet\n"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := exec.CommandContext(t.Context(), "dpkg-deb", "-b", dir, dir+".deb").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return dir + ".deb"
}

// The package provides the kubelet on a machine that has none, as kubeadm expects it, and leaves another package's kubelet alone.
func TestDeb_IsAKubeletWhereThereIsNone(t *testing.T) {
	for _, program := range []string{"dpkg", "dpkg-deb", "update-alternatives"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("dpkg installs as root")
	}
	out, root, real := t.TempDir(), newRoot(t), kubeletDeb(t)
	made(t, out)
	deb := filepath.Join(out, "playlet_1.2.3_amd64.deb")
	takeover := filepath.Join(root, takeoverFile)
	for i, step := range []struct {
		args []string
		want string
	}{
		{[]string{"-i", deb}, "playlet"},
		{[]string{"-i", deb}, "playlet"}, // an upgrade
		{[]string{"-i", real}, "kubelet"},
		{[]string{"-i", deb}, "kubelet"},
		{[]string{"-P", "kubelet"}, "playlet"},
		{[]string{"-r", "playlet"}, ""},
		{[]string{"-P", "playlet"}, ""},
		{[]string{"-i", real}, "kubelet"},
		{[]string{"-i", deb}, "kubelet"},
		{[]string{"-P", "playlet"}, "kubelet"},
		{[]string{"-i", deb}, "kubelet"},
		{[]string{"-P", "kubelet"}, "playlet"},
		{[]string{"-P", "playlet"}, ""},
	} {
		if step.want == "kubelet" { // taken over by: playlet install --replace-kubelet --binary=/usr/bin/playlet
			text := "[Service]\nExecStart=\nExecStart=/usr/bin/playlet" + []string{"", " $KUBELET_CONFIG_ARGS"}[i%2] + "\n"
			if err := errors.Join(os.MkdirAll(filepath.Dir(takeover), 0o755), os.WriteFile(takeover, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		dpkg(t, root, step.args...)
		if got := kubeletOf(t, root); got != step.want {
			t.Fatalf("step %d, dpkg %s: the kubelet is %s, want %s", i, strings.Join(step.args, " "), got, step.want)
		}
		if _, err := os.Stat(takeover); slices.Equal(step.args, []string{"-P", "playlet"}) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("step %d: the node was not given back: %v", i, err)
		}
	}
}

// A kubelet of the administrator is neither replaced nor, when the package is removed, stopped.
func TestDeb_LeavesTheAdministratorsKubeletAlone(t *testing.T) {
	if _, err := exec.LookPath("update-alternatives"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs update-alternatives and root:", err)
	}
	const unit = "etc/systemd/system/kubelet.service"
	for name, files := range map[string]map[string]string{
		"a link":                 {"usr/bin/kubelet": "->/opt/bin/kubelet"},
		"a unit in /etc":         {unit: "[Service]\nExecStart=/usr/local/bin/kubelet \\\n  --v=2\n"},
		"a masked unit":          {unit: "->/dev/null"},
		"a link of the packages": {unit: "[Service]\nExecStart=/usr/local/bin/kubelet\n", "usr/bin/kubelet": "->/etc/alternatives/kubelet"},
	} {
		root := newRoot(t)
		files["usr/bin/playlet"], files[kubeletUnit], files[filepath.Dir(kubeletsUnit)+"/x"] = "", systemd.ForKubeadm(), ""
		for path, text := range files {
			path = filepath.Join(root, path)
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			if target, link := strings.CutPrefix(text, "->"); link {
				err = errors.Join(err, os.Symlink(target, path))
			} else {
				err = errors.Join(err, os.WriteFile(path, []byte(text), 0o755))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		before, _ := os.Readlink(filepath.Join(root, "usr/bin/kubelet"))
		for _, script := range []string{afterInstall, shared + "if linked; then exit 1; fi"} {
			cmd := exec.CommandContext(t.Context(), "sh", "-s", "configure")
			cmd.Stdin, cmd.Env = strings.NewReader(script), append(os.Environ(), "DPKG_ROOT="+root)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: the kubelet counts as the package's: %v: %s", name, err, text)
			}
		}
		if after, _ := os.Readlink(filepath.Join(root, "usr/bin/kubelet")); after != before {
			t.Errorf("%s: /usr/bin/kubelet was a link to %q, and is one to %q", name, before, after)
		}
		if _, err := os.Lstat(filepath.Join(root, kubeletsUnit)); err == nil {
			t.Errorf("%s: the package has put its unit in place", name)
		}
	}
}

// The scripts of the .rpm have the same effects with its arguments: the number of the package's instances after the operation.
func TestRPM_ScriptsAreThoseOfTheDeb(t *testing.T) {
	if _, err := exec.LookPath("update-alternatives"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs update-alternatives and root:", err)
	}
	root := newRoot(t)
	for path, text := range map[string]string{"usr/bin/playlet": "", kubeletUnit: systemd.ForKubeadm(), filepath.Dir(kubeletsUnit) + "/x": ""} {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct{ script, arg, want string }{
		{afterInstall, "1", "playlet"}, {afterInstall, "2", "playlet"}, {beforeRemove, "1", "playlet"}, {beforeRemove, "0", ""},
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-s", step.arg)
		cmd.Stdin, cmd.Env = strings.NewReader(step.script), append(os.Environ(), "DPKG_ROOT="+root)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("step %d: %v: %s", i, err, text)
		}
		if got := kubeletOf(t, root); got != step.want {
			t.Fatalf("step %d: the kubelet is %s, want %s", i, got, step.want)
		}
	}
}

// A failing script blocks apt. If systemd fails every request, e.g. because the agent does not become ready, and alternatives
// cannot be set, the scripts still succeed, and none waits for the agent.
func TestScripts_SystemdFails(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it mounts a /run of its own, and needs root")
	}
	bin, asked := t.TempDir(), filepath.Join(t.TempDir(), "asked")
	fake := "#!/bin/sh\necho \"$*\" >>" + asked + "\nexit 1\n"
	for name, text := range map[string]string{"systemctl": fake, "update-alternatives": "#!/bin/sh\nexit 2\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, script, arg, want string }{
		{"postinst", afterInstall, "configure", "daemon-reload\n--no-block try-restart playlet.service\n"},
		{"triggered postinst", afterInstall, "triggered", "daemon-reload\n"},
		{"prerm", beforeRemove, "remove", "disable --now playlet.service\n"},
		{"postrm", afterRemove, "remove", "daemon-reload\n"},
	} {
		_ = os.Remove(asked)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "mount --make-rprivate / && mount -t tmpfs tmpfs /run && "+
			"mkdir -p /run/systemd/system && exec sh -s "+c.arg)
		cmd.Stdin, cmd.Env = strings.NewReader(c.script), append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, out)
		}
		if text, err := os.ReadFile(asked); err != nil || string(text) != c.want {
			t.Errorf("%s asked systemd for %q, %v, want %q", c.name, text, err, c.want)
		}
	}
}

// The same commit gives the same bytes, and the checksums are of them.
func TestPackagesAreReproducible(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	t.Run("one", func(t *testing.T) { made(t, one) })
	t.Run("two", func(t *testing.T) { made(t, two) })
	sums, err := os.ReadFile(filepath.Join(one, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"deb", "rpm", "tar.gz", "cdx.json"} {
		name := "playlet_1.2.3_amd64." + kind
		a, errA := os.ReadFile(filepath.Join(one, name))
		b, errB := os.ReadFile(filepath.Join(two, name))
		if err := errors.Join(errA, errB); err != nil || len(a) == 0 || !bytes.Equal(a, b) {
			t.Errorf("%s: %d and %d bytes, %v", name, len(a), len(b), err)
		}
		sum := sha256.Sum256(a)
		if !strings.Contains(string(sums), hex.EncodeToString(sum[:])+"  "+name+"\n") {
			t.Errorf("%s is not in\n%s", name, sums)
		}
	}
	var bom struct{ Components []struct{ Name, PURL string } }
	text, err := os.ReadFile(filepath.Join(one, "playlet_1.2.3_amd64.cdx.json"))
	if err := errors.Join(err, json.Unmarshal(text, &bom)); err != nil || len(bom.Components) < 2 || bom.Components[0].Name != "std" ||
		!strings.Contains(string(text), `"purl": "pkg:golang/sigs.k8s.io/yaml@v`) {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestVersionsBeginWithADigit(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3-4-gabc": "1.2.3-4-gabc", "eed3c1f": "0.0.0~eed3c1f", "12345678": "0.0.0~12345678",
		"unknown": "0.0.0~unknown", "": "0.0.0~",
	} {
		if got := (pack{version: version}).number(); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
