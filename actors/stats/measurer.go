package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// measurer measures the space that one pod uses on the node's disks.
type measurer struct {
	rootDir, podLogsDir string
	pod                 *v1.Pod
	batch               func()         // called after each batch of names; it may block
	report              func(podUsage) // called with partial figures now and then

	u        podUsage
	reported time.Time
}

// undisturbed records whether files were removed or moved during a walk, and returns its error unless that is errDisturbed.
func (m *measurer) undisturbed(err error) error {
	if errors.Is(err, errDisturbed) {
		m.u.disturbed = true
		return nil
	}
	m.u.disturbed = m.u.disturbed || errors.Is(err, errMoved)
	return err
}

// asked are the kinds of volumes that are not walked, since their drivers or file systems report the usage: they may have any
// size, and may be on a hanging server.
var asked = []string{"kubernetes.io~csi", "kubernetes.io~local-volume", "kubernetes.io~nfs",
	"kubernetes.io~iscsi"}

// measure walks the pod's files. With an error the figures are lower bounds.
func (m *measurer) measure(ctx context.Context) podUsage {
	began := time.Now()
	m.u, m.reported = podUsage{volumes: map[string]space{}, logs: map[string]space{}, err: errInProgress}, began
	err := errors.Join(m.volumes(ctx), m.logs(ctx))
	m.u.err, m.u.partial, m.u.took = err, err != nil || m.u.disturbed, time.Since(began)
	return m.u
}

// progress is called after each batch of names.
func (m *measurer) progress() {
	if now := time.Now(); now.Sub(m.reported) >= publishEvery {
		m.reported = now
		m.report(m.u)
	}
	m.batch()
}

// volumes measures the volumes in the pod's folder, <root-dir>/pods/<uid>/volumes/<plugin>/<volume>, and the files beside them:
// etc-hosts, and the termination logs containers/<container>/<attempt>.
func (m *measurer) volumes(ctx context.Context) error {
	root, err := open(filepath.Join(m.rootDir, "pods"), string(m.pod.UID))
	if root == nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	var hosts space
	if info, err := root.Lstat("etc-hosts"); err == nil && info.Mode().IsRegular() {
		hosts = fileSpace(info)
	}
	keep := func(s space) {
		m.u.kept = space{used: hosts.used + s.used, inodesUsed: hosts.inodesUsed + s.inodesUsed}
		m.progress()
	}
	words, err := usedSoFar(ctx, root, "containers", keep)
	keep(words)
	errs := []error{m.undisturbed(err)}
	plugins, err := root.Names("volumes")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(append(errs, err)...)
	}
	for _, plugin := range plugins {
		if slices.Contains(asked, plugin) {
			continue
		}
		names, err := root.Names(filepath.Join("volumes", plugin))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, name := range names {
			put := func(s space) {
				m.u.volumes[name] = s
				m.progress()
			}
			s, err := usedByVolume(ctx, root, filepath.Join("volumes", plugin, name), put)
			if err = m.undisturbed(err); err != nil {
				errs = append(errs, fmt.Errorf("volume %s: %w", name, err))
			}
			if !s.at.IsZero() {
				put(s)
			}
		}
	}
	return errors.Join(errs...)
}

// logs measures the pod's folder of logs, which has one for each container.
func (m *measurer) logs(ctx context.Context) error {
	root, err := open(m.podLogsDir, m.pod.Namespace+"_"+m.pod.Name+"_"+string(m.pod.UID))
	if root == nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	names, err := root.Names(".")
	errs := []error{err}
	for _, name := range names {
		info, err := root.Lstat(name)
		switch {
		case err != nil: // the folder was removed
		case info.IsDir():
			put := func(s space) {
				m.u.logs[name] = s
				m.progress()
			}
			s, err := usedSoFar(ctx, root, name, put)
			put(s)
			errs = append(errs, m.undisturbed(err))
		case info.Mode().IsRegular():
			s := fileSpace(info)
			m.u.podLogs.used, m.u.podLogs.inodesUsed = m.u.podLogs.used+s.used, m.u.podLogs.inodesUsed+1
		}
	}
	return errors.Join(errs...)
}

// open opens a folder of a pod. It returns nil without an error if there is none.
func open(dir, name string) (*safepath.Root, error) {
	if dir == "" || safepath.CheckElement(name) != nil {
		return nil, nil //nolint:nilnil // a pod with such a name has no folder
	}
	root, err := safepath.OpenRoot(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return nil, err
	}
	sub, err := root.Sub(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return sub, errors.Join(err, root.Close())
}

func fileSpace(info fs.FileInfo) space {
	return space{used: uint64(info.Size()), inodesUsed: 1} //nolint:gosec // no file has less than nothing
}
