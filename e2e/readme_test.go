//go:build e2e

package e2e

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
)

// Each command of README and of the page of all commands works for a newcomer, on a Debian with only README's requirements.
func TestReadmesCommands(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	must(t, err)
	more, err := os.ReadFile("../cmd/playlet/README.md")
	must(t, err)
	said := readme(t, string(text)+"\n"+string(more))
	said.areTried(t)
	c := cluster.Shared(t)
	leavesNothing(t)
	m := startNewcomer(t)
	m.followsTheFirstSteps(said)
	n := m.startNode(said)
	for _, use := range slices.Concat(inSentences, uses) {
		if !t.Run(use.line, func(t *testing.T) {
			for _, one := range use.runs {
				n.try(t, one)
			}
		}) {
			return // the requirements of later steps would be missing
		}
	}
	n.shows(said)
	n.end()
	n.joinsACluster(c, said)
}

// sayings are the commands of README: the ones in its blocks, in order, each with its description, and the ones within sentences.
// shown are its blocks without commands.
type sayings struct {
	commands, within []string
	about            map[string]string
	shown            [][]string
}

// programs are those that the commands of README begin with.
var programs = regexp.MustCompile(`^(sudo )?(go|playlet|PATH=\S+)( |$)`)

func readme(t *testing.T, text string) sayings {
	t.Helper()
	said := sayings{about: map[string]string{}}
	var prose strings.Builder
	for i, part := range strings.Split("\n"+text, "\n```") {
		if i%2 == 0 {
			prose.WriteString(part)
			continue
		}
		lines := strings.Split(strings.Trim(part, "\n"), "\n")
		if !programs.MatchString(lines[0]) {
			said.shown = append(said.shown, lines)
			continue
		}
		for _, line := range lines {
			if line == "" {
				continue
			}
			command, about, _ := strings.Cut(line, "  ")
			command, more, _ := strings.Cut(command, " # ")
			said.commands = append(said.commands, command)
			said.about[command] = about + more
		}
	}
	for _, found := range regexp.MustCompile("`((?:playlet|go run) [^`]+)`").FindAllStringSubmatch(prose.String(), -1) {
		said.within = append(said.within, strings.Join(strings.Fields(found[1]), " "))
	}
	if len(said.commands) < 20 || len(said.within) < 5 || len(said.shown) != 1 {
		t.Fatalf("README is not understood: %+v", said)
	}
	return said
}

// command gives the one command of README that begins so.
func (said sayings) command(t *testing.T, begins string) string {
	t.Helper()
	for _, command := range said.commands {
		if strings.HasPrefix(command, begins) {
			return command
		}
	}
	t.Fatalf("README has no command %s ...", begins)
	return ""
}

