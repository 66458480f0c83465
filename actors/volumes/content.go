package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// file is one file of a volume's content.
type file struct {
	data  []byte
	mode  int32
	owner *int64 // nil: the agent's
}

// source is where the content of a volume comes from.
type source interface {
	handles(v *v1.Volume) bool
	// files are the content by path in the volume. An error that trying again cannot help is a permanentError.
	files(p podFolder, v *v1.Volume) (map[string]file, error)
}

// content is the kinds of volumes whose files the agent writes. They are written whole, appear at once (write.go), and are
// written again when what they say has changed. Containers only read them.
type content struct {
	kind   string
	memory bool // it lies in a tmpfs, so that it never reaches the disk
	source source
}

func (c content) name() string { return c.kind }

func (c content) handles(v *v1.Volume) bool { return c.source.handles(v) }

func (c content) folder(volume string) string {
	return filepath.Join(volumesFolder, escaped(c.kind), volume)
}

func (c content) mount(ctx context.Context, p podFolder, v *v1.Volume) (string, error) {
	if err := safepath.CheckElement(v.Name); err != nil {
		return "", permanentError{err}
	}
	if err := checkPaths(pathsOf(v)); err != nil {
		return "", permanentError{err}
	}
	folder := c.folder(v.Name)
	files, err := c.files(ctx, p, v) // first what may be missing: nothing is mounted for a pod that waits
	switch {
	case mayPass(err) && c.mounted(p, v):
		// It was written before, perhaps by an earlier agent: it stays as it is until the API server can be asked.
		p.renewTroubled(v, err)
		return filepath.Join(p.Path(), folder), nil
	case err != nil:
		return "", err
	}
	if err := checkPaths(slices.Sorted(maps.Keys(files))); err != nil { // keys of objects may be others soon
		return "", err
	}
	if err := p.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	if err := p.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	if c.memory {
		if err := makeRoom(p, folder, files); err != nil {
			return "", err
		}
	}
	if err := ownFolder(p, folder, 0o777); err != nil {
		return "", err
	}
	if err := writeFiles(p, folder, files); err != nil {
		return "", err
	}
	return filepath.Join(p.Path(), folder), nil
}

// pathsOf are the paths of files that the volume's own specification names.
func pathsOf(v *v1.Volume) (paths []string) {
	keys := func(items []v1.KeyToPath) {
		for i := range items {
			paths = append(paths, items[i].Path)
		}
	}
	downward := func(items []v1.DownwardAPIVolumeFile) {
		for i := range items {
			paths = append(paths, items[i].Path)
		}
	}
	switch {
	case v.ConfigMap != nil:
		keys(v.ConfigMap.Items)
	case v.Secret != nil:
		keys(v.Secret.Items)
	case v.DownwardAPI != nil:
		downward(v.DownwardAPI.Items)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			switch s := &v.Projected.Sources[i]; {
			case s.ConfigMap != nil:
				keys(s.ConfigMap.Items)
			case s.Secret != nil:
				keys(s.Secret.Items)
			case s.DownwardAPI != nil:
				downward(s.DownwardAPI.Items)
			case s.ServiceAccountToken != nil:
				paths = append(paths, s.ServiceAccountToken.Path)
			}
		}
	}
	return paths
}

// unreadPatience is how long the first mount of a volume waits for objects that have not been read yet.
const unreadTimeout = time.Second

// files are the content. What has been asked for and not been read yet is waited for, but not by a volume that is there.
func (c content) files(ctx context.Context, p podFolder, v *v1.Volume) (files map[string]file, err error) {
	timeouts := unreadTimeout
	if c.mounted(p, v) {
		timeouts = 0
	}
	err = p.node.Objects.Settle(ctx, timeouts, func() error {
		files, err = c.source.files(p, v)
		return err
	})
	return files, err
}

func (c content) mounted(p podFolder, v *v1.Volume) bool {
	folder := c.folder(v.Name)
	if c.memory && !isMemory(p, folder) {
		return false
	}
	_, err := p.Lstat(filepath.Join(folder, dataLink))
	return err == nil
}

func (c content) inMemory(podFolder, string) bool { return c.memory }

func (c content) unmount(ctx context.Context, p podFolder, volume string) error {
	folder := c.folder(volume)
	if c.memory && isMemory(p, folder) {
		if err := p.Unmount(folder); err != nil {
			return err
		}
	}
	// A kubelet notes the folder below as an emptyDir of its own.
	notes := filepath.Join(pluginsFolder, escaped(emptyDirName), "wrapped_"+volume)
	if err := safepath.RemoveAllOneFilesystem(ctx, p.Root, notes); err != nil {
		return err
	}
	return safepath.RemoveAllOneFilesystem(ctx, p.Root, folder)
}

// keyed is what an object holds, by key, or nothing where it may be missing and is.
type keyed struct {
	object   string // for messages, e.g. `ConfigMap default/settings`
	data     map[string][]byte
	optional bool
}

// files adds those of the keys that the items ask for; all, under their own names, where there are no items.
func (k keyed) files(out map[string]file, items []v1.KeyToPath, mode int32) error {
	if len(items) == 0 {
		for key, data := range k.data {
			out[key] = file{data: data, mode: mode}
		}
		return nil
	}
	for _, item := range items {
		data, ok := k.data[item.Key]
		switch {
		case ok:
			out[item.Path] = file{data: data, mode: modeOr(item.Mode, mode)}
		case !k.optional:
			return fmt.Errorf("%s has no key %q", k.object, item.Key)
		}
	}
	return nil
}

func isTrue(b *bool) bool { return b != nil && *b }

// configMapData is what a ConfigMap of the pod's namespace holds.
func configMapData(p podFolder, name string, optional *bool) (keyed, error) {
	k := keyed{object: "ConfigMap " + p.pod.Namespace + "/" + name, optional: isTrue(optional), data: map[string][]byte{}}
	object, found, err := p.node.Objects.ConfigMap(p.pod, name)
	if err := k.missing(found, err); err != nil || !found {
		return k, err
	}
	for key, text := range object.Data {
		k.data[key] = []byte(text)
	}
	maps.Copy(k.data, object.BinaryData)
	return k, nil
}

// secretData is what a Secret of the pod's namespace holds.
func secretData(p podFolder, name string, optional *bool) (keyed, error) {
	k := keyed{object: "Secret " + p.pod.Namespace + "/" + name, optional: isTrue(optional)}
	object, found, err := p.node.Objects.Secret(p.pod, name)
	if err := k.missing(found, err); err != nil || !found {
		return k, err
	}
	k.data = object.Data
	return k, nil
}

// missing is the error where the object cannot be had and has to be.
func (k keyed) missing(found bool, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", k.object, err)
	case !found && !k.optional:
		return errors.New(k.object + " does not exist")
	}
	return nil
}
