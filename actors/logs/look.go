package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri/crilog"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// work is what is done outside the mailbox.
type work struct{ opts Options }

// look sees logs, and puts their links right.
func (w work) look(ctx context.Context, l look) looked {
	out := looked{all: l.all}
	root, err := safepath.OpenRoot(w.opts.PodLogsDir)
	if err != nil {
		out.links = fmt.Errorf("the folder of logs: %w", err)
		return out
	}
	for _, c := range l.containers {
		out.found = append(out.found, w.see(root, c, l.fresh[c.id]))
	}
	out.links = errors.Join(w.putLinks(ctx, root, out.found, l), root.Close())
	return out
}

// containersOf are the containers of a pod as the actor knows them, without any that no agent of Kubernetes made.
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

// see looks at one log.
func (w work) see(root *safepath.Root, c container, thorough bool) sight {
	s := sight{container: c, size: -1}
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
