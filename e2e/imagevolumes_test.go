//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/stack"
)

// An image is mounted as a volume: as a whole and in part, read-only. Only its own container waits for an unavailable one. A
// runtime without support rejects the container, and the agent reports that.
func TestVolumesThatAreImages(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		push(t, s, "files", "1")
		a := agentWith(t, s, quick)
		files, none := s.Registry.Ref("files"), s.Registry.Addr+"/none:1"
		must(t, a.Write("p.yaml", manifest(s, "p", fmt.Sprintf(`
terminationGracePeriodSeconds: 5
containers:
- name: c
  image: HELLO
  args: [cat, /files/etc/passwd, --, cat, /part/group, --, sleep]
  env: [{name: PART, value: etc}]
  volumeMounts: [{name: files, mountPath: /files}, {name: files, mountPath: /part, subPathExpr: $(PART)}]
- {name: readonly, image: HELLO, args: [write, /files/tmp/x, x], volumeMounts: [{name: files, mountPath: /files}]}
- {name: lacks, image: HELLO, args: [sleep], volumeMounts: [{name: none, mountPath: /none}]}
- {name: alone, image: HELLO, args: [sleep]}
volumes:
- {name: files, image: {reference: %s}}
- {name: none, image: {reference: %s, pullPolicy: Always}}
- {name: unused, image: {reference: %[2]s}}`, files, none))))
		up(t, s, "p", "alone")
		if !s.HasEvents() { // 1.6
			awaitWaiting(t, a, "p", "CreateContainerError", "failed to")
			return
		}
		c := up(t, s, "p", "c")
		awaitLogs(t, s, c.Id, "root:x:0:0:root:/:\nnobody:x:65534:65534:nobody:/:\nroot:x:0:\nnobody:x:65534:\n")
		if c := down(t, s, "p", "readonly"); c.ExitCode != 1 {
			t.Errorf("the image was written to: %+v", c)
		}
		if ref := c.Annotations["playlet.dev/image-volumes"]; !strings.HasPrefix(ref, "sha256:") {
			t.Errorf("the container's images are %q", ref)
		}
		awaitWaiting(t, a, "p", "ImagePullBackOff", none)
		if n := s.Registry.Pulls("files"); n != 1 {
			t.Errorf("the image was pulled %d times for two containers", n)
		}
		if v := s.Registry.Pulls("none"); v < 1 {
			t.Errorf("the image that is not there was asked for %d times", v)
		}
	})
}
