package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cri"
)

// leaks looks past the agent, at the container runtime and the agent's root folder, for what is left of pods that are not there.
// The zero value looks at nothing.
type leaks struct {
	runtime *cri.Client
	rootDir string
	before  map[string]bool // what was left already, by its sentence
}

// begin notes what is left already. After an error it looks at nothing.
func (l *leaks) begin(ctx context.Context, all *api.Pods, rootDir string) error {
	if rootDir == "" {
		return errors.New("the agent does not say what its root folder is")
	}
	client, err := cri.Dial(cri.Options{RuntimeEndpoint: all.Runtime.Endpoint})
	if err != nil {
		return err
	}
	found := leaks{runtime: client, rootDir: rootDir, before: map[string]bool{}}
	left, err := found.left(ctx, all)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	for _, text := range left {
		found.before[text] = true
	}
	*l = found
	return nil
}

// end lets the connection go.
func (l *leaks) end() error {
	if l.runtime == nil {
		return nil
	}
	return l.runtime.Close()
}

// look is an error about the first thing that is left, and was not before.
func (l *leaks) look(ctx context.Context, all *api.Pods) error {
	if l.runtime == nil {
		return nil
	}
	left, err := l.left(ctx, all)
	if err != nil {
		return err
	}
	for _, text := range left {
		if !l.before[text] {
			return errors.New(text)
		}
	}
	return nil
}

// left are sentences about what is left.
func (l *leaks) left(ctx context.Context, all *api.Pods) (out []string, err error) {
	sandboxes, err := l.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	containers, err := l.runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	folders, err := os.ReadDir(filepath.Join(l.rootDir, "pods"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	known := map[string]bool{} // pods, by UID
	for i := range all.Pods {
		known[string(all.Pods[i].Pod.UID)] = true
	}
	of := map[string]bool{} // sandboxes, by ID
	for _, s := range sandboxes {
		of[s.GetId()] = true
		if m := s.GetMetadata(); s.GetAnnotations()[cri.AnnotationRootDir] == l.rootDir && !known[m.GetUid()] {
			out = append(out, fmt.Sprintf("sandbox %s is left of pod %s/%s", s.GetId(), m.GetNamespace(), m.GetName()))
		}
	}
	running := map[[2]string]bool{}
	for _, c := range containers {
		if c.GetAnnotations()[cri.AnnotationRootDir] != l.rootDir {
			continue
		}
		labels := c.GetLabels()
		pod, one := labels[cri.LabelPodNamespace]+"/"+labels[cri.LabelPodName],
			[2]string{labels[cri.LabelPodUID], labels[cri.LabelContainerName]}
		up := c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		switch {
		case !of[c.GetPodSandboxId()]:
			out = append(out, fmt.Sprintf("container %s of pod %s is left, and its sandbox is not there", c.GetId(), pod))
		case up && running[one]:
			out = append(out, fmt.Sprintf("container %s of pod %s runs twice", one[1], pod))
		case up:
			running[one] = true
		}
	}
	for _, f := range folders {
		if !known[f.Name()] {
			folder := filepath.Join(l.rootDir, "pods", f.Name())
			out = append(out, fmt.Sprintf("the folder %s is left of a pod that is not there", folder))
		}
	}
	return out, nil
}
