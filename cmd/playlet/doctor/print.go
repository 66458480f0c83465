package doctor

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

// report is what the command prints for programs.
type report struct {
	// Fit says that nothing fails.
	Fit      bool      `json:"fit"`
	Findings []Finding `json:"findings"`
	// The number of findings by result.
	OK   int `json:"ok"`
	Warn int `json:"warn"`
	Fail int `json:"fail"`
	Skip int `json:"skip"`
}

func newReport(findings []Finding) report {
	n := Count(findings)
	if findings == nil {
		findings = []Finding{}
	}
	return report{n[Fail] == 0, findings, n[OK], n[Warn], n[Fail], n[Skip]}
}

// colours of results, by their codes of ECMA-48.
var colours = map[Result]string{OK: "32", Warn: "33", Fail: "31", Skip: "90"}

// printFindings prints a line for each, and below it what to do.
func printFindings(w io.Writer, findings []Finding) error {
	colour := cli.WantsColour(w)
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	var text strings.Builder
	for _, f := range findings {
		result := fmt.Sprintf("%-4s", f.Result)
		if colour {
			result = "\x1b[" + colours[f.Result] + "m" + result + "\x1b[0m"
		}
		fmt.Fprintf(&text, "%s  %-*s  %s\n", result, width, f.Check, cli.Plain(f.Seen))
		if f.Do != "" {
			fmt.Fprintf(&text, "%*s→ %s\n", len("fail")+2+width+2, "", cli.Plain(f.Do))
		}
	}
	n := Count(findings)
	fmt.Fprintf(&text, "\n%d ok, %d to be warned of, %d failed, %d not looked at\n", n[OK], n[Warn], n[Fail], n[Skip])
	_, err := io.WriteString(w, text.String())
	return err
}

// showProgress shows on a terminal what is still looked at, in one line that done takes away.
func showProgress(w io.Writer, all int) (show func(left []string), done func()) {
	if !cli.IsTerminal(w) {
		return nil, func() {}
	}
	const wipe = "\r\x1b[K"
	var mu sync.Mutex
	show = func(left []string) {
		mu.Lock()
		defer mu.Unlock()
		const most = 4
		names := strings.Join(left[:min(most, len(left))], ", ")
		if len(left) > most {
			names += " …"
		}
		fmt.Fprintf(w, "%s%d of %d done; waiting for %s", wipe, all-len(left), all, names)
	}
	return show, func() { fmt.Fprint(w, wipe) }
}
