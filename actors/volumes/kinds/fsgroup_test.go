package kinds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/playlet-dev/playlet/actors/internal/linux/fusetest"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/cri/stall"
)

const testGroup = 4711

// ownedVolume is a volume with 3 folders of 1,000 files each, and a function that gives it to the group.
func ownedVolume(t *testing.T) (path string, own func(context.Context) error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("files are given to a group by root")
	}
	d := newDisk(t)
	pod := withGroup(volumestest.PodWith("u", volumestest.EmptyDirVolume("data")), testGroup)
	folder := VolumeFolder("example.org/remote", "pv")
	path = d.pod(filepath.Join("u", folder))
	for f := range 3 {
		dir := filepath.Join(path, fmt.Sprint("folder", f), "below")
		must(t, os.MkdirAll(dir, 0o700))
		for i := range 1000 {
			must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
		}
	}
	return path, func(ctx context.Context) error {
		return d.with(t, pod, func(_ Plugin, p Folder, _ *v1.Volume) error { return OwnVolume(ctx, p, folder, false) })
	}
}

// changes returns the time of the last change of each file, and checks its group and mode.
func changes(t *testing.T, path string) map[string]syscall.Timespec {
	t.Helper()
	out := map[string]syscall.Timespec{}
	must(t, filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		info, err2 := e.Info()
		must(t, errors.Join(err, err2))
		st, want := info.Sys().(*syscall.Stat_t), uint32(0o660)
		if e.IsDir() {
			want = 0o2770
		}
		if st.Gid != testGroup || st.Mode&want != want {
			t.Errorf("%s has group %d and mode %o, want %d and %o", name, st.Gid, st.Mode, testGroup, want)
		}
		out[name] = st.Ctim
		return nil
	}))
	return out
}

func TestOwnVolume_WritesOnlyWhatDiffers(t *testing.T) {
	path, own := ownedVolume(t)
	must(t, own(t.Context()))
	first := changes(t, path)
	other := filepath.Join(path, "folder1/below/7")
	must(t, os.Chown(other, 0, 0))
	must(t, own(t.Context()))
	for name, at := range changes(t, path) {
		if at != first[name] && name != other {
			t.Errorf("%s was written although it was right", name)
		}
	}
}

func TestOwnVolume_TakesAsLongAsItProgresses(t *testing.T) {
	path, own := ownedVolume(t)
	clock := clocktesting.NewFakeClock(time.Now())
	ctx, cancel := stall.New(t.Context(), clock, time.Minute)
	defer cancel()
	must(t, own(ctx))
	change, _ := ctx.Note().(*GroupChange)
	if change == nil || change.Files() != 3006 || change.Folder != "u/volumes/example.org~remote/pv" {
		t.Errorf("progress is %+v, want 3006 files of the volume", change)
	}
	changes(t, path)
	clock.Step(time.Minute)
	for end := time.Now().Add(time.Minute); !clock.HasWaiters() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if err := ctx.Err(); err != nil {
		t.Errorf("a change that progressed was cut off: %v", err)
	}
}

func TestOwnVolume_CatchesUpAfterInterruption(t *testing.T) {
	path, own := ownedVolume(t)
	must(t, os.Chown(filepath.Join(path, "folder0/below/1"), 0, testGroup)) // as an earlier process left it
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := own(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the end of the context", err)
	}
	if group(t, path) == testGroup {
		t.Error("the topmost folder was given before what is in it")
	}
	must(t, own(t.Context()))
	changes(t, path)
}

func TestOwnVolume_HungServer(t *testing.T) {
	path, own := ownedVolume(t)
	fusetest.Mount(t, path).Hang()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := own(ctx); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v, want that the file system does not answer", err)
	}
}

// OwnVolume immediately refuses a volume with too many hung calls.
func TestOwnVolume_ManyCallsHang(t *testing.T) {
	_, own := ownedVolume(t)
	answer, gone := make(chan struct{}), make(chan struct{}, 16)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 16 {
		_, _ = safepath.Bounded(ended, safepath.Owner{}, "/"+VolumeFolder("example.org/remote", "pv"), fmt.Sprint("call ", i),
			func() (none struct{}, err error) {
				<-answer
				gone <- none
				return none, nil
			})
	}
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
	defer end()
	if err := own(ctx); !errors.Is(err, safepath.ErrManyHang) || ctx.Err() != nil {
		t.Errorf("got %v, want a refusal", err)
	}
	close(answer)
	for range 16 {
		<-gone
	}
}
