package file

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
)

// Check reads what this source would read at path, a folder or a file, on such a node, without an agent: the pods, how many
// files there are, and what is wrong with them.
func Check(path string, node base.Node) (pods []*v1.Pod, files int, problems []messages.ManifestProblem, err error) {
	paths := []string{path}
	if info, err := os.Stat(path); err != nil {
		return nil, 0, nil, err
	} else if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, 0, nil, err
		}
		paths = nil
		for _, e := range entries {
			if !e.IsDir() && !ignored(e.Name()) {
				paths = append(paths, filepath.Join(path, e.Name()))
			}
		}
	}
	for _, p := range paths {
		files++
		info, err := os.Stat(p)
		if err != nil || !info.Mode().IsRegular() || info.Size() > manifest.MaxBytes {
			problems = append(problems, messages.ManifestProblem{Path: p,
				Message: "it cannot be read, is no file, or is too large"})
			continue
		}
		data, err := os.ReadFile(p)
		if err != nil {
			problems = append(problems, messages.ManifestProblem{Path: p, Message: err.Error()})
			continue
		}
		found, wrong := manifest.Load(p, data, node.Manifest(manifest.FileSource, time.Now()))
		problems = append(problems, base.Problems(wrong)...)
		for _, pod := range found {
			if slices.ContainsFunc(pods, func(o *v1.Pod) bool { return o.Namespace == pod.Namespace && o.Name == pod.Name }) {
				problems = append(problems, messages.ManifestProblem{Path: p, Pod: pod.Namespace + "/" + pod.Name,
					Field: "metadata.name", Message: "another file has a pod of this name"})
			}
			pods = append(pods, pod)
		}
	}
	return pods, files, problems, nil
}
