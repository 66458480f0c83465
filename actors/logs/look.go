package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/crilog"
	"github.com/playlet-dev/playlet/actors/internal/safepath"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/supervisors"
)

// work is what is done outside the mailbox.
type work struct{ opts Options }

// look sees all logs, and puts the links right.
func (w work) look(ctx context.Context, thorough bool) looked {
	list, err := w.opts.CRI.ListContainers(ctx, nil)
	if err != nil {
		supervisors.LogOf(ctx).Debug("could not list containers for their logs", "error", err)
		return looked{}
	}
	root, err := safepath.OpenRoot(w.opts.PodLogsDir)
	if err != nil {
		return looked{links: fmt.Errorf("the folder of logs: %w", err)}
	}
	out := looked{whole: true}
	for _, c := range list {
		if of, ok := w.known(c); ok {
			out.found = append(out.found, w.see(root, of, thorough))
		}
	}
	out.links = errors.Join(w.putLinks(ctx, out.found), root.Close())
	return out
}

// known is a container as the actor knows it; false for one that no agent of Kubernetes made.
func (w work) known(c *runtimeapi.Container) (container, bool) {
	l := c.GetLabels()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: l[cri.LabelPodNamespace], Name: l[cri.LabelPodName], UID: types.UID(l[cri.LabelPodUID]),
	}}
	name := l[cri.LabelContainerName]
	for _, part := range []string{pod.Namespace, pod.Name, string(pod.UID), name, c.GetId()} {
		if safepath.CheckElement(part) != nil {
			return container{}, false
		}
	}
	return container{
		id: c.GetId(), uid: string(pod.UID), running: c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING,
		log:  filepath.Join(cri.PodLogDir("", pod), cri.ContainerLogPath(name, c.GetMetadata().GetAttempt())),
		link: linkName(pod.Name, pod.Namespace, name, c.GetId()),
	}, true
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
