// Command playlet is the node agent and its sub-commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main without the process: an exit code comes back. An error is one line on stderr.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		if ended, ok := errors.AsType[*exitError](err); ok {
			if ended.err != nil {
				fmt.Fprintf(stderr, "playlet: %s\n", oneLine(err))
			}
			return ended.code
		}
		fmt.Fprintf(stderr, "playlet: %s\n", oneLine(err))
		return 1
	}
	return 0
}

func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
