package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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
			if c.IsAvailableCommand() && !strings.Contains(out, "\n  "+c.Name()+" ") {
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

// kubeadm reads the kubelet's version by this expression, and its preflight fails otherwise.
func TestVersionFlag(t *testing.T) {
	out, problems, code := playlet(t, "--version")
	form := regexp.MustCompile(`^\s*Kubernetes v((0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)([-0-9a-zA-Z_\.+]*)?)\s*$`)
	if !form.MatchString(out) || !strings.HasPrefix(out, "Kubernetes v1.36.3+playlet-") || problems != "" || code != 0 {
		t.Errorf("got %q %q %d", out, problems, code)
	}
	if out, _, _ := playlet(t, "version", "--client"); !strings.HasPrefix(out, "Playlet: ") {
		t.Errorf("the command version prints %q", out)
	}
}

func TestHelpOfFlags(t *testing.T) {
	out, problems, code := playlet(t, "help", "flags")
	if again, _, _ := playlet(t, "flags"); code != 0 || problems != "" || again != out {
		t.Fatalf("%d %s", code, problems)
	}
	for _, want := range []string{
		"\nWhere pods come from:\n  --pod-manifest-path=PATH  [staticPodPath]\n      path of a folder of pod manifests, or of a single manifest\n",
		"\n  --max-open-files=INT  [maxOpenFiles]\n      maximum number of files that the agent may open (default 1000000)\n",
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
		"describ":            "playlet: unknown command \"describ\"; did you mean \"playlet describe\"? (playlet --help lists the commands)\n",
		"--file-check-frequency=soon": "playlet: --file-check-frequency=\"soon\": it must be a duration, such as 90s, 10m or 1h30m " +
			"(playlet help flags lists the flags)\n",
	} {
		if out, problems, code := playlet(t, arg); code != 1 || problems != want || out != "" {
			t.Errorf("%s: %d %q %q, want\n%q", arg, code, problems, out, want)
		}
	}
	for args, want := range map[string]string{
		"completion bsh":    "unknown command \"bsh\"; did you mean \"playlet completion bash\"? (playlet completion --help lists the commands)",
		"logs web --tail=z": "--tail=\"z\": it must be a number (playlet logs --help lists the flags)",
		"logs web --tail":   "--tail needs a value (playlet logs --help lists the flags)",
		"run -f":            "-f needs a value (playlet run --help lists the flags)",
		"logs web -z":       "unknown flag: -z (playlet logs --help lists the flags)",
		"get pods -n x":     "unknown command \"get\"; here it is \"playlet pods\" (playlet --help lists the commands)",
		"get nodes":         "unknown command \"get\"; here it is \"playlet explain node\" (playlet --help lists the commands)",
		"apply -f web.yaml": "unknown command \"apply\"; here it is \"playlet run -f FILE\" (playlet --help lists the commands)",
		"kubectl get pods":  "unknown command \"kubectl\"; here it is \"playlet pods\" (playlet --help lists the commands)",
		"chaos kil pods":    "unknown command \"kil\"; did you mean \"playlet chaos kill\"? (playlet chaos --help lists the commands)",
		"help descibe":      "unknown command \"descibe\"; did you mean \"playlet describe\"? (playlet --help lists the commands)",
		"help flag":         "unknown command \"flag\"; did you mean \"playlet help flags\"? (playlet --help lists the commands)",
		"help flgas":        "unknown command \"flgas\"; did you mean \"playlet help flags\"? (playlet --help lists the commands)",
		"top -o json": "unknown flag: -o; the screen has one form; playlet top pods -o json prints the figures, and playlet pods -o json " +
			"the pods (playlet top --help lists the flags)",
		"rm --all":              "unknown flag: --all; name the pods, or choose them by their labels, as -l app=web (playlet rm --help lists the flags)",
		"run web --image=x":     "unknown flag: --image; a pod runs from a manifest, -f FILE (playlet run --help lists the flags)",
		"version now":           "playlet version takes no arguments, and \"now\" is one (playlet version --help)",
		"actors inspect":        "which actor? (for example: playlet actors inspect pods/web)",
		"trace a b":             "one pod or actor at a time, not a, b",
		"chaos run a.yaml more": "one experiment at a time, not a.yaml, more",
	} {
		if out, problems, code := playlet(t, strings.Fields(args)...); code != 1 || problems != "playlet: "+want+"\n" || out != "" {
			t.Errorf("%s: %d %q %q, want\n%q", args, code, problems, out, want)
		}
	}
}

// No command, however it is given wrongly, answers in the words of a library.
func TestErrors_HaveNoLibraryWords(t *testing.T) {
	var all func(c *cobra.Command) [][]string
	all = func(c *cobra.Command) (out [][]string) {
		path := strings.Fields(c.CommandPath())[1:]
		for _, args := range []string{"", "a b c", "--nonsense", "-o", "-o nonsense"} {
			out = append(out, append(slices.Clone(path), strings.Fields(args)...))
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "dev" {
				out = append(out, all(sub)...)
			}
		}
		return out
	}
	t.Setenv("PLAYLET_SOCKET", "/nowhere/s")
	for _, args := range all(newRoot())[5:] {
		if slices.Contains([]string{"doctor", "install", "uninstall"}, args[0]) && len(args) == 1 {
			continue
		}
		_, problems, _ := playlet(t, args...)
		for _, word := range []string{"arg(s)", "shorthand", "strconv", "dial ", "unix:", "needs an argument", "http://", "/v1/", "nil"} {
			if strings.Contains(problems, word) {
				t.Errorf("playlet %s: %s", strings.Join(args, " "), problems)
			}
		}
	}
}
