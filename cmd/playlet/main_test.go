package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

func TestHelpListsTheCommands(t *testing.T) {
	var out, problems bytes.Buffer
	if code := cli.Main(newRoot(), []string{"--help"}, &out, &problems); code != 0 || problems.Len() > 0 {
		t.Fatalf("%d %s", code, &problems)
	}
	for _, name := range strings.Fields("dev doctor exec install logs pods rm run top uninstall version") {
		if !strings.Contains(out.String(), "\n  "+name+" ") {
			t.Errorf("%s is not listed:\n%s", name, &out)
		}
	}
}

func TestWrongUseIsOneLine(t *testing.T) {
	for arg, want := range map[string]string{
		"--nonsense": "playlet: unknown flag: --nonsense (playlet --help lists the flags)\n",
		"nonsense":   "playlet: unknown command \"nonsense\" (playlet --help lists the commands)\n",
	} {
		var out, problems bytes.Buffer
		if code := cli.Main(newRoot(), []string{arg}, &out, &problems); code != 1 || problems.String() != want || out.Len() > 0 {
			t.Errorf("%s: %d %q %q, want %q", arg, code, &problems, &out, want)
		}
	}
}
