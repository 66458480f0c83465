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
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// Usage returns the usage of a pod's persistent volumes, by the pod's names for them. Drivers with statistics are asked for
// their own volumes. Figures are returned beside an error.
func (s *Storage) Usage(ctx context.Context, pod *v1.Pod) (map[string]csi.Usage, error) {
	var mu sync.Mutex
	var asked sync.WaitGroup
	out, errs := map[string]csi.Usage{}, []error(nil)
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		h, _ := s.lookUp(pod.UID, name)
		if h.folder == "" {
			continue
		}
		asked.Go(func() { // a driver that does not answer delays no other
			u, known, err := s.usage(ctx, string(pod.UID), h.folder)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("volume %s: %w", name, err))
			} else if known {
				out[name] = u
			}
		})
	}
	asked.Wait()
	return out, errors.Join(errs...)
}

func (s *Storage) usage(ctx context.Context, uid, folder string) (u csi.Usage, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, safepath.ServerTimeout)
	defer cancel()
	at := filepath.Join(s.RootDir, kinds.PodsFolder, uid, folder)
	if strings.HasPrefix(folder, kinds.VolumeFolder(localName, "")+"/") { // the node's own disk
		owner := safepath.Owner{Namespace: s.ownerOf(uid).Namespace, Pod: uid}
		st, err := safepath.Bounded(ctx, owner, filepath.Base(folder), "statfs "+at, func() (st unix.Statfs_t, err error) {
			err = unix.Statfs(at, &st)
			return st, err
		})
		if err != nil {
			return u, false, err
		}
		size := uint64(st.Frsize) //nolint:gosec // the kernel's sizes are not negative
		return csi.Usage{Bytes: csi.Amount{Total: st.Blocks * size, Used: (st.Blocks - st.Bfree) * size, Free: st.Bavail * size},
			Inodes: csi.Amount{Total: st.Files, Used: st.Files - st.Ffree, Free: st.Ffree}}, true, nil
	}
	pods, err := kinds.OpenPods(s.RootDir)
	if err != nil {
		return u, false, err
	}
	defer pods.Close() //nolint:errcheck // read only
	r, err := csi.Read(pods, filepath.Join(uid, filepath.Dir(folder)))
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
