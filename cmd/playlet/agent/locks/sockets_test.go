package locks

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"go.uber.org/goleak"
)

// standIn is a variable of the environment that makes this program a stand-in for a process with an embedded kubelet. It lists
// sockets: it listens on "+path" and connects to "path".
const standIn = "LOCKS_STAND_IN"

func TestMain(m *testing.M) {
	if sockets := os.Getenv(standIn); sockets != "" {
		if err := stand(strings.Fields(sockets)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// stand opens the sockets, and keeps them until the end of its input.
func stand(sockets []string) error {
	for _, s := range sockets {
		path, listens := strings.CutPrefix(s, "+")
		if !listens {
			conn, err := net.Dial("unix", path)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
	}
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// begin starts the stand-in. end ends it.
func begin(t *testing.T, sockets ...string) (pid int, end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), standIn+"="+strings.Join(sockets, " "))
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	end = func() { _ = in.Close(); _ = cmd.Wait() }
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		end()
		t.Fatalf("the stand-in says %q, %v", line, err)
	}
	return cmd.Process.Pid, end
}

// The system service of a process is named with its remedy.
func TestEmbedded_Remedy(t *testing.T) {
	for group, want := range map[string]string{
		"0::/system.slice/k3s.service":                         "stop it (systemctl disable --now k3s.service), or give this agent its own",
		"1:cpu:/x\n0::/system.slice/a.service/init":            "stop it (systemctl disable --now a.service), or give this agent its own",
		"0::/user.slice/user-0.slice/user@0.service/x.service": "stop it, or give this agent its own",
		"0::/": "stop it, or give this agent its own",
	} {
		proc := procWith(t, 7, "k3s-server", "mnt:[1]")
		if err := os.WriteFile(filepath.Join(proc, "7", "cgroup"), []byte(group+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := procfs.NewFS(proc)
		if err != nil {
			t.Fatal(err)
		}
		p, err := files.Proc(7)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&EmbeddedKubelet{Unit: unitOf(p)}).Remedy(); got != want {
			t.Errorf("%q: got %q, want %q", group, got, want)
		}
	}
}

// A kubelet that is part of another program, like that of k3s, is found by its sockets, whatever the name of the process is.
func TestTake_RefusesBesideAnEmbeddedKubelet(t *testing.T) {
	dir := t.TempDir()
	node := nodeIn(dir)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "run"), 0o755), os.Mkdir(node.RootDir, 0o755),
		os.Symlink("root", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	runtime := filepath.Join(dir, "run", "c.sock")
	l, err := net.Listen("unix", runtime)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	own := filepath.Join(dir, "own", "device-plugins", "kubelet.sock") // this process is not considered
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		t.Fatal(err)
	}
	ours, err := net.Listen("unix", own)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	in := func(folder, socket string) string { return "+" + filepath.Join(dir, folder, socket, "kubelet.sock") }
	for name, c := range map[string]struct {
		sockets []string
		want    string
	}{
		"its root folder":                    {[]string{in("root", "device-plugins")}, "--root-dir " + node.RootDir},
		"its root folder, by a link":         {[]string{in("link", "pod-resources")}, "--root-dir " + node.RootDir},
		"its runtime":                        {[]string{in("other", "device-plugins"), runtime}, "runtime " + node.Kubelet.ContainerRuntimeEndpoint},
		"another root folder":                {[]string{in("other", "device-plugins")}, ""},
		"a client of the runtime":            {[]string{runtime}, ""},
		"a client, which listens on another": {[]string{runtime, in("other", "plugins")}, ""},
	} {
		pid, end := begin(t, c.sockets...)
		if slices.Contains(c.sockets, runtime) { // as the runtime does
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
		}
		err := noKubelet(node, "/proc", 0)
		end()
		want := fmt.Sprintf("the process locks.test (PID %d) contains a kubelet with the same %s, and ", pid, c.want)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
		if err := noKubelet(node, "/proc", 0); err != nil {
			t.Errorf("%s: after its end: %v", name, err)
		}
	}
}
