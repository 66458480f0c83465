package volumes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

// storm is the actor on a real disk. It loses, duplicates and delays messages, and kills the actor.
type storm struct {
	*node
	host string // a folder that comes and goes; the pods have it as a hostPath
	held []any  // results of completed work, not yet delivered
	pods map[string]*stormPod
}

type stormPod struct {
	desired any    // the last request, sent or lost
	kept    string // a file in the volume that must stay while the volume is desired
	answer  any    // the last
}

func TestStorm(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &storm{node: newNode(t), host: filepath.Join(t.TempDir(), "host"), pods: map[string]*stormPod{}}
		volumestest.FakeMountNFS(t, s.node.disk.node.NFS, mountsNFS)
		s.revive(t)
		for i := range 3 {
			s.pods[fmt.Sprint("pod", i)] = &stormPod{}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			s.act(rt, t)
			s.look(rt)
		}
		s.settle(rt)
		for uid, p := range s.pods {
			s.check(rt, uid, p)
		}
	})
}

// newSmall returns an actor with room for two operations at a time, so that they also wait for each other.
func newSmall(d disk) supervisors.Actor {
	return New(Options{RootDir: d.rootDir, Operations: d.ops, Node: d.node, Parallel: 2})("volumes")
}

func (s *storm) revive(t *testing.T) {
	s.restart(t)
	s.actor = newSmall(s.disk)
	s.Kit = newKit(t, s.actor)
	s.held = nil
}

func (s *storm) act(rt *rapid.T, t *testing.T) {
	uid := rapid.SampledFrom([]string{"pod0", "pod1", "pod2"}).Draw(rt, "uid")
	switch rapid.SampledFrom([]string{"mount", "mount", "unmount", "work", "work", "work", "deliver", "deliver", "time", "host",
		"sweep", "kill"}).Draw(rt, "act") {
	case "mount":
		volumes := []v1.Volume{volumestest.EmptyDirVolume("data"), volumestest.HostPathVolume("host", s.host, v1.HostPathDirectory)}
		if rapid.Bool().Draw(rt, "changed") {
			volumes = append(volumes, volumestest.EmptyDirVolume("more"))
		}
		if os.Geteuid() == 0 { // mounting needs root
			volumes = append(volumes, volumestest.MemoryVolume("memory"), downwardVolume("info"), volumestest.NFSVolume("served"))
		}
		s.askFor(rt, uid, messages.MountVolumes{UID: uid, Pod: volumestest.PodWith(uid, volumes...)})
	case "unmount":
		s.askFor(rt, uid, messages.UnmountVolumes{UID: uid, Remove: rapid.Bool().Draw(rt, "remove")})
	case "work":
		s.work(rapid.IntRange(0, 9).Draw(rt, "which"))
	case "deliver":
		s.deliver(rapid.IntRange(0, 9).Draw(rt, "which"))
	case "time":
		s.Advance(time.Duration(rapid.IntRange(1, 5000).Draw(rt, "ms")) * time.Millisecond)
	case "host":
		if os.Mkdir(s.host, 0o755) != nil {
			must(t, os.Remove(s.host))
		}
	case "sweep":
		desired := map[string]bool{}
		for uid, p := range s.pods {
			_, wanted := p.desired.(messages.MountVolumes)
			desired[uid] = wanted || rapid.Bool().Draw(rt, "ending")
		}
		s.Send(messages.Pods, messages.PodFoldersWanted{UIDs: onlyTrue(desired)})
	case "kill":
		for range rapid.IntRange(0, len(s.Work)).Draw(rt, "under way") {
			s.work(0) // the work outlives the actor; its result does not
		}
		s.revive(t)
	}
}

func onlyTrue(m map[string]bool) map[string]bool {
	out := map[string]bool{}
	for k, v := range m {
		if v {
			out[k] = true
		}
	}
	return out
}

