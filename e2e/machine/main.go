package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// Version is the version of Main's Debian package of the agent. Upgrade is another version of the same program, for the tests of
// Releases.
const (
	Version = "1.0.0"
	Upgrade = "1.1.0"
)

// Main runs a package's tests in namespaces of their own, after it made the images that are missing and the packages of
// $PLAYLET_BINARY. Where there are none, Boot skips each test with the reason. It returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(machine.Main(m.Run)) }
func Main(body func() int) int { return isolate.Run(prepare, body) }

// releasesVar names the releases of Debian on which all tests run; without it the short ones run on Bookworm.
const releasesVar = "PLAYLET_MACHINES"

// Releases are the releases of Debian for tests that are no part of every run; none unless $PLAYLET_MACHINES names them.
func Releases() []install.Release {
	var out []install.Release
	for name := range strings.FieldsFuncSeq(os.Getenv(releasesVar), func(r rune) bool { return r == ',' }) {
		out = append(out, install.Release(name))
	}
	return out
}

// DocsDir is the folder for the documents that tests write, of $PLAYLET_MACHINES_DOCS; empty: none.
func DocsDir() string { return os.Getenv("PLAYLET_MACHINES_DOCS") }

// Each runs a test on each of Releases, and skips it where there are none.
func Each(t *testing.T, test func(t *testing.T, release install.Release)) {
	if len(Releases()) == 0 {
		t.Skip("this is a part of task test-machine: $" + releasesVar + " names no releases")
	}
	for _, release := range Releases() {
		t.Run(string(release), func(t *testing.T) { test(t, release) })
	}
}

func prepare(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	releases, versions := Releases(), []string{Version, Upgrade}
	if len(releases) == 0 {
		releases, versions = []install.Release{install.Bookworm}, versions[:1]
	}
	if err := install.EnsureGuest(ctx, os.Stderr, releases...); err != nil {
		fmt.Fprintln(os.Stderr, "machine: there is no virtual machine, and its tests are skipped:", err)
		return ctx.Err()
	}
	for _, release := range releases {
		if err := EnsureBooted(ctx, os.Stderr, release); err != nil {
			fmt.Fprintln(os.Stderr, "machine: each machine boots:", err)
		}
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("the module of the working directory: %w", err)
	}
	binary := os.Getenv("PLAYLET_BINARY")
	if binary != "" {
		if binary, err = filepath.Abs(binary); err != nil {
			return err
		}
	}
	packages := filepath.Join(dir, "packages")
	if err := os.MkdirAll(filepath.Join(dir, "files"), 0o755); err != nil {
		return err
	}
	for _, version := range versions {
		cmd := exec.CommandContext(ctx, "go", "run", "./.ci/package", "-binary", binary, "-arch", "amd64", "-version", "v"+version,
			"-out", packages)
		cmd.Dir = strings.TrimSpace(string(root))
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("packing the agent: %w\n%s", err, out)
		}
		deb := filepath.Base(DebPath(version))
		if err := os.Rename(filepath.Join(packages, deb), filepath.Join(dir, "files", deb)); err != nil {
			return err
		}
	}
	return os.RemoveAll(packages)
}

// Files is the folder with the agent's packages, which Main made. It serves as Options.Files.
func Files() string { return filepath.Join(isolate.Dir(), "files") }

// DebPath is the path in the guest of the package of a version, with Files as Options.Files.
func DebPath(version string) string { return FilesPath + "/playlet_" + version + "_amd64.deb" }
