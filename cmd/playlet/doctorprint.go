package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/cmd/playlet/doctor"
)

// doctorReport is what the command prints for programs.
type doctorReport struct {
	// Fit says that nothing fails.
	Fit      bool             `json:"fit"`
	Findings []doctor.Finding `json:"findings"`
	// The number of findings by result.
	OK   int `json:"ok"`
	Warn int `json:"warn"`
	Fail int `json:"fail"`
	Skip int `json:"skip"`
}

func newDoctorReport(findings []doctor.Finding) doctorReport {
	n := doctor.Count(findings)
	if findings == nil {
		findings = []doctor.Finding{}
	}
	return doctorReport{n[doctor.Fail] == 0, findings, n[doctor.OK], n[doctor.Warn], n[doctor.Fail], n[doctor.Skip]}
}

// colours of results, by their codes of ECMA-48.
var colours = map[doctor.Result]string{doctor.OK: "32", doctor.Warn: "33", doctor.Fail: "31", doctor.Skip: "90"}

// printFindings prints a line for each, and below it what to do.
func printFindings(w io.Writer, findings []doctor.Finding) error {
	colour := wantsColour(w)
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
		fmt.Fprintf(&text, "%s  %-*s  %s\n", result, width, f.Check, plain(f.Seen))
		if f.Do != "" {
			fmt.Fprintf(&text, "%*s→ %s\n", len("fail")+2+width+2, "", plain(f.Do))
		}
	}
	n := doctor.Count(findings)
	fmt.Fprintf(&text, "\n%d ok, %d to be warned of, %d failed, %d not looked at\n", n[doctor.OK], n[doctor.Warn], n[doctor.Fail], n[doctor.Skip])
	_, err := io.WriteString(w, text.String())
	return err
}

// wantsColour says whether w is a terminal whose user has nothing against colours (no-color.org).
func wantsColour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// showProgress shows on a terminal what is still looked at, in one line that done takes away.
func showProgress(w io.Writer, all int) (show func(left []string), done func()) {
	if !isTerminal(w) {
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
