package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri/crilog"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// work has the methods that run outside the mailbox.
type work struct{ opts Options }

// look reads the state of logs and corrects their links.
func (w work) look(ctx context.Context, l look) lookResult {
	out := lookResult{complete: l.complete}
	root, err := safepath.OpenRoot(w.opts.PodLogsDir)
	if err != nil {
		out.links = fmt.Errorf("the folder of logs: %w", err)
		return out
	}
	for _, c := range l.containers {
		out.logs = append(out.logs, w.see(root, c, l.firstLook[c.id]))
	}
	out.links = errors.Join(w.putLinks(ctx, root, l, out.logs), root.Close())
	return out
}

// containersOf returns the containers of a pod. It skips those with names that no Kubernetes agent could have used.
func containersOf(p messages.PodFacts) (out []container) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}}
	for _, c := range p.Containers {
		if slices.ContainsFunc([]string{p.Namespace, p.Name, p.UID, c.Name, c.ID}, func(part string) bool {
			return safepath.CheckElement(part) != nil
		}) {
			continue
		}
		out = append(out, container{
			id: c.ID, uid: p.UID, running: c.State == messages.ContainerRunning,
			log:  filepath.Join(translate.PodLogDir("", pod), translate.ContainerLogPath(c.Name, c.Attempt)),
			link: linkName(p.Name, p.Namespace, c.Name, c.ID),
		})
	}
	return out
}

func (w work) see(root *safepath.Root, c container, thorough bool) logState {
	s := logState{container: c, size: -1}
	info, err := root.Lstat(c.log)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		s.problem = err
	case !info.Mode().IsRegular():
		s.problem = fmt.Errorf("%s: %w: it is neither read nor rotated", c.log, crilog.ErrNotAFile)
	default:
		s.size = info.Size()
	}
	if !thorough || s.problem != nil {
		return s
	}
	names, err := root.Names(filepath.Dir(c.log))
	s.left = err == nil && len(crilog.Leftovers(names, filepath.Base(c.log))) > 0
	return s
}

// Log shippers parse pod, namespace, container and ID from the names of links, as in the kubelet's /var/log/containers.
const linkSuffix = ".log"

// maxLinkName is the longest name that a file system allows, in bytes.
const maxLinkName = 255

func linkName(pod, namespace, container, id string) string {
	name := pod + "_" + namespace + "_" + container + "-" + id
	return name[:min(len(name), maxLinkName-len(linkSuffix))] + linkSuffix
}

// linkPrefix returns the common prefix of all links of a pod.
func linkPrefix(link string) string {
	parts := strings.SplitAfterN(link, "_", 3)
	return strings.Join(parts[:min(len(parts), 2)], "")
}

// putLinks creates missing links and removes links without a log. It handles the links of all pods, or of the pods in l only.
// Links that lead elsewhere than to this agent's logs are not touched.
func (w work) putLinks(ctx context.Context, logs *safepath.Root, l look, found []logState) (err error) {
	if w.opts.LinksDir == "" {
		return nil
	}
	desired, listed, gone := map[string]string{}, map[string]bool{}, map[string]bool{}
	linked := map[string]bool{} // the targets of the desired links
	for _, s := range found {
		listed[s.link] = true
		// A log in rotation keeps its link. Truncated names may be equal: one of the logs gets the link.
		if s.size >= 0 {
			desired[s.link] = max(desired[s.link], filepath.Join(w.opts.PodLogsDir, s.log))
			linked[desired[s.link]] = true
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
		if !l.complete && !slices.ContainsFunc(l.links, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		target, err := dir.Readlink(name)
		if err != nil {
			continue
		}
		there[name] = target
		// The actor may not know each container yet. So a link is removed only if it is dangling, or leads to the log of another
		// container. Two containers have the same attempt if the start of the first was interrupted.
		if log, ours := w.ours(name, target); ours && !listed[name] {
			_, err := logs.Lstat(log)
			gone[name] = linked[target] || errors.Is(err, fs.ErrNotExist)
		}
	}
	return w.changeLinks(ctx, dir, desired, there, gone)
}

// ours reports whether a link leads to one of this agent's logs, and returns the log's path below the folder of all logs.
func (w work) ours(name, target string) (log string, ours bool) {
	log, ours = strings.CutPrefix(target, strings.TrimSuffix(w.opts.PodLogsDir, "/")+"/")
	return log, ours && strings.HasSuffix(name, linkSuffix)
}

// changeLinks creates the desired links and removes those in gone. It replaces a link that leads to the wrong log.
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
			err = fmt.Errorf("%s exists and is not a link to a container log; it is left alone", name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
