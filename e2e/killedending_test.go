//go:build e2e

package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// An agent that is killed in each phase of a pod's end brings it to the same end, each container with the code that it gave
// itself; a pod beside it keeps its container, its mounts and its readiness, at every look.
func TestTheAgentIsKilledWhileAPodEnds(t *testing.T) {
	const stays = `
terminationGracePeriodSeconds: 2
containers:
- {name: c, image: HELLO, args: [sleep], volumeMounts: [{name: data, mountPath: /data}, {name: memory, mountPath: /m}],
   readinessProbe: {periodSeconds: 1, exec: {command: [/hello, check-file, /data/yes]}},
   livenessProbe: {periodSeconds: 1, exec: {command: [/hello, check-file, /data/yes]}}}
volumes: [{name: data, hostPath: {path: FOLDER}}, {name: memory, emptyDir: {medium: Memory}}]`
	const ends = `
terminationGracePeriodSeconds: 60
containers:
- {name: hooked, image: HELLO, args: [sleep, '--', append, /data/ends, hooked], volumeMounts: [{name: data, mountPath: /data}, {name: memory, mountPath: /m}],
   lifecycle: {preStop: {httpGet: {PORTER, path: /ends}}}}
- {name: slow, image: HELLO, args: [slow-term, '7', '3', '--', append, /data/ends, slow], volumeMounts: [{name: data, mountPath: /data}]}
volumes: [{name: data, hostPath: {path: FOLDER}}, {name: memory, emptyDir: {medium: Memory}}]`
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a, p, folder := agentWith(t, s, quick), newPorter(t), t.TempDir()
		in := func(spec string) string { return strings.ReplaceAll(p.addressed(spec), "FOLDER", folder) }
		touch(t, filepath.Join(folder, "yes"))
		must(t, a.Write("stays.yaml", manifest(s, "stays", in(stays))))
		must(t, a.Write("ends.yaml", manifest(s, "ends", in(ends))))
		was := awaitPod(t, a, "stays", ready)
		awaitPod(t, a, "ends", ready)
		mounted := slices.DeleteFunc(podMounts(t, a), func(m string) bool { return !strings.Contains(m, string(was.UID)) })
		hooked, slow := up(t, s, "ends", "hooked"), up(t, s, "ends", "slow")
		killed := func() {
			t.Helper()
			must(t, a.Kill9())
			must(t, a.Start())
			for said := 0; said < 3; {
				now, err := a.Snapshot(t.Context())
				if err != nil {
					continue
				}
				if pod := now.Pod(onNode("stays")); pod != nil && len(pod.Pod.Status.ContainerStatuses) > 0 {
					said++
					must(t, ready(pod.Pod))
					if c := statusOf(pod.Pod, "c"); c.ContainerID != statusOf(was, "c").ContainerID || c.RestartCount != 0 {
						t.Fatalf("beside it: %+v", c)
					}
				}
			}
		}
		must(t, a.Remove("ends.yaml"))
		p.door("/ends?").await(t)
		// A StopContainer of containerd whose caller is killed may count as signalled, and send no signal.
		await(t, func() error {
			log, err := s.Logs(t.Context(), slow.Id)
			if err == nil && !strings.Contains(log, "got TERM") {
				err = fmt.Errorf("container slow has no signal yet: %q", log)
			}
			return err
		})
		killed() // while a hook runs, and the other container has its signal
		if c := up(t, s, "ends", "hooked"); c.Id != hooked.Id {
			t.Error("it is another container")
		}
		close(p.door("/ends?").open)
		for _, c := range []struct {
			id   string
			code int32
		}{{hooked.Id, 0}, {slow.Id, 7}} {
			await(t, func() error {
				switch end, err := s.CRI().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.id}); {
				case err != nil:
					return nil // collected: no trace of it remains
				case end.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED:
					return fmt.Errorf("container %s is %s", c.id, end.Status.State)
				case end.Status.ExitCode != c.code:
					t.Fatalf("it ended with code %d, want %d", end.Status.ExitCode, c.code)
				}
				return nil
			})
			if rand.IntN(2) == 0 {
				killed() // while it ends, or is cleaned up: where, is chance
			}
		}
		awaitNone(t, s, "ends")
		killed() // nothing of it runs any more
		asStarted(t, s, []*runtimeapi.Container{up(t, s, "stays", "c")})
		await(t, func() error {
			if now := podMounts(t, a); !slices.Equal(now, mounted) {
				return fmt.Errorf("%v is mounted, want %v", now, mounted)
			}
			return nil
		})
		must(t, a.Remove("stays.yaml"))
		cleared(t, s, a)
	})
}
