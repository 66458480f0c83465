//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
	"golang.org/x/sys/unix"
)

const swapVar = "PLAYLET_E2E_SWAP"

// swapForEver exchanges folders of the volume at $PLAYLET_E2E_SWAP with links that lead out of it.
func swapForEver() int {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	must(os.Chdir(os.Getenv(swapVar)))
	pairs := map[string]string{"absolute": os.Getenv(swapVar + "_OUT"), "relative": "../../../../../outside"}
	for name, target := range pairs {
		must(os.MkdirAll(name+"/sub", 0o777))
		must(os.WriteFile(name+"/sub/who", []byte("inside\n"), 0o666))
		must(os.Symlink(target, name+"-link"))
	}
	for first := true; ; first = false {
		for name := range pairs {
			must(unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, name+"-link", unix.RENAME_EXCHANGE))
		}
		if first {
			must(os.WriteFile("swapping", nil, 0o666))
		}
	}
}

// A container that swaps parts of the others' mounts, while they are restarted repeatedly, exposes nothing of the machine and
// creates nothing there.
func TestSwappedSubPaths(t *testing.T) {
	s := stack.Start(t, stack.Options{})
	a := agentWith(t, s, quick)
	outside := filepath.Join(filepath.Dir(filepath.Dir(a.RootDir)), "outside")
	relative := filepath.Join(a.RootDir, "outside") // <root>/pods/<uid>/volumes/<kind>/<volume> is where the link lies
	for _, dir := range []string{outside, relative} {
		must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "sub/who"), []byte("outside\n"), 0o644))
	}
	program, err := os.Executable()
	must(t, err)
	var spec strings.Builder
	fmt.Fprintf(&spec, `
terminationGracePeriodSeconds: 1
initContainers:
- name: swapper
  restartPolicy: Always
  image: HELLO
  command: [/swapper]
  env: [{name: %s, value: /data}, {name: %s_OUT, value: %s}]
  volumeMounts: [{name: data, mountPath: /data}, {name: program, mountPath: /swapper}]
- {name: wait, image: HELLO, args: [wait-file, /data/swapping], volumeMounts: [{name: data, mountPath: /data}]}
containers:`, swapVar, swapVar, outside)
	const victims = 8
	for i := range victims {
		path := []string{"absolute/sub", "relative/sub", "absolute/sub/who", "relative/sub/made"}[i%4]
		file := []string{"/v/who", "/v/who", "/v", "/v"}[i%4]
		fmt.Fprintf(&spec, `
- {name: v%d, image: HELLO, args: [cat, %s], volumeMounts: [{name: data, mountPath: /v, subPath: %s}]}`, i, file, path)
	}
	fmt.Fprintf(&spec, `
volumes: [{name: data, emptyDir: {}}, {name: program, hostPath: {path: %s, type: File}}]`, program)
	must(t, a.Write("p.yaml", manifest(s, "p", spec.String())))

	var inside, refused int
	await(t, func() error {
		inside, refused = 0, strings.Count(a.Log(), "leads out of the volume")
		text := logsBelow(t, a.PodLogsDir)
		if strings.Contains(text, "outside") {
			t.Fatalf("a container has seen what is outside: %s", text)
		}
		if inside = strings.Count(text, " inside"); inside < 12 || refused < 6 {
			return fmt.Errorf("the volume was seen %d times, and %d starts were refused", inside, refused)
		}
		return nil
	})
	t.Logf("the volume was seen %d times, and %d starts were refused", inside, refused)
	must(t, a.Remove("p.yaml"))
	cleared(t, s, a)
	for _, dir := range []string{outside, relative} {
		var there []string
		must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			there = append(there, path)
			return err
		}))
		if text, err := os.ReadFile(filepath.Join(dir, "sub/who")); len(there) != 3 || err != nil || string(text) != "outside\n" {
			t.Errorf("outside there are %v, %q, %v", there, text, err)
		}
	}
	if left := podMounts(t, a); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

// logsBelow is all that containers have written, of those logs that are there.
func logsBelow(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.Contains(path, "/swapper/") {
			if text, err := os.ReadFile(path); err == nil { // it may just have been removed
				out.Write(text)
			}
		}
		return nil
	}))
	return out.String()
}
