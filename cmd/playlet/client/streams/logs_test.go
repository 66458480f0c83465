package streams

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

func TestFlagsOfLogs(t *testing.T) {
	c := &logsCommand{since: time.Minute, tail: 3, limit: 10}
	c.Now = func() time.Time { return fake.Noon }
	if err := c.settle(); err != nil || !c.options.Since.Equal(fake.Noon.Add(-time.Minute)) || *c.options.Tail != 3 ||
		*c.options.LimitBytes != 10 {
		t.Errorf("%+v, %v", c.options, err)
	}
	for _, args := range [][]string{
		{"--tail=-2", "web"}, {"--since=-1s", "web"}, {"--since-time=noon", "web"}, {"--limit-bytes=-1", "web"}, {}, {"-c", "a", "--all-containers", "web"}, {"a", "-l", "b"},
	} {
		_, errs, code := fake.Run(append([]string{"logs"}, args...), newLogsCommand)
		if code != 1 || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: %d, %s", args, code, errs)
		}
	}
}

// The logs of several pods and containers are whole lines. A container that never started is reported.
func TestLogsOfSeveral(t *testing.T) {
	f := fake.Start(t, newLogsCommand)
	web, db := fake.Pod("a late", v1.PodRunning), fake.Pod("b", v1.PodRunning)
	db.Pod.Name = "db"
	f.Has(web, db)
	const late = "late has not been started yet\n"
	for args, want := range map[string]struct {
		out, notes string
		code       int
	}{
		"db":                            {"db  1\ndb  2", "", 0},
		"web db":                        {"db b 1\ndb b 2\nweb a 1\nweb a 2\n", "", 0},
		"--prefix db":                   {"[pod/db/b] db b 1\n[pod/db/b] db b 2\n", "", 0},
		"web --all-containers --prefix": {"[pod/web/a] web a 1\n[pod/web/a] web a 2\n", late, 0},
		"web -c late":                   {"", "playlet: " + late, 1},
		"web db -c late":                {"", late + late + "playlet: none of these logs could be read\n", 1},
		"x":                             {"", "playlet: there is no pod \"x\" in any namespace (playlet pods lists them)\n", 1},
		"-l a=b":                        {"", "playlet: no pod has the labels a=b\n", 1},
	} {
		out, notes, code := f.Command(t, append([]string{"logs"}, strings.Fields(args)...)...)
		if out != want.out || notes != want.notes || code != want.code {
			t.Errorf("%s: %d %q %q", args, code, out, notes)
		}
	}
	const first, second = "\x1b[36m[pod/db/b] \x1b[0mdb b 1\r\n", "\x1b[33m[pod/web/a] \x1b[0mweb a 1\r\n"
	t.Setenv("TERM", "xterm")
	for _, never := range []string{"", "1"} {
		t.Setenv("NO_COLOR", never)
		screen, _, printed := fake.Terminal(t)
		root := &cobra.Command{Use: "playlet"}
		root.AddCommand(newLogsCommand())
		code := cli.Main(root, []string{"logs", "--prefix", "web", "db", "--admin-socket=" + f.Socket}, screen, io.Discard)
		for deadline := time.Now().Add(time.Minute); !strings.Contains(printed(), "web a 2"); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("on a terminal: %q", printed())
			}
		}
		got := printed()
		if coloured := strings.Contains(got, first) && strings.Contains(got, second); code != 0 || coloured == (never != "") ||
			never != "" && strings.Contains(got, "\x1b") {
			t.Errorf("on a terminal, with NO_COLOR=%s: %d %q", never, code, got)
		}
	}
	out, _, code := f.Command(t, "logs", "-f", "--all-containers", "web", "db")
	if lines := strings.Count(out, "\n"); lines != 4 || code != 0 {
		t.Errorf("followed: %d\n%s", code, out)
	}
}