// askFor sends a pod's request once or twice, or loses it.
func (s *storm) askFor(rt *rapid.T, uid string, ask any) {
	p := s.pods[uid]
	p.desired = ask
	if _, unwanted := ask.(messages.UnmountVolumes); unwanted {
		p.kept = ""
	}
	for range rapid.SampledFrom([]int{1, 1, 2, 0}).Draw(rt, "times") {
		s.Send(messages.PodAddress(uid), ask)
	}
}

func (s *storm) work(which int) {
	if len(s.Work) == 0 {
		return
	}
	i := which % len(s.Work)
	w := s.Work[i]
	s.Work = append(s.Work[:i:i], s.Work[i+1:]...)
	ctx, cancel := context.WithTimeout(context.Background(), w.Timeout)
	defer cancel()
	s.held = append(s.held, w.Run(ctx))
}

func (s *storm) deliver(which int) {
	if len(s.held) == 0 {
		return
	}
	i := which % len(s.held)
	msg := s.held[i]
	s.held = append(s.held[:i:i], s.held[i+1:]...)
	s.Send(messages.Volumes, msg)
}

// look checks the messages to pods, and that no volume in use lost its content.
func (s *storm) look(rt *rapid.T) {
	for _, sent := range s.Take() {
		if sent.To == messages.Pods {
			continue
		}
		uid := sent.To.Name()
		p := s.pods[uid]
		p.answer = sent.Msg
		m, ok := sent.Msg.(messages.VolumesMounted)
		if _, wanted := p.desired.(messages.MountVolumes); !ok || !wanted {
			continue
		}
		p.kept = filepath.Join(m.Paths["data"], "file")
		if err := os.WriteFile(p.kept, nil, 0o644); err != nil {
			rt.Fatalf("%s was told of a volume that is not there: %v", uid, err)
		}
	}
	for uid, p := range s.pods {
		if p.kept != "" {
			if _, err := os.Lstat(p.kept); err != nil {
				rt.Fatalf("%s lost what was in its volume: %v", uid, err)
			}
		}
	}
}

// settle repeats each pod's last request, as pods do, without further faults.
func (s *storm) settle(rt *rapid.T) {
	if err := os.MkdirAll(s.host, 0o755); err != nil {
		rt.Fatal(err)
	}
	for range 4 {
		for uid, p := range s.pods {
			if p.desired != nil {
				s.Send(messages.PodAddress(uid), p.desired)
			}
		}
		for len(s.Work)+len(s.held) > 0 {
			s.work(0)
			s.deliver(0)
			s.look(rt)
		}
		s.Advance(kinds.Retry.Max)
	}
	for len(s.Work)+len(s.held) > 0 {
		s.work(0)
		s.deliver(0)
	}
	s.look(rt)
}

func (s *storm) check(rt *rapid.T, uid string, p *stormPod) {
	switch desired := p.desired.(type) {
	case messages.MountVolumes:
		got, ok := p.answer.(messages.VolumesMounted)
		if !ok || len(got.Paths) != len(desired.Pod.Spec.Volumes) {
			rt.Fatalf("%s wants its volumes and was told %+v", uid, p.answer)
		}
		for name, path := range got.Paths {
			if _, err := os.Stat(path); err != nil {
				rt.Fatalf("%s has no volume %s: %v", uid, name, err)
			}
		}
	case messages.UnmountVolumes:
		if got, ok := p.answer.(messages.VolumesUnmounted); !ok || got.Left != "" {
			rt.Fatalf("%s wants its volumes gone and was told %+v", uid, p.answer)
		}
		found, err := filepath.Glob(s.node.pod(uid, "volumes/*/*"))
		if err != nil || len(found) > 0 {
			rt.Fatalf("of %s there are still %s, %v", uid, strings.Join(found, " "), err)
		}
		if _, err := os.Lstat(s.node.pod(uid)); desired.Remove && err == nil {
			rt.Fatalf("the folder of %s is still there", uid)
		}
	}
}
