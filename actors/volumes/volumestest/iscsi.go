package volumestest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FakeISCSI is a fake of open-iscsi and of the kernel's view of sessions. Its iscsiadm is first on PATH.
type FakeISCSI struct {
	Root  string // the folder with the folders sys and etc/iscsi
	calls string
}

// iscsiadm is a script of the shell. It finds its folder by its own path. A file fail has lines: a part of the arguments, and the
// exit code.
const iscsiadm = `#!/bin/sh
root=$(dirname "$(dirname "$0")")
echo "$@" >>"$root/calls"
if [ -e "$root/fail" ]; then
	while read -r code part; do case "$*" in *"$part"*) echo "iscsiadm: fails" >&2; exit "$code";; esac; done <"$root/fail"
fi
all="$*"
while [ $# -gt 0 ]; do
	case "$1" in
	-T) target=$2; shift;; -p) portal=$2; shift;; -I) iface=$2; shift;; -r) id=$2; shift;;
	esac
	shift
done
host=${portal%:*}; port=${portal##*:}
record=$root/etc/iscsi/nodes/$target/$host,$port
class=$root/sys/class
case "$all" in
"-m node "*"-o new"|"-m node "*"-o update "*)
	mkdir -p "$(dirname "$record")"
	[ -e "$record" ] || printf 'node.session.auth.authmethod = None\n# END RECORD\n' >"$record";;
"-m node "*"-o delete") [ -e "$record" ] || exit 21; rm "$record";;
"-m node "*--login)
	id=1; while [ -e "$class/iscsi_session/session$id" ]; do id=$((id+1)); done
	device=$root/sys/devices/host$id/session$id
	mkdir -p "$class/iscsi_session/session$id" "$class/iscsi_connection/connection$id:0" "$device" "$class/scsi_host/host$id"
	: >>"$class/scsi_host/host$id/scan"
	cd "$class/iscsi_session/session$id"
	ln -s "$device" device
	echo "$target" >targetname; echo "$iface" >ifacename; echo LOGGED_IN >state
	echo "$host" >"../../iscsi_connection/connection$id:0/persistent_address"
	echo "$port" >"../../iscsi_connection/connection$id:0/persistent_port"
	for unit in "$root"/units/*; do
		[ -e "$unit" ] || continue
		name=$(cat "$unit"); disk=$device/target$id:0:0/$id:0:0:${unit##*/}/block/$name
		mkdir -p "$disk/device"; : >"$disk/device/delete"
	done;;
"-m session "*-u)
	[ -e "$class/iscsi_session/session$id" ] || exit 21
	mkdir "$root/ended$$"
	mv "$class/iscsi_session/session$id" "$class/iscsi_connection/connection$id:0" "$root/sys/devices/host$id" "$root/ended$$";;
"-m iface "*"-o show") printf 'iface.iscsi_ifacename = default\niface.transport_name = tcp\niface.hwaddress = <empty>\n';;
esac
`

// NewFakeISCSI returns a fake without sessions and without disks. The test cannot be a parallel one.
func NewFakeISCSI(t *testing.T) FakeISCSI {
	t.Helper()
	root := t.TempDir()
	f := FakeISCSI{Root: root, calls: filepath.Join(root, "calls")}
	for _, folder := range []string{"bin", "units", "sys/class/iscsi_session"} {
		must(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(root, "bin/iscsiadm"), []byte(iscsiadm), 0o755)) //nolint:gosec // a program is executable
	t.Setenv("PATH", filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	return f
}

// AddUnit gives all targets a logical unit, from the next login on: a device of this machine.
func (f FakeISCSI) AddUnit(t *testing.T, lun, device string) {
	t.Helper()
	name := filepath.Base(device)
	number, err := os.ReadFile(filepath.Join("/sys/class/block", name, "dev"))
	must(t, err)
	folder := filepath.Join(f.Root, "sys/class/block", name)
	must(t, os.MkdirAll(folder, 0o755))
	must(t, os.WriteFile(filepath.Join(folder, "dev"), number, 0o600))
	must(t, os.WriteFile(filepath.Join(f.Root, "units", lun), []byte(name+"\n"), 0o600))
}

// Fail makes iscsiadm fail from now on: lines with an exit code and a part of the arguments. An empty text ends that.
func (f FakeISCSI) Fail(t *testing.T, lines string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(f.Root, "fail"), []byte(lines), 0o600))
}

// Calls returns the arguments of all calls of iscsiadm.
func (f FakeISCSI) Calls(t *testing.T) []string {
	t.Helper()
	return CallsOf(t, f.calls)
}

// Count returns the number of calls whose arguments end with a text, e.g. "--login", or "-u" for a logout.
func (f FakeISCSI) Count(t *testing.T, end string) (n int) {
	t.Helper()
	for _, call := range f.Calls(t) {
		if strings.HasSuffix(call, end) {
			n++
		}
	}
	return n
}

// Sessions returns the number of sessions.
func (f FakeISCSI) Sessions(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.Root, "sys/class/iscsi_session"))
	must(t, err)
	return len(entries)
}
