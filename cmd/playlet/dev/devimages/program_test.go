package devimages

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// waitLimit bounds every wait of these tests; it is reached only when something is broken.
const waitLimit = 5 * time.Minute

// programSet is a set of programs to test: their folder, and the emulator that runs them if they are for another architecture.
type programSet struct {
	dir, arch string
	runner    []string
}

func (b programSet) command(p Program, args ...string) *exec.Cmd {
	line := append(append([]string{}, b.runner...), filepath.Join(b.dir, string(p)+"-"+b.arch))
	line = append(line, args...)
	return exec.Command(line[0], line[1:]...)
}

// everyBuild runs a test on the committed programs and on freshly compiled ones, for each architecture. It reports the cases
// that it skips for lack of a compiler or an emulator.
func everyBuild(t *testing.T, test func(t *testing.T, b programSet)) {
	for _, arch := range Architectures {
		var runner []string
		if arch != runtime.GOARCH {
			cpu := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
			emulator, err := exec.LookPath("qemu-" + cpu + "-static")
			if err != nil {
				t.Logf("linux/%s is not tried: no emulator (Debian: qemu-user-static)", arch)
				continue
			}
			runner = []string{emulator}
		}
		t.Run("committed/"+arch, func(t *testing.T) {
			test(t, programSet{unpack(t, arch), arch, runner})
		})
		t.Run("compiled/"+arch, func(t *testing.T) {
			test(t, programSet{compile(t, arch), arch, runner})
		})
	}
}

func unpack(t *testing.T, arch string) string {
	dir := t.TempDir()
	for _, p := range []Program{Pause, Hello} {
		data, err := Binary(p, arch)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, string(p)+"-"+arch), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func compile(t *testing.T, arch string) string {
	compiler := map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}[arch]
	if arch == runtime.GOARCH {
		compiler = "gcc"
	}
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("not compiled again: no %s", compiler)
	}
	dir := t.TempDir()
	if out, err := exec.Command("sh", "src/build.sh", dir, arch).CombinedOutput(); err != nil {
		t.Fatalf("src/build.sh: %v\n%s", err, out)
	}
	return dir
}

func TestProgramsAreSmallStaticAndForTheirMachine(t *testing.T) {
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	for _, arch := range Architectures {
		for _, p := range []Program{Pause, Hello} {
			data, err := Binary(p, arch)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 16<<10 {
				t.Errorf("%s-%s has %d bytes", p, arch, len(data))
			}
			file, err := elf.NewFile(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if file.Machine != machines[arch] {
				t.Errorf("%s-%s is for %v", p, arch, file.Machine)
			}
			for _, prog := range file.Progs {
				if prog.Type == elf.PT_INTERP {
					t.Errorf("%s-%s wants a dynamic linker", p, arch)
				}
			}
		}
	}
	if _, err := Binary("nothing", "amd64"); err == nil {
		t.Error("a program that does not exist was found")
	}
}

func exitCode(t *testing.T, err error) int {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err == nil {
		return 0
	}
	return exit.ExitCode()
}

// runningProgram is a started program with its output read line by line.
type runningProgram struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

func start(t *testing.T, cmd *exec.Cmd) *runningProgram {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(waitLimit, func() { cmd.Process.Kill() }) //nolint:errcheck // gone already
	t.Cleanup(func() {
		watchdog.Stop()
		if cmd.ProcessState == nil {
			cmd.Process.Kill() //nolint:errcheck // gone already
			cmd.Wait()         //nolint:errcheck // killed
		}
	})
	return &runningProgram{t, cmd, bufio.NewScanner(out)}
}

func (r *runningProgram) line() string {
	r.t.Helper()
	if !r.out.Scan() {
		r.t.Fatalf("no more output: %v", r.out.Err())
	}
	return r.out.Text()
}

func (r *runningProgram) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runningProgram) wait() *os.ProcessState {
	r.t.Helper()
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return r.cmd.ProcessState
}
