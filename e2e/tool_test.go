//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// toolPath is where a pod that was made by withTool has this test's own binary, which is static.
const toolPath = "/tool/run"

// tool is the binary's mode in a container: "tool NAME ARG...".
func tool(args []string) int {
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	switch args[0] {
	case "count":
		return count(args[1], stopped)
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return verdict(err)
	case "say":
		fmt.Println(args[1])
		fmt.Fprintln(os.Stderr, args[2])
		code, err := strconv.Atoi(args[3])
		if err != nil {
			return verdict(err)
		}
		return code
	case "lines":
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			fmt.Println(in.Text())
			if in.Text() == "end" {
				break
			}
		}
		return verdict(in.Err())
	case "echo":
		return verdict(serve(args[1], echo))
	case "swap":
		return verdict(serve(args[1], answerSwap))
	case "burn":
		return burn(args[1], stopped)
	case "tty":
		return atTerminal(stopped)
	case "bomb":
		return bomb(args[1], stopped)
	case "env":
		fmt.Println(os.Getenv(args[1]))
		return 0
	case "device":
		text, err := os.ReadFile("/gpu/note")
		if err != nil {
			return verdict(err)
		}
		info, err := os.Stat("/dev/gpu")
		if err != nil {
			return verdict(err)
		}
		fmt.Println(os.Getenv("GPU"), string(text), info.Mode()&os.ModeCharDevice != 0)
		return 0
	case "wait":
		fmt.Println("waiting")
		<-stopped
		return 5
	}
	return verdict(fmt.Errorf("no such tool: %v", args))
}

// burn uses so many mebibytes of memory, as many of the kernel's cache of files, and one processor, as far as it gets it.
func burn(mebibytes string, stopped <-chan os.Signal) int {
	n, err := strconv.Atoi(mebibytes)
	if err != nil {
		return verdict(err)
	}
	memory := make([]byte, n<<20)
	if err := os.WriteFile("/data/burnt", memory, 0o600); err != nil {
		return verdict(err)
	}
	for {
		for i := range memory {
			memory[i]++
		}
		select {
		case <-stopped:
			return 0
		default:
		}
	}
}

func verdict(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// count writes numbered lines until the folder has a file "stop"; then it writes their number into "done".
func count(dir string, stopped <-chan os.Signal) int {
	out := bufio.NewWriterSize(os.Stdout, 4096)
	n := 0
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-stopped:
			return 0
		case <-tick.C:
		}
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			if err := os.WriteFile(filepath.Join(dir, "done.new"), []byte(strconv.Itoa(n)), 0o644); err != nil {
				return verdict(err)
			}
			if err := os.Rename(filepath.Join(dir, "done.new"), filepath.Join(dir, "done")); err != nil {
				return verdict(err)
			}
			for {
				if _, err := os.Stat(filepath.Join(dir, "stop")); err != nil {
					break
				}
				select {
				case <-stopped:
					return 0
				case <-tick.C:
				}
			}
		}
		for range 4 {
			n++
			fmt.Fprintf(out, "line %d %s\n", n, strings.Repeat("x", n%100))
		}
		if err := out.Flush(); err != nil {
			return verdict(err)
		}
	}
}

// bomb starts processes, once there is a file /data/go, until the number is reached or the kernel refuses. It prints the number,
// and waits.
func bomb(most string, stopped <-chan os.Signal) int {
	n, err := strconv.Atoi(most)
	if err != nil {
		return verdict(err)
	}
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-stopped:
			return 0
		case <-tick.C:
		}
		if _, err := os.Stat("/data/go"); err == nil {
			break
		}
	}
	made := 0
	for ; made < n && err == nil; made++ {
		err = exec.Command("/hello", "sleep").Start()
	}
	fmt.Println("made", made, err)
	<-stopped
	return 0
}

// atTerminal prints whether its input is a terminal, and its size, at each change; a line "end" ends it.
func atTerminal(stopped <-chan os.Signal) int {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	say := func() bool {
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			fmt.Println("no terminal:", err)
			return false
		}
		fmt.Printf("terminal %dx%d\n", size.Col, size.Row)
		return true
	}
	if !say() {
		return 1
	}
	ended := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			ended <- in.Text()
		}
		ended <- "end"
	}()
	for {
		select {
		case <-resized:
			say()
		case line := <-ended:
			if line == "end" {
				return 0
			}
			fmt.Println("read", line)
		case <-stopped:
			fmt.Println("interrupted")
			return 7
		}
	}
}

// withTool mounts this test's own binary into the containers with TOOL among the mounts in their spec, and a folder at /data.
func withTool(t *testing.T, spec, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool")
	from, err := os.Open("/proc/self/exe")
	must(t, err)
	defer from.Close() //nolint:errcheck // only read
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, err)
	must(t, to.Close())
	spec = strings.ReplaceAll(spec, "TOOL", "volumeMounts: [{name: tool, mountPath: /tool/run}, {name: data, mountPath: /data}]")
	return spec + fmt.Sprintf("\nvolumes: [{name: tool, hostPath: {path: %s, type: File}}, {name: data, hostPath: {path: %s}}]",
		path, data)
}