// areTried checks that each command of README, and each option and choice of it that is named, is tried, and nothing else.
func (said sayings) areTried(t *testing.T) {
	t.Helper()
	tried := slices.Clone(firstSteps)
	for _, use := range uses {
		tried = append(tried, use.line)
		if !slices.Contains(said.commands, use.line) {
			t.Errorf("README has no command %q", use.line)
		}
		fixed := regexp.MustCompile(`(?: ?\[|\.\.\.| [A-Z]).*`).ReplaceAllString(strings.TrimPrefix(use.line, "sudo "), "")
		var all strings.Builder
		for i, one := range use.runs {
			if i == 0 && !strings.HasPrefix(one.command, fixed) {
				t.Errorf("%q is not what README says: %q", one.command, fixed)
			}
			all.WriteString(one.command + " ")
		}
		all.WriteString(strings.Join(nodesFlags, " "))
		words := regexp.MustCompile(`[^a-z-]`).Split(all.String(), -1)
		for _, option := range regexp.MustCompile(`(?:^|[ \[(])(--?[a-z][a-z-]*)`).FindAllStringSubmatch(use.line+" "+said.about[use.line], -1) {
			if !slices.Contains(words, option[1]) {
				t.Errorf("README says %s of %q, which is not tried", option[1], use.line)
			}
		}
		for _, choice := range regexp.MustCompile(`\[([^]]*)\]`).FindAllStringSubmatch(use.line, -1) {
			for _, word := range regexp.MustCompile(`[a-z]{2,}`).FindAllString(choice[1], -1) {
				if !slices.Contains(words, word) && !slices.Contains(words, "--"+word) {
					t.Errorf("README has a choice %s in %q, which is not tried", word, use.line)
				}
			}
		}
	}
	for _, command := range said.commands {
		if !slices.Contains(tried, command) && !slices.ContainsFunc(services, func(s string) bool { return strings.HasPrefix(command, s) }) {
			t.Errorf("README's command is not tried: %s", command)
		}
	}
	for _, command := range said.within {
		begins := func(c string) bool { return strings.HasPrefix(c, command) }
		if slices.ContainsFunc(said.commands, begins) || slices.Contains(tooLong, command) {
			continue
		}
		if !slices.ContainsFunc(inSentences, func(u use) bool { return u.line == command }) {
			t.Errorf("README speaks of %q, which is not tried", command)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// firstSteps are the first lines that a newcomer types at a shell, in this order.
var firstSteps = []string{
	"go run -v ./cmd/playlet dev --install", "go build -o bin/ ./cmd/playlet", "PATH=$PWD/bin:$PATH",
}

// services are how README's agents begin: one alone, and one of a cluster.
var services = []string{"playlet --pod-manifest-path=", "playlet --config="}

// tooLong are commands that README speaks of and that are the test itself.
var tooLong = []string{"go run ./.ci/check"}

// followsTheFirstSteps follows the beginning of README at the newcomer's shell. The demo only leaves packages.
func (m *newcomer) followsTheFirstSteps(said sayings) {
	t := m.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	defer cancel()
	shell := m.command(ctx, "bash", "--norc", "-i")
	shell.Env = append(slices.DeleteFunc(shell.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=") }),
		"PATH="+newcomersPath, "TERM=dumb")
	y := typing(t, shell)
	succeeds := func() {
		t.Helper()
		y.key("echo code=$?\n")
		y.sees("\ncode=0\r\n")
	}
	y.key("cd " + clone + "\n")
	succeeds() // the shell runs now, and nsenter no longer
	before, files := machine(t), m.files()
	y.key(said.command(t, "go run ") + "\n")
	y.sees("Debian packages that are missing here are unpacked into " + home + "/.cache/playlet/parts, and stay there: " +
		"containerd runc containernetworking-plugins busybox-static\r\n")
	y.sees("A Debian package that is missing here is installed, and stays: iptables\r\n")
	y.sees("Reach the sample pod:  http://") // there is neither curl nor wget
	y.sees("A shell in it:")
	y.sees("Ctrl-C")
	url := regexp.MustCompile(`Reach the sample pod:  (http\S+)`).FindStringSubmatch(y.out.String())
	if url == nil {
		t.Fatal("how to reach the pod is not printed")
	}
	greets(t, url[1])
	y.key("\x03")
	y.sees("the machine is as it was\r\n")
	// `go run` itself may end with 1 after Ctrl-C; it names the exit status of a program that failed.
	y.key("echo over=$?\n")
	y.sees("\nover=")
	if text := y.out.String(); strings.Contains(text, "exit status") {
		t.Error("the demo has failed at its end")
	}
	asBefore(t, before)
	for _, file := range m.files() {
		if !slices.Contains(files, file) {
			t.Errorf("the demo has left %s", file)
		}
	}
	y.key(said.command(t, "go build ") + "\n")
	succeeds()
	y.key(said.command(t, "PATH=") + "\n")
	y.key("command -v playlet\n")
	y.sees("\n" + clone + "/bin/playlet")
	y.key("exit\n")
	y.ends(0)
}

// files returns the machine's files in places writable by a program, and its mounts, without files of packages, of their
// installation, and of builds.
func (m *newcomer) files() []string {
	m.t.Helper()
	return strings.Split(m.runs(`cat /var/lib/dpkg/info/*.list | sort -u > /.packages
find /etc /home /mnt /opt /run /srv /tmp /var ! -path '/var/lib/dpkg/*' ! -path '/var/lib/apt/*' ! -path '/var/cache/*' ! -path '/var/log/*' \
	! -path '/etc/*.cache' ! -path '/etc/alternatives/*' ! -path /etc/hosts ! -path /etc/networks ! -path '/srv/playlet.git/*' | sort | comm -23 - /.packages
mount
rm /.packages`, 0), "\n")
}
