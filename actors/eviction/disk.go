package eviction

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/internal/overdue"
)

// diskTimeout bounds the wait for a file system: that of an absent file server does not answer.
const diskTimeout = 5 * time.Second

// disk is the free space of a file system.
type disk struct {
	space, inodes Reading
	device        uint64
}

// disk measures the file system of the path.
func (p *Meter) disk(ctx context.Context, path string) (disk, error) { return p.reading(path).Get(ctx) }

func (p *Meter) reading(path string) *overdue.Reader[disk] {
	p.mu.Lock()
	defer p.mu.Unlock()
	reading := p.disks[path]
	if reading == nil {
		reading = overdue.New("the file system of "+path, diskTimeout, func() (disk, error) { return p.statfs(path) })
		p.disks[path] = reading
	}
	return reading
}

func statfs(path string) (disk, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return disk{}, fmt.Errorf("the file system of %s: %w", path, err)
	}
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return disk{}, fmt.Errorf("the file system of %s: %w", path, err)
	}
	//nolint:gosec // sizes of a disk
	return disk{Reading{int64(fs.Bavail) * fs.Frsize, int64(fs.Blocks) * fs.Frsize}, Reading{int64(fs.Ffree), int64(fs.Files)},
		file.Dev}, nil
}

// runtimeDisks returns the file systems of images and of writable layers. The first equals the second if the runtime does not
// report one.
func (p *Meter) runtimeDisks(ctx context.Context) (images, containers disk, err error) {
	info, err := p.Images.ImageFsInfo(ctx)
	if err != nil {
		return disk{}, disk{}, fmt.Errorf("the runtime does not tell where images are: %w", err)
	}
	imageDir, containerDir := mountpoint(info.GetImageFilesystems()), mountpoint(info.GetContainerFilesystems())
	if imageDir == "" {
		return disk{}, disk{}, errors.New("the runtime does not tell where images are")
	}
	p.mu.Lock()
	p.imageDir, p.containerDir = imageDir, containerDir
	p.mu.Unlock()
	if images, err = p.disk(ctx, imageDir); err != nil {
		return disk{}, disk{}, err
	}
	if containerDir == "" {
		return images, images, nil
	}
	if containers, err = p.disk(ctx, containerDir); err != nil {
		containers = images
	}
	return images, containers, nil
}

// mountpoint returns the first mount point that the runtime reports; empty: none.
func mountpoint(list []*runtimeapi.FilesystemUsage) string {
	for _, fs := range list {
		if at := fs.GetFsId().GetMountpoint(); at != "" {
			return at
		}
	}
	return ""
}

// ImageSpace returns the free space of the images' file system, in bytes.
func (p *Meter) ImageSpace(ctx context.Context) (available, capacity int64, err error) {
	d, _, err := p.runtimeDisks(ctx)
	return d.space.Available, d.space.Capacity, err
}
