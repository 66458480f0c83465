package volumes

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/supervisors"
)

// serverMounts has the pods with mounts that may be of servers, as the actor found them when it started. The volumes of a pod are
// unknown until the pod asks for them, and it may be over: its unmount must not occupy a place of a lane while a server hangs.
type serverMounts struct {
	pods map[string]bool // by UID
	read bool            // false: any pod may have one, also if the result of the read is lost
}

// servedFound is the result of findServed; nil: the mounts could not be read.
type servedFound struct{ pods map[string]bool }

// find reads the mounts.
func (serverMounts) find(ctx supervisors.Context, rootDir string) {
	ctx.Do(supervisors.Work{Name: "FindServedPods", Timeout: heldTimeout, Run: func(context.Context) any {
		pods, err := servedPods(rootDir)
		if err != nil {
			return servedFound{}
		}
		return servedFound{pods}
	}})
}

func (s *serverMounts) took(m servedFound) { s.pods, s.read = m.pods, m.pods != nil }

// mayHave reports whether a pod, of which nothing else is known, may have a mount of a server.
func (s *serverMounts) mayHave(uid string) bool { return !s.read || s.pods[uid] }

// servedPods returns the pods with a mount in their folders that is no file system of memory, by mountinfo, which asks no server.
func servedPods(rootDir string) (map[string]bool, error) {
	out := map[string]bool{}
	pods, err := filepath.EvalSymlinks(filepath.Join(rootDir, kinds.PodsFolder))
	if err != nil {
		return out, kinds.IgnoreAbsent(err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(pods))
	for _, m := range mounts {
		if below, is := strings.CutPrefix(m.Mountpoint, pods+"/"); is && m.FSType != "tmpfs" {
			uid, _, _ := strings.Cut(below, "/")
			out[uid] = true
		}
	}
	return out, err
}
