package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// The tour shows each command with its output, waits for Enter after each step, and goes on by itself once nothing can be typed.
func TestTheTour(t *testing.T) {
	var out buffer
	n := aNode(&out)
	n.folder, n.plan.AdminSocket, n.entered = "/dev-folder", "/admin.sock", make(chan struct{})
	tries := 0
	n.Command = func(_ context.Context, args []string, to io.Writer) error {
		if args[len(args)-1] != "--admin-socket=/admin.sock" {
			t.Errorf("the agent is not named by %q", args)
		}
		switch line := strings.Join(args[:len(args)-1], " "); line {
		case "explain broken":
			if tries++; tries < 3 {
				return errors.New("there is no pod \"broken\"")
			}
			fmt.Fprintln(to, "ConfigMap default/greeting does not exist")
		case "actors pods/hello":
			fmt.Fprintln(to, "hello   running   1   60m")
		case "trace hello --critical-path":
			fmt.Fprintln(to, "From start to ready: 1s")
		default:
			fmt.Fprintln(to, "Running broken hello greeting")
		}
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- n.tour(t.Context()) }()
	for i, title := range []string{"start", "watch", "explain"} {
		await(t, title, func() bool {
			return strings.HasSuffix(out.String(), "next step: "+[]string{"watch", "explain", "break"}[i]+"\n")
		})
		n.entered <- struct{}{}
	}
	close(n.entered)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := `
3 of 5: explain
This pod needs a ConfigMap that is not there. The agent names the cause, and what would fix it.

$ playlet run -f /dev-folder/broken.yaml
Running broken hello greeting

$ playlet explain broken
ConfigMap default/greeting does not exist

Enter leads to the next step: break

4 of 5: break
`
	if text := out.String(); !strings.Contains(text, want) || !strings.HasSuffix(text, "\nEnter ends the tour; the node runs on, for what you would like to try\n") {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}

// A line that is typed reaches the tour through the pipe; after the end of the input it goes on, and the end of the pipe ends the
// run.
func TestTypedLinesReachTheTour(t *testing.T) {
	read, write := io.Pipe()
	entered, over := make(chan struct{}, 16), make(chan struct{})
	go func() { readEntered(read, entered); close(over) }()
	passLines(strings.NewReader("a\n\nrest"), write)
	for range 2 {
		if _, more := <-entered; !more {
			t.Error("a line is missing")
		}
	}
	if _, more := <-entered; more {
		t.Error("the rest of a line counts as a line")
	}
	must(t, write.Close())
	<-over
}

func TestPodsAreRunBesideTheSample(t *testing.T) {
	n := aNode(&buffer{})
	n.plan.AdminSocket, n.plan.Pods = "/admin.sock", []string{"/a.yaml", "https://example.com/b.yaml"}
	failed := errors.New("refused")
	var ran []string
	n.Command = func(_ context.Context, args []string, to io.Writer) error {
		ran = args
		fmt.Fprintln(to, "pod/a created\npod/b created")
		return failed
	}
	if _, err := n.runPods(t.Context(), nil); err == nil || err.Error() != "refused\npod/a created\npod/b created" {
		t.Error(err)
	}
	failed = nil
	said, err := n.runPods(t.Context(), nil)
	if err != nil || said != "pod/a created, pod/b created" ||
		strings.Join(ran, " ") != "run --admin-socket=/admin.sock -f /a.yaml -f https://example.com/b.yaml" {
		t.Errorf("%q %v, by %q", said, err, ran)
	}
}
