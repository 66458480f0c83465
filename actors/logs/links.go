package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// Links to logs have names from which log shippers read the pod, the namespace, the container and its ID, as they know
// them of the kubelet's /var/log/containers.
const linkSuffix = ".log"

// maxLinkName is what a file system takes for one name, in bytes.
const maxLinkName = 255

func linkName(pod, namespace, container, id string) string {
	name := pod + "_" + namespace + "_" + container + "-" + id
	return name[:min(len(name), maxLinkName-len(linkSuffix))] + linkSuffix
}

// putLinks makes the links there should be and removes those whose logs are gone. Links that lead elsewhere than to our
// logs are another's. After a change it reads the links of the pods concerned alone.
func (w work) putLinks(ctx context.Context, logs *safepath.Root, found []sight, l look) (err error) {
	if w.opts.LinksDir == "" {
		return nil
	}
	desired, listed, gone := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, s := range found {
		listed[s.link] = true
		// One that is being rotated keeps the link that it has. Names so long that they had to be cut may be the same: one
		// of the logs has it.
		if s.size >= 0 {
			desired[s.link] = max(desired[s.link], filepath.Join(w.opts.PodLogsDir, s.log))
		}
	}
	for _, c := range l.gone {
		gone[c.link] = !listed[c.link]
	}
	if err := host.MakeLogDir(w.opts.LinksDir); err != nil {
		return err
	}
	dir, err := safepath.OpenRoot(w.opts.LinksDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	names := slices.Concat(slices.Collect(maps.Keys(listed)), slices.Collect(maps.Keys(gone)))
	if l.all {
		if names, err = dir.Names("."); err != nil {
			return err
		}
	}
	there := map[string]string{}
	for _, name := range names {
		target, err := dir.Readlink(name)
		if err != nil {
			continue
		}
		there[name] = target
		// The runtime may not have told of each container yet: a link goes when there is nothing at its end.
		if log, ours := w.ours(name, target); ours && l.all && !listed[name] {
			_, err := logs.Lstat(log)
			gone[name] = errors.Is(err, fs.ErrNotExist)
		}
	}
	return w.changeLinks(ctx, dir, desired, there, gone)
}

// ours says whether a link is one of ours, and which log it leads to, below the folder of all logs.
func (w work) ours(name, target string) (log string, ours bool) {
	log, ours = strings.CutPrefix(target, strings.TrimSuffix(w.opts.PodLogsDir, "/")+"/")
	return log, ours && strings.HasSuffix(name, linkSuffix)
}

// changeLinks makes the links that are desired and removes those that are gone, by name. A link of ours that leads to the
// wrong log goes first and is then made anew.
func (w work) changeLinks(ctx context.Context, dir *safepath.Root, desired, there map[string]string, gone map[string]bool) error {
	var errs []error
	for name, target := range there {
		right, isDesired := desired[name]
		if _, ours := w.ours(name, target); !ours || !(isDesired && right != target || !isDesired && gone[name]) {
			continue
		}
		if err := dir.Unlink(name); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for name, target := range desired {
		if there[name] == target {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		err := dir.Symlink(target, name)
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s is there and is not a link to a log of ours; it is left alone", name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
