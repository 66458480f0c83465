package programs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/progress"
)

// fakeAPT puts an apt-get before all others: it notes its arguments, and runs the script.
func fakeAPT(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	program(t, filepath.Join(dir, "apt-get"), `echo "$@" >>`+dir+"/calls\n"+script)
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return dir
}

// lacking finds nothing until the file is there.
func lacking(file string) func() (Programs, error) {
	return func() (Programs, error) {
		if there(file) {
			return Programs{Containerd: file}, nil
		}
		return places{}.find()
	}
}

const (
	downloadArgs = "-q -o DPkg::Lock::Timeout=120 download containerd runc containernetworking-plugins busybox-static\n"
	installArgs  = "-q -o DPkg::Lock::Timeout=120 install -y --no-install-recommends --no-remove iptables\n"
)

// Missing packages are downloaded and unpacked, so that none of their services starts. Only iptables is installed, since its
// libraries must be in their usual folders.
func TestWhatIsMissingIsDownloaded(t *testing.T) {
	dir := fakeAPT(t, `top=$(dirname $0)
case "$*" in
*update) touch $top/lists;;
*download*) test -e $top/lists || exit 100; for p in containerd runc containernetworking-plugins busybox-static; do echo $p >${p}_1%3a2_all.deb; done;;
*install*) touch $top/iptables;;
esac`)
	program(t, dir+"/dpkg-deb", `test "$1" = -x && mkdir -p $3/usr/bin && cp $2 $3/usr/bin/unpacked`)
	cache := filepath.Join(t.TempDir(), "playlet")
	t.Setenv("PLAYLET_CACHE", cache)
	var out strings.Builder
	found, err := provide(t.Context(), lacking(dir+"/iptables"), true, progress.New(&out))
	if err != nil || found.Containerd != dir+"/iptables" {
		t.Errorf("%+v, %v", found, err)
	}
	if got := read(t, dir+"/calls"); got != downloadArgs+"-q -o DPkg::Lock::Timeout=120 update\n"+downloadArgs+installArgs {
		t.Errorf("apt-get was called so:\n%s", got)
	}
	for _, name := range []string{"containerd", "runc", "containernetworking-plugins", "busybox-static"} {
		if got := read(t, cache+"/parts/debian-"+name+"_1%3a2_all/usr/bin/unpacked"); got != name+"\n" {
			t.Errorf("%s was unpacked as %q", name, got)
		}
	}
	if left := read(t, dir+"/calls"); there(cache+"/debs") || strings.Contains(left, "install -y containerd") {
		t.Error("the packages' files are still there")
	}
	for _, want := range []string{
		"Debian packages that are missing here are unpacked into " + cache + "/parts, and stay there: " +
			"containerd runc containernetworking-plugins busybox-static\n",
		"A Debian package that is missing here is installed, and stays: iptables\n",
		"(to remove it: apt-get purge iptables)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %q, without %q", out.String(), want)
		}
	}
	must(t, os.Remove(dir+"/calls"))
	if _, err := provide(t.Context(), lacking(dir+"/iptables"), true, progress.New(&out)); err != nil || there(dir+"/calls") {
		t.Errorf("what is there is downloaded: %v", err)
	}
}

func TestWithoutInstallItIsOnlyNamed(t *testing.T) {
	dir := fakeAPT(t, "exit 0")
	var out strings.Builder
	_, err := provide(t.Context(), func() (Programs, error) { return places{programs: []string{"/nowhere"}}.find() }, false,
		progress.New(&out))
	var missing *MissingError
	if !errors.As(err, &missing) || there(dir+"/calls") ||
		!strings.Contains(out.String(), "looked for containerd, containerd-shim-runc-v2, runc, iptables, static busybox in /nowhere\n") {
		t.Errorf("%v; it says %q", err, out.String())
	}
}

// A machine that has all but the sample's shell is fit.
func TestTheShellCanBeDoneWithout(t *testing.T) {
	top := t.TempDir()
	p := places{[]string{installed(t, top, "containerd", "containerd-shim-runc-v2", "runc", "iptables")},
		[]string{installed(t, top+"/cni", cniPlugins...)}}
	var out strings.Builder
	found, err := provide(t.Context(), p.find, false, progress.New(&out))
	if err != nil || found.Containerd == "" || !strings.Contains(out.String(), "the sample pod gets no shell") {
		t.Errorf("%+v, %v; it says %q", found, err, out.String())
	}
}

func TestFailuresOfDownloadingAreReported(t *testing.T) {
	t.Setenv("PLAYLET_CACHE", t.TempDir())
	dir := fakeAPT(t, `echo "E: Unable to locate package" >&2; exit 100`)
	var out strings.Builder
	_, err := provide(t.Context(), lacking(dir+"/containerd"), true, progress.New(&out))
	if err == nil || !strings.Contains(err.Error(), "update: exit status 100: E: Unable to locate package") {
		t.Errorf("%v", err)
	}
	fakeAPT(t, "exit 0") // without effect
	if _, err := provide(t.Context(), lacking("/nowhere"), true, progress.New(&out)); err == nil ||
		!strings.HasPrefix(err.Error(), "apt-get has not downloaded containerd into ") {
		t.Errorf("%v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := provide(t.Context(), lacking("/nowhere"), true, progress.New(&out)); err == nil ||
		!strings.Contains(err.Error(), "there is no apt-get on this machine") {
		t.Errorf("%v", err)
	}
}

// apt-get is asked to end, and not begun again.
func TestDownloadingIsInterrupted(t *testing.T) {
	dir := fakeAPT(t, `trap 'echo asked >>$(dirname $0)/calls; exit 1' INT; touch $(dirname $0)/runs; while :; do sleep 0.02; done`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for !there(dir+"/runs") && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if err := supply(ctx, []string{"containerd"}, t.TempDir()+"/parts", progress.New(io.Discard)); err == nil {
		t.Error("it has downloaded")
	}
	if got := read(t, dir+"/calls"); !strings.HasSuffix(got, "containerd\nasked\n") || strings.Contains(got, "update") {
		t.Errorf("apt-get was called so:\n%s", got)
	}
}
