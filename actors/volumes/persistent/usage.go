package persistent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/iscsi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// Usage returns the usage of a pod's persistent volumes and of its nfs volumes, by the pod's names for them. Drivers with
// statistics are asked for their own volumes. Figures are returned beside an error. Without an API server s is nil.
func (s *Storage) Usage(ctx context.Context, rootDir string, pod *v1.Pod) (map[string]csi.Usage, error) {
	pods, err := kinds.OpenPods(rootDir)
	if err != nil {
		return nil, err
	}
	defer pods.Close() //nolint:errcheck // read only
	var mu sync.Mutex
	var asked sync.WaitGroup
	out, errs := map[string]csi.Usage{}, []error(nil)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		h, _ := s.lookUp(pod.UID, v.Name)
		if v.NFS != nil {
			h.folder = kinds.NFSFolder(v.Name)
		}
		if h.folder == "" {
			continue
		}
		asked.Go(func() { // a driver or server that does not answer delays no other
			u, known, err := s.usage(ctx, pods, pod, h.folder)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("volume %s: %w", v.Name, err))
			} else if known {
				out[v.Name] = u
			}
		})
	}
	asked.Wait()
	return out, errors.Join(errs...)
}

func (s *Storage) usage(
	ctx context.Context, pods *safepath.Root, pod *v1.Pod, folder string,
) (u csi.Usage, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	name := filepath.Join(string(pod.UID), folder)
	at, kind := filepath.Join(pods.Path(), name), filepath.Dir(folder)
	switch kind {
	case kinds.VolumeFolder(localName, ""): // the node's own disk
		u, err = usageAt(ctx, pod, filepath.Base(folder), at)
		return u, err == nil, err
	case kinds.NFSFolder(""), kinds.VolumeFolder(iscsi.PluginName, ""):
		if is, err := pods.IsMountPoint(name); err != nil || !is {
			return u, false, kinds.IgnoreAbsent(err)
		}
		u, err = usageAt(ctx, pod, at, at)
		return u, err == nil, err
	}
	r, at, err := s.recordFor(pods, string(pod.UID), folder)
	if err != nil {
		return u, false, kinds.IgnoreAbsent(err) // it is not mounted yet
	}
	driver, err := s.Drivers.Get(r.Driver)
	if err != nil || !driver.Can(csi.HasStats) {
		return u, false, err
	}
	u, err = driver.Stats(ctx, r.Handle, at)
	return u, err == nil, err
}

// usageAt returns the usage of a mounted file system. Its server may not answer.
func usageAt(ctx context.Context, pod *v1.Pod, volume, at string) (csi.Usage, error) {
	owner := safepath.Owner{Namespace: pod.Namespace, Pod: string(pod.UID)}
	st, err := safepath.Bounded(ctx, owner, volume, "statfs "+at, func() (st unix.Statfs_t, err error) {
		err = unix.Statfs(at, &st)
		return st, err
	})
	size := uint64(st.Frsize) //nolint:gosec // the kernel's sizes are not negative
	return csi.Usage{Bytes: csi.Amount{Total: st.Blocks * size, Used: (st.Blocks - st.Bfree) * size, Free: st.Bavail * size},
		Inodes: csi.Amount{Total: st.Files, Used: st.Files - st.Ffree, Free: st.Ffree}}, err
}

// recordFor returns the record of a pod's volume by its place in the pod's folder, and the path for which its driver has
// statistics. They are the kubelet's.
func (s *Storage) recordFor(pods *safepath.Root, uid, folder string) (r csi.Record, path string, err error) {
	if !strings.HasPrefix(folder, csi.DevicesFolder+"/") {
		r, err = csi.Read(pods, filepath.Join(uid, filepath.Dir(folder)))
		return r, filepath.Join(pods.Path(), uid, folder), err
	}
	devices, err := csi.OpenDevices(s.RootDir)
	if err != nil {
		return r, "", err
	}
	defer devices.Close() //nolint:errcheck // read only
	volume := filepath.Base(folder)
	r, err = devices.Read(volume)
	return r, filepath.Join(devices.Path(), devices.Maps(volume), uid), err
}
