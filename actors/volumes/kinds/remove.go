package kinds

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/userns"
)

// RemovePod removes the folder of a pod after its volumes are undone. Only notes of the agent and termination logs are removed
// with their content. Any other folder must be empty: data in it may be a user's. Such a folder stays, and the pod's folder
// with it.
func RemovePod(ctx context.Context, pods *safepath.Root, p Folder, uid string) error {
	var errs []error
	for _, folder := range []string{volumesFolder, devicesFolder} {
		errs = append(errs, removeTree(p.Root, folder))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	names, err := p.Names(".")
	if err != nil {
		return err
	}
	for _, name := range names {
		switch name {
		case userns.RecordFile: // removed last: until then no other pod gets its user IDs
			continue
		case logsFolder:
			err = safepath.RemoveAllOneFilesystem(ctx, p.Root, name)
		case pluginsFolder:
			err = removeNotes(ctx, p)
		default:
			err = removeOther(p, name)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := IgnoreAbsent(p.Unlink(userns.RecordFile)); err != nil {
		return err
	}
	return pods.RemoveEmpty(uid)
}

// removeTree removes a folder of plugins. The plugins' folders must be empty.
func removeTree(root *safepath.Root, folder string) error {
	plugins, err := NamesIn(root, folder)
	if err != nil {
		return err
	}
	var errs []error
	for _, plugin := range plugins {
		errs = append(errs, root.RemoveEmpty(filepath.Join(folder, plugin)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return root.RemoveEmpty(folder)
}

// removeNotes removes the notes of the kinds of this package about volumes.
func removeNotes(ctx context.Context, p Folder) error {
	plugins, err := NamesIn(p.Root, pluginsFolder)
	if err != nil {
		return err
	}
	var errs []error
	for _, plugin := range plugins {
		if IsContent(plugin) {
			err := safepath.RemoveAllOneFilesystem(ctx, p.Root, filepath.Join(pluginsFolder, plugin))
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, removeTree(p.Root, pluginsFolder))...)
}

// removeOther removes a file in a pod's folder. No pod can reach it, so that an agent wrote it. A folder must be empty.
func removeOther(p Folder, name string) error {
	info, err := p.Lstat(name)
	if err == nil && info.Mode().Type() != fs.ModeDir {
		err = p.Unlink(name)
	} else if err == nil {
		err = p.RemoveEmpty(name)
	}
	return IgnoreAbsent(err)
}

// IsContent reports whether the folders of a kind, by its escaped name, hold only content that ends with the pod.
func IsContent(plugin string) bool {
	return slices.ContainsFunc(All(), func(p Plugin) bool {
		switch p.(type) {
		case emptyDir, content:
			return Escaped(p.Name()) == plugin
		}
		return false
	})
}
