package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// golangci is pinned here, and runs from source: nothing has to be installed.
const golangci = "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"

// steps returns all steps, in an order that finds cheap mistakes first and builds nothing twice: there are three ways to compile
// the tree, each shared by as many steps as possible. plain is also the way of `task build`.
func steps(fuzztime string) []step {
	return []step{
		{"build", "bin/playlet", build},
		// First, as later steps need the Debian packages that it installs.
		{"parts", "parts for end-to-end tests", command(plain, "go", "run", "./e2e/parts")},
		{"lint", "gofmt", gofmt},
		{"lint", "go vet", command(plain, "go", "vet", "-tags=e2e", "./...", "./.ci/check", "./.ci/package")},
		{"lint", "golangci-lint", command(plain, "go", "run", golangci, "run", "./...", "./.ci/check", "./.ci/package")},
		{"lint", "plain English", plainEnglish},
		{"lint", "licences", licences},
		{"vulnerabilities", "govulncheck", vulnerabilities},
		{"unit", "unit tests with -race",
			// Four packages at once, and twelve tests of one, as most of them wait for deadlines. With more, they compete for the
			// two cores, check their clocks while waiting, and take twice the CPU altogether. The longest package is first: it
			// takes as long as all the others.
			goTest(withRace, false, "-race", "-vet=off", "-p=4", "-parallel=12", "-timeout=45m", "./cmd/playlet/agent", "./...",
				"./.ci/check", "./.ci/package")},
		{"fuzz", "fuzzing", fuzz(fuzztime)},
		{"e2e", "end-to-end tests", e2e},
	}
}

// build compiles bin/playlet, which the end-to-end tests of this run then use. With -v Go names each package that it compiled.
func build(ctx context.Context, out io.Writer) (tally, error) {
	dir, err := os.Getwd()
	if err != nil {
		return tally{}, err
	}
	version, err := output(ctx, nil, "git", "-c", "safe.directory=*", "describe", "--tags", "--always", "--dirty")
	if err != nil {
		version = "unknown" // not a git checkout
	}
	binary := filepath.Join(dir, "bin", "playlet")
	flags := "-s -w -X github.com/playlet-dev/playlet/cmd/playlet/version.Build=" + strings.TrimSpace(version)
	if t, err := command(plain, "go", "build", "-v", "-ldflags", flags, "-o", binary, "./cmd/playlet")(ctx, out); err != nil {
		return t, err
	}
	return tally{passed: 1}, os.Setenv("PLAYLET_BINARY", binary)
}

// The ways to compile. The caller's GOFLAGS are ignored, so that a run is the same everywhere; the commit is not stamped, as git
// refuses a checkout of another user. Without paths in it the build cache serves other checkouts, too.
var (
	plain    = []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off"}
	withRace = []string{"CGO_ENABLED=1", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off"}
)

// started returns a command that is interrupted when the context ends, and killed a while later.
func started(ctx context.Context, env []string, out io.Writer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// output runs a command and returns its standard output.
func output(ctx context.Context, env []string, args ...string) (string, error) {
	var out strings.Builder
	cmd := started(ctx, env, &out, args...)
	cmd.Stderr = os.Stderr
	err := cmd.Run()
	return out.String(), err
}

// command returns a step that passes if a command succeeds.
func command(env []string, args ...string) func(context.Context, io.Writer) (tally, error) {
	return func(ctx context.Context, out io.Writer) (tally, error) {
		if err := started(ctx, env, out, args...).Run(); err != nil {
			return tally{}, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
		return tally{passed: 1}, nil
	}
}

// gofmt passes if every Go file of the tree is formatted.
func gofmt(ctx context.Context, out io.Writer) (tally, error) {
	list, err := output(ctx, nil, "gofmt", "-l", ".")
	if err != nil {
		return tally{}, err
	}
	fmt.Fprint(out, list)
	if list != "" {
		return tally{}, errors.New("files above: run gofmt -w on them")
	}
	return tally{passed: 1}, nil
}
