package stack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MountDisk mounts a file system of so many mebibytes that is empty at a folder. It lies in the file image, on a loop device
// that the kernel gives back with the mount. options are mkfs.ext4's.
func MountDisk(image, at string, mebibytes int64, options ...string) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(mebibytes<<20), f.Close()); err != nil {
		return err
	}
	for _, words := range [][]string{
		append(append([]string{"mkfs.ext4", "-q", "-m", "0"}, options...), image),
		{"mount", "-o", "loop", image, at},
	} {
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", words, err, out)
		}
	}
	return nil
}

// UnmountDisk undoes MountDisk, at the latest when nothing is open there any more.
func UnmountDisk(at string) error { return syscall.Unmount(at, syscall.MNT_DETACH) }

// Fill takes so many bytes of the file system that path is to be on, all at once.
func Fill(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Fallocate(int(f.Fd()), 0, 0, bytes), f.Close())
}

// UseInodes makes so many empty files in a folder.
func UseInodes(dir string, files int) error {
	for i := range files {
		f, err := os.Create(dir + "/" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// PullBig has the runtime pull an image of so many mebibytes that runs nothing, and gives its reference. The runtime keeps it
// twice: as it was pulled, and unpacked.
func (s *Stack) PullBig(ctx context.Context, name string, mebibytes int) (string, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	data := make([]byte, mebibytes<<20)
	if _, err := rand.NewChaCha8([32]byte(fmt.Appendf(nil, "%32s", name))).Read(data); err != nil {
		return "", err
	}
	err := w.WriteHeader(&tar.Header{Name: "much", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))})
	if err == nil {
		_, err = w.Write(data)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return "", err
	}
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		mutate.Addendum{Layer: static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer)})
	if err == nil {
		err = s.Registry.Push(name, image)
	}
	if err == nil {
		_, err = s.Pull(ctx, s.Registry.Ref(name))
	}
	return s.Registry.Ref(name), err
}

// HasImage reports whether the runtime has an image.
func (s *Stack) HasImage(ctx context.Context, ref string) (bool, error) {
	resp, err := s.client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return resp.GetImage() != nil, err
}

// DiskRoot is where the runtime's file system of its own is mounted.
func (s *Stack) DiskRoot() string { return s.root() }

// mountRoot mounts a separate file system for the runtime's data, if requested.
func (s *Stack) mountRoot() error {
	if s.diskMiB == 0 {
		return nil
	}
	if err := os.Mkdir(s.root(), 0o711); err != nil {
		return err
	}
	return MountDisk(s.root()+".disk", s.root(), s.diskMiB)
}

func (s *Stack) unmountRoot() error {
	err := UnmountDisk(s.root())
	if s.diskMiB == 0 || errors.Is(err, syscall.EINVAL) || errors.Is(err, os.ErrNotExist) { // it was never mounted
		return nil
	}
	return err
}
