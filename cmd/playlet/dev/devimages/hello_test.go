package devimages

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestHelloCommands(t *testing.T) {
	everyBuild(t, func(t *testing.T, b programSet) {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		cases := []struct {
			args string // separated by |
			out  string
			code int
		}{
			{"exit|7", "", 7},
			{"exit|0|0", "", 0},
			{"exit|256", "", 2},
			{"exit", "", 2},
			{"sleep|0", "", 0},
			{"sleep|-1", "", 2},
			{"nonsense", "", 2},
			{"args|a b||c", "a b\n\nc\n", 0},
			{"env", "GREETING=good day\n", 0},
			{"env|GREETING", "good day\n", 0},
			{"env|GREET", "", 1},
			{"pwd", dir + "\n", 0},
			{"id", fmt.Sprintf("uid=%d gid=%d groups=%s\n", os.Getuid(), os.Getgid(), groups(t)), 0},
			{"check-file|" + file, "", 1},
			{"cat|" + file, "", 1},
			{"write|" + file + "|one", "", 0},
			{"append|" + file + "|two", "", 0},
			{"check-file|" + file, "", 0},
			{"cat|" + file, "one\ntwo\n", 0},
			{"write|" + file + "|three|--|cat|" + file, "three\n", 0},
			{"cat|" + file + "|--|exit|3|--|args|unreached", "three\n", 3},
			{"wait-file|" + file, "", 0},
			{"write|" + dir + "/no/such|x", "", 1},
			{"write|" + file, "", 2},
			{"alloc|3|--|args|done", "done\n", 0},
			{"serve|0", "", 2},
			{"serve|65536", "", 2},
		}
		for _, c := range cases {
			cmd := b.command(Hello, strings.Split(c.args, "|")...)
			cmd.Dir = dir
			cmd.Env = []string{"GREETING=good day"}
			out, err := cmd.Output()
			if code := exitCode(t, err); string(out) != c.out || code != c.code {
				t.Errorf("hello %s: printed %q, ended with %d; want %q, %d", c.args, out, code, c.out, c.code)
			}
		}
	})
}

func groups(t *testing.T) string {
	ids, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

func TestHelloMeetsSignals(t *testing.T) {
	everyBuild(t, func(t *testing.T, b programSet) {
		r := start(t, b.command(Hello, "args", "up", "--", "sleep"))
		r.line()
		r.signal(syscall.SIGTERM)
		if code := r.wait().ExitCode(); code != 0 {
			t.Errorf("sleep ended with %d on TERM", code)
		}

		r = start(t, b.command(Hello, "args", "up", "--", "slow-term", "9", "0"))
		r.line()
		r.signal(syscall.SIGTERM)
		if got := r.line(); got != "got TERM" {
			t.Errorf("slow-term said %q", got)
		}
		if code := r.wait().ExitCode(); code != 9 {
			t.Errorf("slow-term ended with %d", code)
		}

		r = start(t, b.command(Hello, "args", "up", "--", "ignore-term"))
		r.line()
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			r.signal(s)
			if got := r.line(); got != "ignored TERM" {
				t.Errorf("ignore-term said %q", got)
			}
		}
		r.signal(syscall.SIGKILL)
		if state := r.wait().Sys().(syscall.WaitStatus); state.Signal() != syscall.SIGKILL {
			t.Errorf("ignore-term ended by %v", state)
		}
	})
}

func TestHelloServes(t *testing.T) {
	everyBuild(t, func(t *testing.T, b programSet) {
		r, addr := startServer(t, b)
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		long := "/" + strings.Repeat("x", 2000)
		cases := []struct {
			request string
			status  int
			body    string
		}{
			{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200, "Hello from " + host + ": /\n"},
			{"GET /a/b?c=d HTTP/1.0\r\n\r\n", 200, "Hello from " + host + ": /a/b?c=d\n"},
			{"GET / HTTP/1.1\n\n", 200, "Hello from " + host + ": /\n"},
			{"GET " + long + " HTTP/1.1\r\n\r\n", 200, "Hello from " + host + ": " + long + "\n"},
			{"HEAD / HTTP/1.1\r\n\r\n", 200, ""},
			{"GET /status/503 HTTP/1.1\r\n\r\n", 503, "Service Unavailable\n"},
			{"GET /status/204x HTTP/1.1\r\n\r\n", 404, "Not Found\n"},
			{"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405, "Method Not Allowed\n"},
			{"GET x HTTP/1.1\r\n\r\n", 400, "Bad Request\n"},
			{"GET / FTP/1.1\r\n\r\n", 400, "Bad Request\n"},
			{"GET /\r\n\r\n", 400, "Bad Request\n"},
			{"\r\n\r\n", 400, "Bad Request\n"},
			{"\x00\xff\x01 / HTTP/1.1\r\n\r\n", 400, "Bad Request\n"},
			{"GET / HTTP/1.1\r\nX: " + strings.Repeat("y", 9000), 431, "Request Header Fields Too Large\n"},
		}
		for _, c := range cases {
			status, body := exchange(t, addr, c.request)
			if status != c.status || body != c.body {
				t.Errorf("%.40q: %d %q, want %d %q", c.request, status, body, c.status, c.body)
			}
		}
		// More idle connections than it serves at once, some with half a request, end neither it nor its TERM.
		for i := range 80 {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close() //nolint:errcheck // the peer is gone by then
			fmt.Fprint(conn, "GET / HT"[:i%8])
		}
		r.signal(syscall.SIGTERM)
		if code := r.wait().ExitCode(); code != 0 {
			t.Errorf("ended with %d on TERM", code)
		}
	})
}

// startServer gives hello a free port; another process may take it in between, so it tries again.
func startServer(t *testing.T, b programSet) (*runningProgram, string) {
	for range 10 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := b.command(Hello)
		cmd.Env = []string{"PORT=" + addr[strings.LastIndexByte(addr, ':')+1:]}
		r := start(t, cmd)
		if r.out.Scan() && r.out.Text() == "listening" {
			go func() {
				for r.out.Scan() { // its log must not fill the pipe
				}
			}()
			return r, addr
		}
	}
	t.Fatal("found no port to listen on")
	return nil, ""
}

func exchange(t *testing.T, addr, request string) (int, string) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // read to the end
	if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.40q: %v", request, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%.40q: %v", request, err)
	}
	return resp.StatusCode, string(body)
}
