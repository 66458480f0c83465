package volumes

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/nfs"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/cri"
)

var _ Operations = (*cri.Operations)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func exists(t testing.TB, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func write(t testing.TB, path string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, nil, 0o644))
}

func mode(t testing.TB, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Mode()
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func downwardVolume(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "in/name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}}}
}

// failure is a volume that could not be mounted.
type failure struct {
	volume, message string
	permanent       bool
}

func (o mountOutcome) failures() (out []failure) {
	for _, v := range o.volumes {
		if v.err != nil {
			out = append(out, failure{v.name, v.err.Error(), kinds.IsPermanent(v.err)})
		}
	}
	return out
}

func (o mountOutcome) paths() map[string]string {
	return state{}.after(o, time.Time{}).paths()
}

func newDisk(t testing.TB, list ...kinds.Plugin) disk {
	if list == nil {
		list = plugins(nil)
	}
	quiet := slog.New(slog.DiscardHandler)
	root := t.TempDir()
	t.Cleanup(func() { volumestest.UnmountBelow(t, root) })
	return disk{rootDir: root, plugins: list, ops: cri.NewOperations(), node: kinds.Facts{Log: quiet, NFS: &nfs.Mounter{}}, timeouts: defaultTimeouts}
}

func (d disk) pod(elements ...string) string {
	return filepath.Join(append([]string{d.rootDir, "pods"}, elements...)...)
}
