package volumestest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/nfs"
)

// NFSVolume returns a folder of a server as a volume.
func NFSVolume(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "nas.test", Path: "/data"}}}
}

// FakeMountNFS makes m run a script of the shell in place of mount.nfs, after it has appended its arguments to the returned
// file. The function mounts of the script mounts a file system of memory.
func FakeMountNFS(t testing.TB, m *nfs.Mounter, script string) (calls string) {
	t.Helper()
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	m.Program, m.FileSystems = filepath.Join(dir, "mount.nfs"), []string{"tmpfs"}
	must(t, os.WriteFile(m.Program, []byte( //nolint:gosec // a program has to be executable
		"#!/bin/sh\necho \"$@\" >>"+calls+
			"\nmounts() { mount -n -t tmpfs -o ${4:-rw} \"$1\" \"$2\"; }\n"+script+"\n"), 0o755))
	return calls
}

// CallsOf returns the lines of a file that FakeMountNFS returned.
func CallsOf(t testing.TB, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	must(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
