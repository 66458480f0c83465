package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/safepath"
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
// logs are another's.
func (w work) putLinks(ctx context.Context, found []sight) (err error) {
	if w.opts.LinksDir == "" {
		return nil
	}
	wanted := map[string]string{}
	for _, s := range found {
		// One that is being rotated keeps the link that it has. Names so long that they had to be cut may be the same: one
		// of the logs has it.
		if s.size >= 0 {
			wanted[s.link] = max(wanted[s.link], filepath.Join(w.opts.PodLogsDir, s.log))
		}
	}
	if err := host.MakeLogDir(w.opts.LinksDir); err != nil {
		return err
	}
	dir, err := safepath.OpenRoot(w.opts.LinksDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	names, err := dir.Names(".")
	if err != nil {
		return err
	}
	there := map[string]string{}
	for _, name := range names {
		if target, err := dir.Readlink(name); err == nil {
			there[name] = target
		}
	}
	add, remove := planLinks(wanted, there, listed(found), w.opts.PodLogsDir)
	var errs []error
	for _, name := range remove {
		if err := dir.Unlink(name); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, name := range add {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
		err := dir.Symlink(wanted[name], name)
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%s is there and is not a link to a log of ours; it is left alone", name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// listed are the links of all containers that there are.
func listed(found []sight) map[string]bool {
	out := make(map[string]bool, len(found))
	for _, s := range found {
		out[s.link] = true
	}
	return out
}

// planLinks compares the links that are wanted with those there, both by name with what they lead to. A link of ours that
// leads to the wrong log goes first and is then made anew; that of a container which is still there stays, though its log
// may be missing for a moment.
func planLinks(wanted, there map[string]string, listed map[string]bool, logs string) (add, remove []string) {
	for name, target := range there {
		ours := strings.HasPrefix(target, strings.TrimSuffix(logs, "/")+"/") && strings.HasSuffix(name, linkSuffix)
		right, isWanted := wanted[name]
		if ours && (isWanted && right != target || !isWanted && !listed[name]) {
			remove = append(remove, name)
		}
	}
	for name, target := range wanted {
		if there[name] != target {
			add = append(add, name)
		}
	}
	return add, remove
}
