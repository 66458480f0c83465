//go:build e2e

package isolate_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/e2e/isolate"
)

const bodyVar = "ISOLATE_TEST_BODY"

// forgotten are directories that a run makes where it is to leave nothing.
var forgotten = []string{"/var/lib/playlet-isolate-test", "/var/log/playlet-isolate-test"}

// The tests run on the machine, and this program again as one that isolates itself.
func TestMain(m *testing.M) {
	bodies := map[string]func() int{
		"look": look,
		"hold": hold,
		"dies": func() int { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM); select {} },
	}
	if body, ok := bodies[os.Getenv(bodyVar)]; ok {
		os.Exit(isolate.Run(func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "prepared"), []byte("yes"), 0o600)
		}, body))
	}
	os.Exit(m.Run())
}

func isolated(body string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), bodyVar+"="+body)
	cmd.Stderr = os.Stderr
	return cmd
}

// look is a body that prints whatever is not as it should be, and makes a mess.
func look() int {
	wrong := 0
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = 1
			fmt.Printf(format+"\n", args...)
		}
	}
	prepared, err := os.ReadFile(filepath.Join(isolate.Dir(), "prepared"))
	check(err == nil && string(prepared) == "yes", "prepare: %s %v", prepared, err)
	name, err := os.Hostname()
	check(err == nil && name == isolate.HostName, "host name %q %v", name, err)
	run, err := os.ReadDir("/run")
	check(err == nil && len(run) == 2, "/run has %v %v", run, err)
	pids, err := filepath.Glob("/proc/[0-9]*")
	check(err == nil && len(pids) == 2, "processes: %v %v", pids, err)
	bridge, err := net.InterfaceByName(isolate.HostName)
	check(err == nil, "bridge: %v", err)
	addrs, err := bridge.Addrs()
	check(err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
		return strings.HasPrefix(a.String(),
			isolate.NodeIP+"/")
	}),
		"addresses: %v %v", addrs, err)
	points, err := namespaces.Cgroups()
	check(err == nil && len(points) > 0, "no cgroups: %v", err)
	for _, point := range points {
		dirs, err := namespaces.Below(point)
		check(err == nil && (len(dirs) == 0 || dirs[0] == point+"/init"), "cgroups of others show: %v %v", dirs, err)
		check(os.Mkdir(point+"/mess", 0o755) == nil, "no cgroup can be made in %s", point)
	}
	for _, dir := range forgotten {
		check(os.Mkdir(dir, 0o755) == nil, "%s cannot be made", dir)
	}
	mess := filepath.Join(isolate.Dir(), "mess")
	check(os.Mkdir(mess, 0o755) == nil && syscall.Mount("tmpfs", mess, "tmpfs", 0, "") == nil, "mount")
	return wrong
}

// hold is a body that reports its start and stays, with a child.
func hold() int {
	if err := exec.Command("sleep", "100000").Start(); err != nil {
		return 1
	}
	fmt.Println(isolate.Dir())
	for { // not select: without cgo it is a deadlock
		time.Sleep(time.Hour)
	}
}

// traces lists the leftovers of the given directory's run on the machine.
func traces(t *testing.T, dir string) (found []string) {
	t.Helper()
	points, err := namespaces.Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	places := append([]string{dir}, forgotten...)
	for _, point := range points {
		places = append(places, filepath.Join(point, "playlet-e2e-"+filepath.Base(dir)))
	}
	for _, place := range places {
		if _, err := os.Stat(place); !errors.Is(err, os.ErrNotExist) {
			found = append(found, place)
		}
	}
	return found
}

func TestInsideIsApartAndLeavesNothing(t *testing.T) {
	cmd := isolated("look")
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if left := traces(t, runDir(cmd.Process.Pid)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func runDir(pid int) string { return filepath.Join(os.TempDir(), "playlet-e2e", fmt.Sprint(pid)) }

func TestExitCodeIsTheBodys(t *testing.T) {
	cmd := isolated("dies")
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("%v", err)
	}
}

// A run that is killed takes its processes with it; the rest is cleaned up by the next run.
func TestKilledRunIsCleanedUp(t *testing.T) {
	cmd := isolated("hold")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir := runDir(cmd.Process.Pid)
	line := make([]byte, len(dir)+1)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != dir+"\n" {
		t.Fatalf("%q, want %q: %v", line, dir, err)
	}
	// While it lives, another run leaves it alone.
	if out, err := isolated("look").Output(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(traces(t, dir)) < 2 {
		t.Errorf("a running one was cleaned up: %v", traces(t, dir))
	}
	points, err := namespaces.Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	procs := filepath.Join(points[0], "playlet-e2e-"+filepath.Base(dir), "cgroup.procs")
	if data, err := os.ReadFile(procs); err != nil || strings.Count(string(data), "\n") != 3 {
		t.Fatalf("it has the processes %q, %v; want init, body and sleep", data, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("killed, and all is well?")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		data, err := os.ReadFile(procs)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("processes outlive a killed run: %q", data)
		}
	}
	if out, err := isolated("look").Output(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if left := traces(t, dir); len(left) > 0 {
		t.Errorf("left after the next run: %v", left)
	}
}
