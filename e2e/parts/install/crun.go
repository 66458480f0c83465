package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
)

// Crun is the other OCI runtime: a program, and the folder of a library that it takes beside those that every Debian has.
type Crun struct{ Program, Libraries string }

// crunDir holds Debian 12's packages of it, unpacked and not installed.
const crunDir = "debian-12-crun-1.8.1"

var crunPackages = []struct{ name, upstream string }{{"crun", "1.8.1"}, {"libyajl2", "2.1.0"}}

// Env returns the environment of a process that runs the program.
func (c Crun) Env() []string { return []string{"LD_LIBRARY_PATH=" + c.Libraries} }

// EnsureCrun gets crun as Ensure gets runtimes.
func EnsureCrun(ctx context.Context, log io.Writer) error {
	return locked(ctx, log, func(j *job) error {
		return j.place(crunDir, func(dir string) error {
			if err := j.canApt("Debian 12's crun"); err != nil {
				return err
			}
			return j.step("downloading Debian 12's crun 1.8.1", func() error {
				err := j.aptUpdate()
				for _, p := range crunPackages {
					if err == nil {
						err = j.unpack(p.name, p.upstream, dir)
					}
				}
				if err != nil {
					return err
				}
				c, err := crunIn(dir)
				if err != nil {
					return err
				}
				// A missing library shows here rather than as a sandbox that does not start.
				version := exec.CommandContext(ctx, c.Program, "--version")
				version.Env = c.Env()
				return run(version)
			})
		})
	})
}

// LocateCrun returns the parts that EnsureCrun installed; the error has the remedy.
func LocateCrun() (Crun, error) {
	cache, err := cacheDir()
	if err != nil {
		return Crun{}, err
	}
	c, err := crunIn(filepath.Join(cache, crunDir))
	if err != nil {
		return Crun{}, fmt.Errorf("%w: run `go run ./e2e/parts`", err)
	}
	return c, nil
}

func crunIn(dir string) (Crun, error) {
	libraries, err := filepath.Glob(filepath.Join(dir, "usr/lib/*/libyajl.so.2"))
	if err != nil {
		return Crun{}, err
	}
	if len(libraries) != 1 {
		return Crun{}, errors.New("crun is not complete in " + dir)
	}
	return Crun{Program: filepath.Join(dir, "usr/bin/crun"), Libraries: filepath.Dir(libraries[0])}, nil
}
