package dev

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/cli"
	"github.com/playlet-dev/playlet/messages"
)

func TestDevHelps(t *testing.T) {
	var out, problems bytes.Buffer
	if code := run([]string{"dev", "--help"}, &out, &problems); code != 0 || problems.Len() > 0 {
		t.Fatalf("%d %s", code, &problems)
	}
	help := out.String()
	for _, want := range []string{
		"Examples:\n", "  playlet dev --install\n", "  playlet dev --once\n", "  playlet dev --clean\n",
		"--dir folder ", "--programs folders ", "--admin-socket socket ",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("%q is not in\n%s", want, help)
		}
	}
	if strings.Contains(help, "Available Commands") {
		t.Errorf("stages are shown:\n%s", help)
	}
}

func TestDevRefusesInOneLine(t *testing.T) {
	for args, want := range map[string]string{
		"dev --nonsense": "playlet: unknown flag: --nonsense (playlet dev --help lists the flags)\n",
		"dev nonsense":   "playlet: playlet dev takes no arguments, and \"nonsense\" is one (playlet dev --help)\n",
		"dev init /tmp":  "playlet: this is started by playlet dev itself\n",
	} {
		var out, problems bytes.Buffer
		if code := run(strings.Fields(args), &out, &problems); code != 1 || problems.String() != want || out.Len() > 0 {
			t.Errorf("%s: %d %q %q, want %q", args, code, &problems, &out, want)
		}
	}
}

// The notes omit the remedy for the runtime, which `playlet dev` applies itself.
func TestDevNotesAreForOnesOwnContainerd(t *testing.T) {
	n := &api.Node{Unheard: []messages.Address{"sources/file"}}
	n.Runtime.Reason = &api.Reason{Code: "RuntimeUnavailable", Message: "start it (systemctl start containerd)"}
	rest := "sources/file has not reported yet; its pods are not shown"
	if got := nodeNotes(n); !slices.Equal(got, []string{"containerd is not ready: RuntimeUnavailable", rest}) {
		t.Errorf("%q", got)
	}
	n.Runtime = api.Runtime{Ready: true, NetworkReason: "no bridge"}
	if got := nodeNotes(n); len(got) != 2 || !strings.Contains(got[0], "no bridge") || got[1] != rest {
		t.Errorf("%q", got)
	}
}

// run is playlet with these arguments.
func run(args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{Use: "playlet"}
	root.AddCommand(NewCommand())
	return cli.Main(root, args, stdout, stderr)
}
