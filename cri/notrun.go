package cri

import "regexp"

// NotRun is the reason that a command could not be run in a container, as a shell's exit code.
type NotRun int

// Exit codes of a command that could not be run.
const (
	NotFound   NotRun = 127 // there is no such command
	NotAllowed NotRun = 126 // not executable, or a directory
)

// notRunWords match messages of OCI runtimes, which have no codes for this failure. The first group is the command, if the
// message names it. They were observed with runc 1.1 and 1.5, crun 0.1 to 1.29, runsc and kata-containers; CRI-O passes them on,
// on the command's stderr.
var notRunWords = []struct {
	words *regexp.Regexp
	why   NotRun
}{
	{regexp.MustCompile(`exec: \\?"([^"\\]+)\\?": (?:executable file not found|(?:stat [^:]*: )?no such file)`), NotFound}, // runc
	{regexp.MustCompile("executable file (?:[`']([^`']+)['`] )?not found"), NotFound},                                      // crun
	{regexp.MustCompile(`open executable: No such file`), NotFound},                                                        // crun before 0.15
	{regexp.MustCompile(`error finding executable "([^"]+)" in PATH`), NotFound},                                           // runsc
	{regexp.MustCompile(`failed to load (\S+): no such file`), NotFound},                                                   // runsc
	{regexp.MustCompile(`the file (\S+) was not found`), NotFound},                                                         // kata
	{regexp.MustCompile(`exec: \\?"([^"\\]+)\\?": (?:(?:stat [^:]*: )?permission denied|is a directory)`), NotAllowed},     // runc
	// crun
	{regexp.MustCompile("(?:open executable|executable file|path) ?(?:[`']([^`']+)['`])?[^:]*: " +
		"(?:Permission denied|Is a directory|Operation not permitted)"), NotAllowed},
	{regexp.MustCompile(`failed to load (\S+): permission denied`), NotAllowed}, // runsc
}

// WhyNotRun finds in an OCI runtime's message the reason that a command could not be run, and the command if it is named. It
// returns 0 if the message has another subject.
func WhyNotRun(text string) (why NotRun, command string) {
	for _, w := range notRunWords {
		if found := w.words.FindStringSubmatch(text); found != nil {
			if len(found) > 1 {
				command = found[1]
			}
			return w.why, command
		}
	}
	return 0, ""
}
