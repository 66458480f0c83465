package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/config"
)

func playlet(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems bytes.Buffer
	code = cli.Main(newRoot(), args, &out, &problems)
	return out.String(), problems.String(), code
}

// The help of the root fits on a screen and has every command in a group.
func TestHelpFitsOnAScreen(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"help"}} {
		out, problems, code := playlet(t, args...)
		if code != 0 || problems != "" {
			t.Fatalf("%v: %d %s", args, code, problems)
		}
		if lines := strings.Split(out, "\n"); len(lines) > 50 ||
			slices.ContainsFunc(lines, func(l string) bool { return len(l) > 130 }) {
			t.Errorf("%d lines:\n%s", len(lines), out)
		}
		for _, c := range newRoot().Commands() {
			if !c.Hidden && !strings.Contains(out, "\n  "+c.Name()+" ") {
				t.Errorf("%s is not listed:\n%s", c.Name(), out)
			}
		}
		for _, name := range config.CommonFlags {
			if !strings.Contains(out, "--"+name+"=") {
				t.Errorf("--%s is not listed:\n%s", name, out)
			}
		}
	}
	if out, _, _ := playlet(t, "run", "--help"); !strings.Contains(out, "playlet run -f web.yaml") {
		t.Errorf("the help of a command:\n%s", out)
	}
}

func TestHelpOfFlags(t *testing.T) {
	out, problems, code := playlet(t, "help", "flags")
	if again, _, _ := playlet(t, "flags"); code != 0 || problems != "" || again != out {
		t.Fatalf("%d %s", code, problems)
	}
	for _, want := range []string{
		"\nWhere pods come from:\n  --pod-manifest-path=PATH  [staticPodPath]\n      path of a folder of pod manifests, or of one manifest\n",
		"\n  --max-open-files=INT  [maxOpenFiles]  NOT IN FORCE\n      files the agent may have open (default 1000000)\n",
		"\n  --config=FILE\n", "\n  --v=LEVEL  [logging.verbosity]\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in it:\n%s", want, out)
		}
	}
}

func TestWrongUseIsOneLine(t *testing.T) {
	for arg, want := range map[string]string{
		"--nonsense":         "playlet: unknown flag: --nonsense (playlet help flags lists the flags)\n",
		"--healthz-prt=1":    "playlet: unknown flag: --healthz-prt; did you mean --healthz-port? (playlet help flags lists the flags)\n",
		"--healthz-port=x":   "playlet: --healthz-port=\"x\": it must be a number (playlet help flags lists the flags)\n",
		"--runonce=x":        "playlet: --runonce=\"x\": it must be true or false (playlet help flags lists the flags)\n",
		"--eviction-hard=x":  "playlet: --eviction-hard=\"x\": it must be pairs, each as KEY<VALUE (playlet help flags lists the flags)\n",
		"--port=1e99":        "playlet: --port=\"1e99\": it must be a number (playlet help flags lists the flags)\n",
		"--port=99999999999": "playlet: --port=\"99999999999\": it is too large a number (playlet help flags lists the flags)\n",
		"nonsense":           "playlet: unknown command \"nonsense\" (playlet --help lists the commands)\n",
		"describ":            "playlet: unknown command \"describ\"; did you mean \"describe\"? (playlet --help lists the commands)\n",
		"--file-check-frequency=soon": "playlet: --file-check-frequency=\"soon\": it must be a duration, such as 90s, 10m or 1h30m " +
			"(playlet help flags lists the flags)\n",
	} {
		if out, problems, code := playlet(t, arg); code != 1 || problems != want || out != "" {
			t.Errorf("%s: %d %q %q, want\n%q", arg, code, problems, out, want)
		}
	}
	out, problems, code := playlet(t, "logs", "web", "--tail=z")
	if want := "playlet: --tail=\"z\": it must be a number (playlet logs --help lists the flags)\n"; code != 1 || problems != want || out != "" {
		t.Errorf("%d %q %q", code, problems, out)
	}
}
