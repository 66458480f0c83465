// Command package builds a release into one folder: a .deb, an .rpm and a tarball for each architecture, a list of the modules in
// the program (SBOM, CycloneDX), and checksums. The same commit gives the same bytes. It only needs Go.
//
//	go run ./.ci/package -out dist -version v1.2.3
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// nfpm builds the packages. It is pinned here and runs from source: newer versions need modules that are not available
// everywhere.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0"

func main() {
	out := flag.String("out", "dist", "`folder` that everything is written to")
	version := flag.String("version", "", "`version` of the packages, as v1.2.3; by default what git describe says")
	arches := flag.String("arch", "amd64,arm64", "architectures, comma-separated")
	binary := flag.String("binary", "", "a built `program` of this machine's architecture, which alone is packed; by default programs are built")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *binary != "" {
		*arches = runtime.GOARCH
	}
	if err := release(ctx, *out, *version, *binary, strings.Split(*arches, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

// release builds the program for each architecture and packs it. A program that was built before is packed unchanged.
func release(ctx context.Context, out, version, built string, arches []string) error {
	if version == "" {
		described, err := git(ctx, "describe", "--tags", "--always", "--dirty")
		if err != nil {
			return err
		}
		version = described
	}
	seconds, err := git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	var at int64
	if _, err := fmt.Sscan(seconds, &at); err != nil {
		return fmt.Errorf("the time of the commit: %w", err)
	}
	work, err := os.MkdirTemp("", "package")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	host := filepath.Join(work, runtime.GOARCH)
	binaries := map[string]string{}
	for _, arch := range append(arches, runtime.GOARCH) {
		if built != "" {
			host, binaries[arch] = built, built
			continue
		}
		binaries[arch] = filepath.Join(work, arch)
		if err := build(ctx, binaries[arch], arch, version); err != nil {
			return err
		}
	}
	docs := filepath.Join(work, "docs")
	if err := document(ctx, host, docs); err != nil {
		return err
	}
	for _, arch := range arches {
		p := pack{arch: arch, version: version, binary: binaries[arch], docs: docs, out: out, at: time.Unix(at, 0).UTC()}
		if err := p.make(ctx); err != nil {
			return err
		}
	}
	return checksums(out)
}

func git(ctx context.Context, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}

// build compiles the program as `task build` does, without traces of this machine.
func build(ctx context.Context, to, arch, version string) error {
	const name = "github.com/playlet-dev/playlet/cmd/playlet/version.Build="
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w -X "+name+version, "-o", to, "./cmd/playlet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath", "GOOS=linux",
		"GOARCH="+arch)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building for %s: %w", arch, err)
	}
	return nil
}

// completions are the completion files by shell.
var completions = map[string]string{
	"bash": "/usr/share/bash-completion/completions/playlet",
	"zsh":  "/usr/share/zsh/vendor-completions/_playlet",
	"fish": "/usr/share/fish/vendor_completions.d/playlet.fish",
}

// document runs the program to write its manual and its completions into a folder.
func document(ctx context.Context, binary, folder string) error {
	manual := filepath.Join(folder, "man")
	if err := os.MkdirAll(manual, 0o700); err != nil {
		return err
	}
	run := func(args ...string) ([]byte, error) {
		var text, problems bytes.Buffer
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Env = append(os.Environ(), "PLAYLET_SOCKET=") // the default of a flag, which the manual shows
		cmd.Stdout, cmd.Stderr = &text, &problems
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("playlet %s: %w: %s", strings.Join(args, " "), err, &problems)
		}
		return text.Bytes(), nil
	}
	if _, err := run("man", manual); err != nil {
		return err
	}
	for shell := range completions {
		text, err := run("completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, shell), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
