// Package install gets the parts that the end-to-end tests run: containerd, its shim, ctr, runc and the CNI plugins, in a new
// and in an old version; and a cluster's: kube-apiserver, etcd, kubectl and, to compare with, the kubelet. The old runtime is
// Debian 12's packages, unpacked beside and never installed; all else is built from pinned Go modules. Each part lies in a
// directory named after its version, which appears only when it is complete, so that a stopped run leaves nothing half done and
// a changed pin builds that part alone.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Kind is one of the two runtimes.
type Kind string

// New is containerd 2, with GetContainerEvents and RuntimeConfig. Old is containerd 1.6, which has neither.
const (
	New Kind = "containerd-2"
	Old Kind = "containerd-1.6"
)

// Runtime has the paths of the parts of one runtime, absolute.
type Runtime struct {
	Containerd string
	Shim       string // containerd-shim-runc-v2
	Ctr        string
	Runc       string
	CNIDir     string // holds bridge, host-local, loopback, portmap
}

// Locate returns the parts of a runtime that Ensure installed. It changes nothing and needs no network; the error names the
// missing parts and the remedy.
func Locate(kind Kind) (Runtime, error) {
	cache, err := cacheDir()
	if err != nil {
		return Runtime{}, err
	}
	var r Runtime
	switch kind {
	case New:
		daemon := filepath.Join(cache, containerd.dir())
		r = Runtime{
			Containerd: filepath.Join(daemon, "containerd"),
			Shim:       filepath.Join(daemon, "containerd-shim-runc-v2"),
			Ctr:        filepath.Join(daemon, "ctr"),
			Runc:       filepath.Join(cache, runc.dir(), "runc"),
			CNIDir:     filepath.Join(cache, cniPlugins.dir()),
		}
	case Old:
		root := filepath.Join(cache, debianDir)
		r = Runtime{
			Containerd: filepath.Join(root, "usr/bin/containerd"),
			Shim:       filepath.Join(root, "usr/bin/containerd-shim-runc-v2"),
			Ctr:        filepath.Join(root, "usr/bin/ctr"),
			Runc:       filepath.Join(root, "usr/sbin/runc"),
			CNIDir:     filepath.Join(root, "usr/lib/cni"),
		}
	default:
		return Runtime{}, fmt.Errorf("no runtime %q: there are %s and %s", kind, New, Old)
	}
	needed := []string{r.Containerd, r.Shim, r.Ctr, r.Runc}
	for _, plugin := range []string{"bridge", "host-local", "loopback", "portmap"} {
		needed = append(needed, filepath.Join(r.CNIDir, plugin))
	}
	for _, path := range needed {
		if _, err := os.Stat(path); err != nil {
			return Runtime{}, fmt.Errorf("%s is not complete (%w): run `go run ./e2e/parts`", kind, err)
		}
	}
	return r, nil
}

// Ensure installs the requested runtimes, and the Debian packages that they need. It reports each step on log, in lines; present
// parts cost nothing and are not reported. Concurrent processes wait for one another. A first run takes minutes, and network;
// building runc, and packages, need root.
func Ensure(ctx context.Context, log io.Writer, wanted ...Kind) error {
	return locked(ctx, log, func(j *job) error {
		if err := j.apt(runTools...); err != nil {
			return err
		}
		for _, kind := range wanted {
			var err error
			switch kind {
			case New:
				err = errors.Join(j.build(containerd), j.build(runc), j.build(cniPlugins))
			case Old:
				err = j.unpackDebian()
			}
			if err != nil {
				return err
			}
			if _, err := Locate(kind); err != nil {
				return err
			}
		}
		return nil
	})
}

// locked does work while no other process does any.
func locked(ctx context.Context, log io.Writer, work func(*job) error) error {
	return lockedBy(ctx, log, "lock", work)
}

func lockedBy(ctx context.Context, log io.Writer, name string, work func(*job) error) error {
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(cache, name), log)
	if err != nil {
		return err
	}
	defer unlock()
	return work(&job{ctx: ctx, log: log, cache: cache})
}

// job is one run of Ensure, which holds the lock.
type job struct {
	ctx     context.Context
	log     io.Writer
	cache   string
	updated bool // the package lists were fetched by this run
}

// sign is the interval of progress reports of a long step.
const sign = 30 * time.Second

// step runs one long step and reports its duration now and then.
func (j *job) step(what string, work func() error) error {
	begun := time.Now()
	j.say("%s ...", what)
	result := make(chan error, 1)
	go func() { result <- work() }()
	signs := time.NewTicker(sign)
	defer signs.Stop()
	for {
		select {
		case err := <-result:
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			j.say("%s: done in %.0f s", what, time.Since(begun).Seconds())
			return nil
		case <-signs.C:
			j.say("%s: %.0f s so far", what, time.Since(begun).Seconds())
		}
	}
}

func (j *job) say(format string, args ...any) {
	fmt.Fprintf(j.log, "parts: "+format+"\n", args...)
}

// place fills a directory of the cache through fill, unless it is there; it appears whole or not at all.
func (j *job) place(name string, fill func(dir string) error) error {
	final := filepath.Join(j.cache, name)
	if _, err := os.Stat(final); err == nil {
		return nil
	}
	dir, err := os.MkdirTemp(j.cache, "unfinished-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // renamed away when all went well
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := fill(dir); err != nil {
		return err
	}
	return os.Rename(dir, final)
}

// cacheDir gives $PLAYLET_CACHE/parts, or ~/.cache/playlet/parts.
func cacheDir() (string, error) {
	base := os.Getenv("PLAYLET_CACHE")
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("where to keep parts: set PLAYLET_CACHE: %w", err)
		}
		base = filepath.Join(user, "playlet")
	}
	abs, err := filepath.Abs(base)
	return filepath.Join(abs, "parts"), err
}

// lock takes a file lock, which the kernel gives back when this process ends, however it ends.
func lock(ctx context.Context, path string, log io.Writer) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	reported := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if !reported {
			reported = true
			fmt.Fprintf(log, "parts: another process is getting them (%s is locked): waiting\n", path)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
}
