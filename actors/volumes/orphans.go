package volumes

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
)

// podFolders lists the folders of pods on the disk, sorted. What is no folder is nobody's and stays.
func (d disk) podFolders(ctx context.Context) ([]string, error) {
	return look(ctx, d, "", d.listPods)
}

func (d disk) listPods() ([]string, error) {
	pods, err := openPods(d.rootDir)
	if err != nil {
		return nil, err
	}
	defer d.close(pods)
	names, err := pods.Names(".")
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := pods.Lstat(filepath.Clean(name))
		return err != nil || info.Mode().Type() != fs.ModeDir
	})
	slices.Sort(names)
	return names, nil
}
