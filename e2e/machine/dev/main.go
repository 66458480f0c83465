// Command dev opens a shell in a virtual machine, which is gone when the shell ends. The files of $PLAYLET_FILES, a folder, are
// below /srv/files there; those below bin where it is not set.
//
//	go run ./e2e/machine/dev -release trixie
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

func main() {
	release := flag.String("release", string(install.Bookworm), "release of Debian: bookworm or trixie")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, install.Release(*release)); err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, release install.Release) (err error) {
	if err := install.EnsureGuest(ctx, os.Stderr, release); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "machine")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := machine.New(dir, machine.Options{Release: release, Files: cmp.Or(os.Getenv("PLAYLET_FILES"), "bin")})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "machine: booting Debian's", release, "under emulation, which takes about a minute")
	if err := m.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Kill()) }()
	fmt.Fprintln(os.Stderr, "machine: the files are below", machine.FilesPath, "and the host is", machine.HostAddress+"; exit ends the machine")
	return m.Shell(ctx)
}
