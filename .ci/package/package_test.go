package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// made packs this test's own program, which stands for playlet: what is in the packages does not depend on it.
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
	t.Chdir("../..") // where the licence is
	if err := errors.Join(p.make(t.Context()), checksums(out)); err != nil {
		t.Fatal(err)
	}
	return p
}

// The .deb, installed by dpkg into a root of its own, has everything in its place and as private as it is to be.
func TestADebIsInstalled(t *testing.T) {
	for _, program := range []string{"dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs", program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("dpkg installs as root")
	}
	out, root := t.TempDir(), t.TempDir()
	made(t, out)
	deb := filepath.Join(out, "playlet_1.2.3_amd64.deb")
	dpkg := func(args ...string) string {
		t.Helper()
		text, err := exec.CommandContext(t.Context(), "dpkg", append([]string{"--root=" + root, "--force-script-chrootless",
			"--force-architecture"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("dpkg %v: %v\n%s", args, err, text)
		}
		return string(text)
	}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
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
	dpkg("-P", "playlet") // the administrator's objects are no files of the package
	there(map[string]fs.FileMode{"etc/playlet/config.yaml": 0, "etc/default/playlet": 0, "etc/playlet/objects/mine.yaml": 0o600})
	if err := os.Remove(object); err != nil {
		t.Fatal(err)
	}
	dpkg("-i", deb)
	dpkg("-P", "playlet")
	there(map[string]fs.FileMode{"etc/playlet": 0})
}

// A failing script blocks apt. If systemd fails every request, e.g. because the agent does not become ready, the scripts still
// succeed, and none waits for the agent.
func TestScripts_SystemdFails(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it mounts a /run of its own, and needs root")
	}
	bin, asked := t.TempDir(), filepath.Join(t.TempDir(), "asked")
	fake := "#!/bin/sh\necho \"$*\" >>" + asked + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(fake), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, script, arg, want string }{
		{"postinst", afterInstall, "configure", "daemon-reload\n"},
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
	if !strings.Contains(afterInstall, "systemctl --no-block try-restart playlet.service") {
		t.Error("postinst waits for the agent to become ready")
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
