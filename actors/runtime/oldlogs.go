package runtime

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/translate"
)

// logOf returns the log of a container to remove, relative to the folder of all logs. Like the kubelet, the actor removes it
// with its container, since a container that crashes for ever would fill the disk. logOf returns "" if the name is not known, or
// another container of the same attempt, its replacement, writes to that log.
func logOf(c *runtimeapi.Container, all []*runtimeapi.Container, toRemove map[string]bool) string {
	l, attempt := c.GetLabels(), c.GetMetadata().GetAttempt()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: l[cri.LabelPodNamespace], Name: l[cri.LabelPodName], UID: types.UID(l[cri.LabelPodUID]),
	}}
	name := l[cri.LabelContainerName]
	twin := slices.ContainsFunc(all, func(o *runtimeapi.Container) bool {
		return o.GetId() != c.GetId() && !toRemove[o.GetId()] && o.GetLabels()[cri.LabelContainerName] == name &&
			o.GetMetadata().GetAttempt() == attempt
	})
	if twin || pod.Namespace == "" || pod.Name == "" || pod.UID == "" || name == "" {
		return ""
	}
	return filepath.Join(translate.PodLogDir("", pod), translate.ContainerLogPath(name, attempt))
}

// removeLog removes a container's log and its rotated files: N.log and N.log.<time>.
func removeLog(ctx context.Context, dir, log string) (err error) {
	if dir == "" || log == "" {
		return nil
	}
	root, err := safepath.OpenRoot(dir)
	if err != nil {
		return noneIsFine(err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	folder, err := root.Sub(filepath.Dir(log))
	if err != nil {
		return noneIsFine(err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	names, err := folder.Names(".")
	if err != nil {
		return err
	}
	var problems []error
	for _, name := range names {
		if base := filepath.Base(log); name == base || strings.HasPrefix(name, base+".") {
			problems = append(problems, noneIsFine(safepath.RemoveAllOneFilesystem(ctx, folder, name)))
		}
	}
	return errors.Join(problems...)
}

func noneIsFine(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// logNames matches the names of a container's logs: the current one of an attempt, and rotated ones.
var logNames = regexp.MustCompile(`^[0-9]+\.log(\..+)?$`)

// otherFileError reports a file that is not a log in a folder named as a pod's log folder.
type otherFileError struct{ path string }

func (e *otherFileError) Error() string {
	return e.path + " is no log of a container: its folder is kept"
}

// checkLogFolder returns an *otherFileError unless the folder holds only containers' folders, and these only logs.
func checkLogFolder(root *safepath.Root, name string) error {
	containers, err := namesInLogs(root, name)
	for _, c := range containers {
		folder := filepath.Join(name, c)
		logs, listErr := namesInLogs(root, folder)
		if listErr != nil {
			return listErr
		}
		for _, log := range logs {
			at := filepath.Join(folder, log)
			info, statErr := root.Lstat(at)
			if statErr == nil && (info.IsDir() || !logNames.MatchString(log)) {
				return &otherFileError{filepath.Join(root.Path(), at)}
			}
			err = errors.Join(err, noneIsFine(statErr))
		}
	}
	return err
}

// namesInLogs lists a folder among the logs. A link or a file in its place is an *otherFileError.
func namesInLogs(root *safepath.Root, name string) ([]string, error) {
	names, err := root.Names(name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = &otherFileError{filepath.Join(root.Path(), name)}
	}
	return names, noneIsFine(err)
}
