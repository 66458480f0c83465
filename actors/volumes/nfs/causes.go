package nfs

import (
	"fmt"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/messages"
)

// meaning is the cause that a part of mount.nfs' output shows. The first in the list counts.
type meaning struct {
	part  string
	code  messages.CauseCode
	words string
}

var meanings = []meaning{
	{"Failed to resolve", messages.CauseServerUnresolved, "the name of the server cannot be resolved"},
	{"Name or service not known", messages.CauseServerUnresolved, "the name of the server cannot be resolved"},
	{"Temporary failure in name resolution", messages.CauseServerUnresolved, "the name of the server cannot be resolved"},
	{"Connection refused", messages.CauseServerUnreachable, "the server refuses connections: no nfs server runs there"},
	{"No route to host", messages.CauseServerUnreachable, "there is no route to the server"},
	{"Network is unreachable", messages.CauseServerUnreachable, "there is no route to the server"},
	{"Host is down", messages.CauseServerUnreachable, "the server does not answer"},
	{"timed out", messages.CauseServerUnreachable, "the server does not answer"},
	{"Connection reset", messages.CauseServerUnreachable, "the server ended the connection"},
	{"rpc.statd is not running", messages.CauseLocksAbsent, "nfs version 3 needs rpc.statd for locks, and it does not run"},
	{"access denied by server", messages.CauseExportDenied, "the server denies access to this node"},
	{"Operation not permitted", messages.CauseExportDenied, "the server denies access to this node"},
	{"Permission denied", messages.CauseExportDenied, "the server denies access to this node"},
	{"No such file or directory", messages.CauseExportAbsent, "the server does not export the path"},
	{"is not a directory", messages.CauseExportAbsent, "the path is no folder of the server"},
	{"incorrect mount option", messages.CauseMountOptions, "the mount options %q are not accepted"},
	{"rotocol not supported", messages.CauseMountOptions,
		"server and node have no version of nfs in common, with the mount options %q"},
	{"protocol is not supported", messages.CauseMountOptions,
		"server and node have no version of nfs in common, with the mount options %q"},
	{"No such device", messages.CauseFileSystemAbsent, "the node's kernel has no nfs"},
	{"unknown filesystem type", messages.CauseFileSystemAbsent, "the node's kernel has no nfs"},
}

// failure returns the error of a program that failed, with the cause that its output shows.
func failure(s Source, output string, err error) error {
	printed := strings.Join(strings.Fields(output), " ")
	why, words := messages.Cause{Name: s.Export()}, "it cannot be mounted"
	for _, m := range meanings {
		if strings.Contains(printed, m.part) {
			if why.Code, words = m.code, m.words; m.code == messages.CauseMountOptions {
				words = fmt.Sprintf(words, s.options())
			}
			break
		}
	}
	if printed == "" {
		printed = err.Error()
	}
	return why.Errorf("%s: %s (%s)", s.Export(), words, printed)
}

// Wait is the progress of a mount: mount.nfs runs and waits for the server.
type Wait struct{ export string }

// Overdue returns the error of a mount that has run for so long, and goes on.
func (w Wait) Overdue(after time.Duration) error {
	return unanswered(w.export, fmt.Sprintf("it is still being mounted after %s; that goes on", after))
}

// unanswered returns the error for a server that did not answer in time.
func unanswered(export, text string) error {
	return messages.Cause{Code: messages.CauseServerUnreachable, Name: export}.Errorf("%s: the server does not answer (%s)",
		export, text)
}
