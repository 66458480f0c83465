package programs

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/devimages"
)

// installed makes programs in a folder.
func installed(t *testing.T, dir string, names ...string) string {
	t.Helper()
	for _, name := range names {
		program(t, filepath.Join(dir, name), "exit 0")
	}
	return dir
}

// busybox is a static program, and no more of a busybox than its name.
func busybox(t *testing.T, dir string) string {
	t.Helper()
	elf, err := devimages.Binary(devimages.Hello, runtime.GOARCH)
	must(t, err)
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "busybox"), elf, 0o755))
	return filepath.Join(dir, "busybox")
}

func TestPrograms_FirstPlaceWins(t *testing.T) {
	top := t.TempDir()
	in := func(name string) string { return filepath.Join(top, name) }
	installed(t, in("new"), "containerd", "containerd-shim-runc-v2")
	installed(t, in("old"), "containerd", "containerd-shim-runc-v2", "runc", "iptables")
	installed(t, in("some"), "bridge", "loopback")
	installed(t, in("all"), cniPlugins...)
	installed(t, in("new"), "busybox") // none: a script
	busybox(t, in("old"))
	must(t, os.Mkdir(in("first"), 0o755))
	write(t, in("first/runc"), "not executable")
	must(t, os.MkdirAll(in("first/iptables"), 0o755)) // a folder of that name
	p := places{[]string{in("first"), in("new"), in("old")}, []string{in("first"), in("some"), in("all")}}
	got, err := p.find()
	want := Programs{in("new/containerd"), in("new/containerd-shim-runc-v2"), in("old/runc"), in("all"), in("old/iptables"), in("old/busybox")}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	// The shim belongs to the containerd that was found, even if another one comes first.
	installed(t, in("first"), "containerd-shim-runc-v2")
	if got, err := p.find(); err != nil || got.Shim != want.Shim {
		t.Errorf("the shim is %s, %v", got.Shim, err)
	}
}

func TestWhatIsMissingIsNamedWithItsPackages(t *testing.T) {
	top := t.TempDir()
	p := places{[]string{installed(t, top, "runc")}, []string{installed(t, filepath.Join(top, "cni"), "bridge", "host-local",
		"loopback")}}
	_, err := p.find()
	var missing *MissingError
	if !errors.As(err, &missing) {
		t.Fatal(err)
	}
	const want = "missing: containerd, containerd-shim-runc-v2, iptables, CNI plugins portmap, static busybox. " +
		"To have it downloaded: playlet dev --install; to install it: " +
		"apt-get install containerd iptables containernetworking-plugins busybox-static"
	if err.Error() != want {
		t.Errorf("%s", err)
	}
	lines := []string{"looked for containerd, containerd-shim-runc-v2, iptables, static busybox in " + top, "looked for CNI plugins portmap in " +
		top + "/cni"}
	if got := missing.Lines(); !slices.Equal(got, lines) {
		t.Errorf("%q", got)
	}
	if _, err := (places{}).find(); err == nil || !strings.Contains(err.Error(),
		"containerd runc iptables containernetworking-plugins") {
		t.Errorf("with nothing at all: %v", err)
	}
}

// Debian's package busybox has one that needs the C library, which is not in the sample's image.
func TestABusyboxWithLibrariesIsNone(t *testing.T) {
	dynamic := Find("sh", []string{"/bin", "/usr/bin"})
	if dynamic == "" {
		t.Skip("there is no shell here")
	}
	dir := t.TempDir()
	must(t, os.Symlink(dynamic, filepath.Join(dir, "busybox")))
	if got := staticBusybox([]string{dir}); got != "" {
		t.Errorf("%s is a static busybox", got)
	}
	if got, want := staticBusybox([]string{dir, filepath.Dir(busybox(t, dir+"/static"))}), dir+"/static/busybox"; got != want {
		t.Errorf("it has found %q, want %s", got, want)
	}
}

func TestUsualPlaces(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("PLAYLET_CACHE", cache)
	t.Setenv("PATH", "/a:relative:/b::/a/")
	t.Setenv("CNI_PATH", "/plugins")
	for _, dir := range []string{"debian-12-containerd-1.6.20", "containerd-v2.4.2", "containerd-v2.10.0", "unfinished-7",
		"runc-v1.5.2"} {
		must(t, os.MkdirAll(filepath.Join(cache, "parts", dir), 0o755))
	}
	write(t, filepath.Join(cache, "parts/lock"), "")
	p := usualPlaces([]string{"/first/../mine"})
	if want := []string{"/mine", "/a", "/b", "/usr/local/sbin"}; !slices.Equal(p.programs[:4], want) {
		t.Errorf("programs begin with %q", p.programs)
	}
	if want := []string{"/mine", "/plugins", "/usr/lib/cni", "/opt/cni/bin"}; !slices.Equal(p.plugins[:4], want) {
		t.Errorf("plugins begin with %q", p.plugins)
	}
	at := func(name string) int { return slices.Index(p.programs, filepath.Join(cache, "parts", name)) }
	order := []int{slices.Index(p.programs, "/usr/bin"), at("containerd-v2.10.0"), at("containerd-v2.4.2"),
		at("debian-12-containerd-1.6.20/usr/bin")}
	if !slices.IsSorted(order) || slices.Contains(order, -1) || at("unfinished-7") >= 0 || at("lock") >= 0 {
		t.Errorf("programs are %q", p.programs)
	}
	if !slices.Contains(p.plugins, filepath.Join(cache, "parts/debian-12-containerd-1.6.20/usr/lib/cni")) {
		t.Errorf("plugins are %q", p.plugins)
	}
	t.Setenv("PLAYLET_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "/cache")
	if got := partsCache(); got != "/cache/playlet/parts" {
		t.Errorf("parts are in %s", got)
	}
}

func TestContainerdVersion(t *testing.T) {
	for out, want := range map[string]Version{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n": {1, 6, "1.6.20~ds1"},
		"containerd github.com/containerd/containerd/v2 v2.4.2 \n":                      {2, 4, "2.4.2"},
		"containerd containerd.io v2.10.0-rc.1 abc":                                     {2, 10, "2.10.0-rc.1"},
	} {
		if got, err := parseContainerdVersion(out); err != nil || got != want {
			t.Errorf("%q: %+v, %v", out, got, err)
		}
	}
	dir := t.TempDir()
	program(t, dir+"/silent", "true")
	program(t, dir+"/broken", "echo no library >&2; exit 127")
	program(t, dir+"/good", `echo "containerd x v2.4.2"`)
	for name, want := range map[string]string{"silent": `no version in ""`, "broken": "no library", "nowhere": "no such file"} {
		if _, err := ContainerdVersion(t.Context(), dir+"/"+name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := ContainerdVersion(t.Context(), dir+"/good"); err != nil || v.Major != 2 {
		t.Errorf("%+v, %v", v, err)
	}
}
