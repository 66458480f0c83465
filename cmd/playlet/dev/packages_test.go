package dev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

const installArgs = "-q -o DPkg::Lock::Timeout=120 install -y --no-install-recommends --no-remove containerd runc iptables containernetworking-plugins\n"

func TestWhatIsMissingIsInstalled(t *testing.T) {
	dir := fakeAPT(t, `case "$*" in *update) touch $(dirname $0)/lists;; *) test -e $(dirname $0)/lists && touch $(dirname $0)/containerd;; esac`)
	var out buffer
	found, err := provide(t.Context(), lacking(dir+"/containerd"), true, NewProgress(&out))
	if err != nil || found.Containerd != dir+"/containerd" {
		t.Errorf("%+v, %v", found, err)
	}
	if got := read(t, dir+"/calls"); got != installArgs+"-q -o DPkg::Lock::Timeout=120 update\n"+installArgs {
		t.Errorf("apt-get was called so:\n%s", got)
	}
	for _, want := range []string{
		"Debian packages that are missing here are installed, and stay: containerd runc iptables containernetworking-plugins\n",
		"(to remove them: apt-get purge containerd runc iptables containernetworking-plugins)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %q, without %q", out.String(), want)
		}
	}
	must(t, os.Remove(dir+"/calls"))
	if _, err := provide(t.Context(), lacking(dir+"/containerd"), true, NewProgress(&out)); err != nil || there(dir+"/calls") {
		t.Errorf("what is there is installed: %v", err)
	}
}

func TestWithoutInstallItIsOnlyNamed(t *testing.T) {
	dir := fakeAPT(t, "exit 0")
	var out buffer
	_, err := provide(t.Context(), func() (Programs, error) { return places{programs: []string{"/nowhere"}}.find() }, false,
		NewProgress(&out))
	var missing *Missing
	if !errors.As(err, &missing) || there(dir+"/calls") ||
		!strings.Contains(out.String(), "looked for containerd, containerd-shim-runc-v2, runc, iptables in /nowhere\n") {
		t.Errorf("%v; it says %q", err, out.String())
	}
}

func TestFailuresOfInstallingAreTold(t *testing.T) {
	dir := fakeAPT(t, `echo "E: Unable to locate package" >&2; exit 100`)
	var out buffer
	_, err := provide(t.Context(), lacking(dir+"/containerd"), true, NewProgress(&out))
	if err == nil || !strings.Contains(err.Error(), "update: exit status 100: E: Unable to locate package") {
		t.Errorf("%v", err)
	}
	fakeAPT(t, "exit 0") // without effect
	if _, err := provide(t.Context(), lacking("/nowhere"), true, NewProgress(&out)); err == nil ||
		!strings.HasPrefix(err.Error(), "missing: ") {
		t.Errorf("%v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := provide(t.Context(), lacking("/nowhere"), true, NewProgress(&out)); err == nil ||
		!strings.Contains(err.Error(), "there is no apt-get on this machine") {
		t.Errorf("%v", err)
	}
}

// apt-get is asked to end, and not begun again.
func TestInstallingIsInterrupted(t *testing.T) {
	dir := fakeAPT(t, `trap 'echo asked >>$(dirname $0)/calls; exit 1' INT; touch $(dirname $0)/runs; while :; do sleep 0.02; done`)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for !there(dir+"/runs") && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if err := install(ctx, []string{"containerd"}); err == nil {
		t.Error("it has installed")
	}
	if got := read(t, dir+"/calls"); !strings.HasSuffix(got, "containerd\nasked\n") || strings.Contains(got, "update") {
		t.Errorf("apt-get was called so:\n%s", got)
	}
}
