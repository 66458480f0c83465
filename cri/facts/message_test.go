package facts

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

func ended(path, policy string, code int32) *runtimeapi.ContainerStatus {
	s := exited()
	s.ExitCode = code
	s.Annotations = map[string]string{
		cri.AnnotationTerminationMessagePath: path, cri.AnnotationTerminationMessagePolicy: policy,
	}
	s.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/etc/hosts", HostPath: "/host/hosts"},
		{ContainerPath: "/dev/termination-log", HostPath: "/host/message"},
	}
	return s
}

func TestSource(t *testing.T) {
	const file, fallback = "File", "FallbackToLogsOnError"
	running := ended("/dev/termination-log", fallback, 1)
	running.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	never := ended("/dev/termination-log", fallback, 128)
	never.Reason = "ContainerCannotRun"
	tests := map[string]struct {
		status *runtimeapi.ContainerStatus
		want   MessageSource
	}{
		"file": {ended("/dev/termination-log", file, 1), MessageSource{PodUID: "u1", File: "/host/message"}},
		"file or log": {ended("/dev/termination-log", fallback, 1),
			MessageSource{PodUID: "u1", File: "/host/message", Log: "/logs/0.log"}},
		"success needs no log":  {ended("/dev/termination-log", fallback, 0), MessageSource{PodUID: "u1", File: "/host/message"}},
		"relative":              {ended("dev/termination-log", file, 1), MessageSource{PodUID: "u1", File: "/host/message"}},
		"not mounted":           {ended("/elsewhere", file, 1), MessageSource{}},
		"not mounted, log":      {ended("/elsewhere", fallback, 1), MessageSource{Log: "/logs/0.log"}},
		"no path":               {ended("", fallback, 1), MessageSource{Log: "/logs/0.log"}},
		"never ran, so no log":  {never, MessageSource{PodUID: "u1", File: "/host/message"}},
		"still running":         {running, MessageSource{}},
		"nothing is said of it": {exited(), MessageSource{}},
		"no status":             {nil, MessageSource{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Source(tc.status); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestAddMessage(t *testing.T) {
	for _, tc := range [][3]string{{"", "", ""}, {"a", "", "a"}, {"", "b", "b"}, {"a", "b", "a: b"}} {
		if got := AddMessage(messages.ContainerFact{Message: tc[0]}, tc[1]).Message; got != tc[2] {
			t.Errorf("%q and %q: %q", tc[0], tc[1], got)
		}
	}
}

func TestReadMessage(t *testing.T) {
	// The administrator's links lead to the folder of pods and to the folder of logs.
	pods := filepath.Join(t.TempDir(), "pods")
	if err := os.Symlink(t.TempDir(), pods); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(pods, "uid", "containers")
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log := write("log", "2026-01-02T03:04:05.6Z stdout F one\n2026-01-02T03:04:05.7Z stderr F two\n")
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(write("secret", "secret"), link); err != nil {
		t.Fatal(err)
	}
	// A pod has replaced one of its own folders with a link to another pod's.
	write("../../other/app/0.log", "2026-01-02T03:04:05.6Z stdout F secret\n")
	if err := os.Symlink("../../other", filepath.Join(dir, "swapped")); err != nil {
		t.Fatal(err)
	}
	swapped := filepath.Join(dir, "swapped", "app", "0.log")
	none := filepath.Join(dir, "none")
	tests := map[string]struct {
		src    MessageSource
		want   string
		substr bool
	}{
		"nowhere": {src: MessageSource{}},
		"file":    {src: MessageSource{File: write("m", "it broke")}, want: "it broke"},
		"the end of a long": {src: MessageSource{File: write("long", "x"+strings.Repeat("y", 4096))},
			want: strings.Repeat("y", 4096)},
		"no file":              {src: MessageSource{File: none}},
		"no file, log":         {src: MessageSource{File: none, Log: log}, want: "one\ntwo\n"},
		"empty file, log":      {src: MessageSource{File: write("empty", ""), Log: log}, want: "one\ntwo\n"},
		"file before log":      {src: MessageSource{File: write("m2", "file"), Log: log}, want: "file"},
		"log alone":            {src: MessageSource{Log: log}, want: "one\ntwo\n"},
		"no log":               {src: MessageSource{Log: none}, want: "could not be taken from the log", substr: true},
		"a FIFO does not hold": {src: MessageSource{File: fifo, Log: log}, want: "not a regular file", substr: true},
		"a link is not gone":   {src: MessageSource{File: link}, want: "could not be read", substr: true},
		"a folder":             {src: MessageSource{File: dir}, want: "not a regular file", substr: true},
		"a device":             {src: MessageSource{File: "/dev/zero"}, want: "not a regular file", substr: true},
		"the log is a FIFO":    {src: MessageSource{Log: fifo}, want: "not a regular file", substr: true},
		"a link on the way":    {src: MessageSource{File: swapped}, want: "is not followed", substr: true},
		"to the log, too":      {src: MessageSource{Log: swapped}, want: "is not followed", substr: true},
		"not text":             {src: MessageSource{File: write("bin", "a\xff\xfeb")}, want: "a?b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.src.PodUID = "uid"
			got := tc.src.Read()
			if tc.substr && (!strings.Contains(got, tc.want) || strings.Contains(got, "secret")) || !tc.substr && got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLogTail(t *testing.T) {
	line := func(tag, content string) string { return "2026-01-02T03:04:05.6Z stdout " + tag + " " + content + "\n" }
	var hundred, tail strings.Builder
	for i := range 100 {
		hundred.WriteString(line("F", fmt.Sprint(i)))
		if i >= 20 {
			fmt.Fprintf(&tail, "%d\n", i)
		}
	}
	tests := map[string]struct {
		data string
		part bool
		want string
	}{
		"nothing":            {},
		"partial lines join": {data: line("P", "a") + line("P", "b") + line("F", "c"), want: "abc\n"},
		"more tags":          {data: line("P:x", "a") + line("F:y", "b"), want: "ab\n"},
		"what is no line is left": {data: "nonsense\n" + line("F", "a") + "2026-01-02T03:04:05Z other F b\n" +
			"2026-01-02T03:04:05Z stdout F\n", want: "a\n"},
		"the last 80":              {data: hundred.String(), want: tail.String()},
		"an unfinished last line":  {data: line("F", "a") + "2026-01-02T03:04:05.6Z stdout F b", want: "a\nb"},
		"the first may be cut":     {data: "rest of a line\n" + line("F", "a"), part: true, want: "a\n"},
		"a line without any start": {data: strings.Repeat("x", 5000), part: true, want: strings.Repeat("x", maxLogBytes)},
		"at most so many bytes":    {data: line("F", strings.Repeat("x", 3000)), want: strings.Repeat("x", maxLogBytes-1) + "\n"},
		"spaces stay":              {data: line("F", "  a  "), want: "  a  \n"},
		"empty lines stay":         {data: line("F", "") + line("F", "a"), want: "\na\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := string(logTail([]byte(tc.data), !tc.part, maxLogLines, maxLogBytes)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzLogTail(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.6Z stdout P one\n2026-01-02T03:04:05.7Z stderr F two\n"), true)
	f.Add([]byte("\n\n \n"), false)
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		kept := bytes.Clone(data)
		if got := logTail(data, whole, maxLogLines, maxLogBytes); len(got) > maxLogBytes || len(got) > len(data) {
			t.Errorf("%d bytes out of %d", len(got), len(data))
		}
		if !bytes.Equal(kept, data) {
			t.Error("the input was changed")
		}
	})
}

func FuzzStatus(f *testing.F) {
	whole, err := proto.Marshal(exited())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	withMessage, err := proto.Marshal(ended("/dev/termination-log", "FallbackToLogsOnError", 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(withMessage)
	f.Fuzz(func(t *testing.T, data []byte) {
		var status runtimeapi.ContainerStatus
		if proto.Unmarshal(data, &status) != nil {
			return
		}
		fact, err := Container(&status)
		if err != nil && !strings.Contains(err.Error(), ErrForeign.Error()) {
			t.Errorf("an error of another kind: %v", err)
		}
		if err == nil && (fact.ID == "" || fact.Name == "") {
			t.Errorf("a fact about nothing: %+v", fact)
		}
		if src := Source(&status); src.Log != "" && status.ExitCode == 0 {
			t.Errorf("a log for success: %+v", src)
		}
		if text := AddMessage(fact, "x").Message; utf8.ValidString(fact.Message) && !utf8.ValidString(text) {
			t.Errorf("%q", text)
		}
	})
}
