package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/pod"
)

// mapsTmpfs is the first kernel with idmapped mounts of tmpfs. Other file systems had them earlier.
var mapsTmpfs = version.MajorMinor(6, 3)

// checkUsers reports whether pods can have user namespaces of their own. They wait where they cannot, and others run.
func checkUsers(ctx context.Context, m *Machine) []Finding {
	if err := pod.KernelUsers(m.Proc); err != nil {
		return warn("do so if pods with hostUsers: false are to run here", "%v", err)
	}
	facts, err := m.askRuntime(ctx)
	if err != nil {
		return noRuntime()
	}
	able := slices.ContainsFunc(facts.status.GetRuntimeHandlers(), func(h *runtimeapi.RuntimeHandler) bool {
		return h.GetName() == "" && h.GetFeatures().GetUserNamespaces()
	})
	if !able {
		return ok("the runtime cannot run pods with hostUsers: false: they wait (containerd 2.0 with runc 1.2 can run them)")
	}
	ids := m.Node.IDsPerPod()
	bounds, err := m.UserBounds(ctx, ids)
	if err != nil {
		return warn("until then pods with hostUsers: false wait", "%v", err)
	}
	var found []Finding
	if room, most := bounds.Pods(ids), int(m.Node.Kubelet.MaxPods); room < most {
		found = warn("give user kubelet more IDs in /etc/subuid and /etc/subgid, or lower maxPods; a kubelet would not start",
			"the user IDs %s are enough for %d pods with hostUsers: false, and maxPods is %d", bounds, room, most)
	}
	if text, err := os.ReadFile(filepath.Join(m.Proc, "sys/kernel/osrelease")); err == nil {
		release, err := version.ParseGeneric(strings.TrimSpace(string(text)))
		if err == nil && release.LessThan(mapsTmpfs) {
			found = append(found, warn("use Linux 6.3 or newer", "Linux %s cannot mount volumes in memory for pods with "+
				"hostUsers: false (Secrets, tokens, emptyDir with medium Memory): their containers do not start", release)...)
		}
	}
	return or(found, ok("pods with hostUsers: false get %d user IDs each, of %s", ids, bounds))
}
