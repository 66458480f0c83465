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

// golangci is pinned here, and runs from source: nothing needs to be installed.
const golangci = "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0"

// steps is what there is to run, in an order that finds cheap mistakes first and builds nothing twice: there are three
// ways to compile the tree, each shared by all steps that can. plain is also how `task build` compiles.
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
			// Four packages at once, and twelve tests of one, as most of them wait for deadlines. Where more run at once they
			// wait for the two cores, look at their clocks meanwhile, and take twice the CPU altogether.
			goTest(withRace, false, "-race", "-vet=off", "-p=4", "-parallel=12", "-timeout=45m", "./...", "./.ci/check",
				"./.ci/package")},
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
		version = "unknown" // no checkout of git
	}
	binary := filepath.Join(dir, "bin", "playlet")
	flags := "-s -w -X github.com/playlet-dev/playlet/cmd/playlet/version.Build=" + strings.TrimSpace(version)
	if t, err := command(plain, "go", "build", "-v", "-ldflags", flags, "-o", binary, "./cmd/playlet")(ctx, out); err != nil {
		return t, err
	}
	return tally{passed: 1}, os.Setenv("PLAYLET_BINARY", binary)
}

// The ways to compile. GOFLAGS of the caller do not take part, so that a run here is a run anywhere; the commit is not
// stamped, as git refuses a checkout of another user's. Without paths in it what was compiled serves another checkout, too.
var (
	plain    = []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off"}
	withRace = []string{"CGO_ENABLED=1", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off"}
)

// started gives a command that is asked to end when the context does, and killed when it has not a while later.
func started(ctx context.Context, env []string, out io.Writer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// output runs a command and gives its standard output.
func output(ctx context.Context, env []string, args ...string) (string, error) {
	var out strings.Builder
	cmd := started(ctx, env, &out, args...)
	cmd.Stderr = os.Stderr
	err := cmd.Run()
	return out.String(), err
}

// command is a step that passes when a command does.
func command(env []string, args ...string) func(context.Context, io.Writer) (tally, error) {
	return func(ctx context.Context, out io.Writer) (tally, error) {
		if err := started(ctx, env, out, args...).Run(); err != nil {
			return tally{}, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
		return tally{passed: 1}, nil
	}
}

// gofmt passes when every Go file of the tree is as gofmt writes it.
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
