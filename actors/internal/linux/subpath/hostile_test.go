package subpath

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// attempts is the number of binds during which files are swapped.
const attempts = 10_000

const swapVar = "PLAYLET_TEST_SWAP"

// TestMain also runs the hostile container: a process in its own mount namespace, with the volume as its root. It swaps folders
// and files of the volume for links until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(swapVar); dir != "" {
		fmt.Fprintln(os.Stderr, swap(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// swapped are pairs of names in the volume that are exchanged: the requested name and its replacement.
var swapped = [][2]string{{"dir", "dir-out"}, {"deep/dir", "deep/dir-up"}, {"file", "file-out"}, {"whole", "whole-root"}}

func swap(dir string) error {
	if err := errors.Join(unix.Chroot(dir), unix.Chdir("/")); err != nil {
		return err
	}
	go snatch()
	for i := 0; ; i++ {
		for _, pair := range swapped {
			if err := unix.Renameat2(unix.AT_FDCWD, pair[0], unix.AT_FDCWD, pair[1], unix.RENAME_EXCHANGE); err != nil {
				return err
			}
			for range rand.IntN(20) { // Bind then meets each state and each moment between states
				_ = unix.Getppid()
			}
		}
		if i == 0 {
			fmt.Println("swapping")
		}
	}
}

// snatch replaces a folder with a link as soon as the folder is created.
func snatch() {
	for n := 0; ; {
		if unix.Renameat2(unix.AT_FDCWD, "race/new", unix.AT_FDCWD, "race/out", unix.RENAME_EXCHANGE) != nil {
			continue
		}
		n++
		_ = unix.Rename("race/out", fmt.Sprintf("race/snatched%d", n))
		_ = unix.Rename("race/new", "race/out")
	}
}

func (r rig) swapping() (end func()) {
	r.Helper()
	for _, pair := range swapped {
		inside := filepath.Join(r.volume, pair[0])
		if pair[0] == "file" {
			write(r, inside, "inside")
		} else {
			write(r, filepath.Join(inside, "sub/who"), "inside")
		}
	}
	write(r, filepath.Join(r.outside, "sub/who"), "outside")
	must(r, os.Mkdir(filepath.Join(r.volume, "race"), 0o755))
	for link, target := range map[string]string{
		"race/out": r.outside, "dir-out": r.outside, "deep/dir-up": "../../../../../outside",
		"file-out": filepath.Join(r.outside, "sub/who"), "whole-root": "/",
	} {
		must(r, os.Symlink(target, filepath.Join(r.volume, link)))
		if target != "/" {
			if info, err := os.Stat(filepath.Join(r.volume, link)); err != nil || info == nil {
				r.Fatalf("the link leads nowhere: %v", err)
			}
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), swapVar+"="+r.volume)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	must(r, err)
	must(r, cmd.Start())
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		r.Fatalf("nothing is swapped: %v, %v", err, cmd.Wait())
	}
	return func() {
		r.Helper()
		if err := cmd.Process.Kill(); err != nil {
			r.Errorf("it had ended before: %v", err)
		}
		_ = cmd.Wait() // it was killed
	}
}

// inside returns an error unless the bound file is in the volume.
func (r rig) inside(path, place string) error {
	var file string
	switch {
	case path == "file":
		file = place
	case strings.HasSuffix(path, "sub"):
		file = filepath.Join(place, "who")
	case path == "whole":
		file = filepath.Join(place, "sub/who")
	default: // a new folder
		names, err := os.ReadDir(place)
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("a folder that was made holds %v", names)
		}
		return err
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "inside" {
		return fmt.Errorf("it holds %q, %v", text, err)
	}
	return nil
}

// While one container mounts a part of a volume, another container swaps folders of the volume. Nothing outside the volume is
// bound or created.
func TestSwappedTenThousandTimes(t *testing.T) {
	r := newRig(t)
	end := r.swapping()
	defer end()
	paths := []string{"dir/sub", "deep/dir/sub", "file", "whole", "dir/made%d", "deep/dir/made%d/below", "race/new/made%d"}
	bound, refused := map[string]int{}, map[string]int{}
	unseen := func(p string) bool { return bound[p] == 0 || refused[p] == 0 }
	n := 0
	for ; n < attempts || n < 10*attempts && slices.ContainsFunc(paths, unseen); n++ {
		i, pattern := n, paths[n%len(paths)]
		path := pattern
		if strings.Contains(pattern, "%") {
			path = fmt.Sprintf(pattern, i)
		}
		p := r.part(path)
		p.Index = i % 7
		place, err := Bind(t.Context(), p)
		if err != nil {
			refused[pattern]++
			continue
		}
		bound[pattern]++
		if err := r.inside(path, place); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	t.Logf("%d attempts: bound %v, refused %v", n, bound, refused)
	for _, p := range paths {
		if unseen(p) {
			t.Errorf("%s was bound %d times and refused %d times: nothing was put to the test", p, bound[p], refused[p])
		}
	}
	r.unbind()
	var names []string
	must(t, filepath.WalkDir(r.outside, func(path string, _ fs.DirEntry, err error) error {
		names = append(names, path)
		return err
	}))
	if text, err := os.ReadFile(filepath.Join(r.outside, "sub/who")); len(names) != 3 || err != nil || string(text) != "outside" {
		t.Errorf("outside there are %v, %q, %v", names, text, err)
	}
}
