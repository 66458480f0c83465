package iscsi

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/program"
	"github.com/playlet-dev/playlet/messages"
)

const (
	command  = "iscsiadm"
	packages = "open-iscsi or iscsi-initiator-utils" // of Debian and of Fedora
	// callTimeout is longer than the two minutes for which iscsid retries a login by default, so that its own error is reported.
	callTimeout = 150 * time.Second
)

// Exit codes of iscsiadm (open-iscsi 2.1, iscsi_err.h).
const (
	exitSessionAbsent = 2
	exitNoInterface   = 6
	exitExists        = 15
	exitNoRecord      = 21
)

// meaning is the cause of an exit code.
type meaning struct {
	code  messages.CauseCode
	words string
}

var meanings = map[int]meaning{
	4:  {messages.CauseServerUnreachable, "the portal does not accept connections"},
	8:  {messages.CauseServerUnreachable, "the portal does not answer"},
	11: {messages.CauseServerUnreachable, "the portal does not answer"},
	5:  {messages.CauseTargetRefused, "the target refuses the login"},
	19: {messages.CauseTargetRefused, "the target refuses the login: it is not there, or does not permit this initiator"},
	24: {messages.CauseTargetCredentials, "the target refuses the credentials (CHAP)"},
	6:  {messages.CauseISCSIInterface, "the iscsiInterface is unknown to open-iscsi"},
	7:  {messages.CauseISCSIInterface, "the iscsiInterface cannot be used: its transport is absent"},
	12: {messages.CauseISCSIInterface, "the node's kernel does not have the transport of the iscsiInterface"},
	14: {messages.CauseISCSIInterface, "the transport does not support the settings of the iscsiInterface"},
	18: {messages.CauseISCSIDaemon, "iscsid does not answer on the node"},
	20: {messages.CauseISCSIDaemon, "iscsid does not run on the node"},
}

// callError is the error of iscsiadm with its exit code.
type callError struct {
	error
	exit int
}

func (e callError) Unwrap() error { return e.error }

// exits reports whether an error is one of iscsiadm with one of the exit codes.
func exits(err error, codes ...int) bool {
	e, is := errors.AsType[callError](err)
	return is && slices.Contains(codes, e.exit)
}

// Find returns the path of iscsiadm. The error has its cause.
func Find() (string, error) {
	for _, name := range []string{command, "/usr/sbin/" + command, "/sbin/" + command} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", messages.Cause{Code: messages.CauseMountProgramAbsent, Name: command, Detail: packages}.Errorf(
		"iscsi needs the program %s of the package %s, which is not installed on this node", command, packages)
}

// run runs iscsiadm. about is the target and the portal, for the error. No argument is secret: all users of the node see them.
func run(ctx context.Context, about string, args ...string) (output string, err error) {
	path, err := Find()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	output, err = program.Run(ctx, path, args...)
	if err == nil {
		return output, nil
	}
	why, words := messages.Cause{Name: about}, "iscsiadm fails"
	failed := callError{exit: -1}
	if e, is := errors.AsType[*exec.ExitError](err); is {
		failed.exit = e.ExitCode()
	}
	if m, is := meanings[failed.exit]; is {
		why.Code, words = m.code, m.words
	}
	if ctx.Err() != nil {
		why.Code, words = messages.CauseServerUnreachable, "iscsiadm was stopped before the portal answered"
	}
	if output = strings.Join(strings.Fields(output), " "); output == "" {
		output = err.Error()
	}
	failed.error = why.Errorf("%s: %s (%s)", about, words, output)
	return "", failed
}
