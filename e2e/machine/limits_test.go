//go:build e2e

package machine_test

import (
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// hog is a script that fills a tmpfs volume with a number of MiB, and then sleeps.
const hog = "dd if=/dev/zero of=/memory/file bs=1M count=%s; exec sleep 1000000"

// A node with cgroup v2 keeps its limits: the kernel ends a container above its memory limit, the agent evicts a pod when the
// node's memory runs out, swap and huge pages are limited, a pod has users of its own, and the agent delays a shutdown.
func TestLimits(t *testing.T) { machine.Each(t, testLimits) }

func testLimits(t *testing.T, release install.Release) {
	n := machine.StartNode(t, machine.Options{Release: release})
	n.Must("echo 8 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages && fallocate -l 256M /swap && chmod 600 /swap && " +
		"mkswap -q /swap && swapon /swap")
	n.Configure("shutdownGracePeriod: 60s\nfailSwapOn: false\nmemorySwap: {swapBehavior: LimitedSwap}\n" +
		"evictionHard: {memory.available: 1Gi}\nevictionPressureTransitionPeriod: 30s")
	n.Must("echo PLAYLET_ARGS=--evict-static-pods >>/etc/default/playlet")
	memory := func(mib string) string {
		return "volumeMounts: [{name: memory, mountPath: /memory}]\n" + mib
	}
	const volume = "volumes: [{name: memory, emptyDir: {medium: Memory}}]"
	const asleep = "exec sleep 1000000"
	n.Pod("oom", strings.Replace(hog, "%s", "64", 1), "restartPolicy: Never\n"+volume, memory("resources: {limits: {memory: 32Mi}}"))
	n.Pod("swap", asleep, "", "resources: {requests: {memory: 64Mi}, limits: {memory: 128Mi}}")
	n.Pod("huge", asleep, "", "resources: {limits: {cpu: 300m, memory: 32Mi, hugepages-2Mi: 4Mi}}")
	n.Pod("users", asleep, "hostUsers: false", "")
	n.Enable()
	n.AwaitPods("swap", "huge", "users")
	// value reads a cgroup file, relative to the group of a pod's container.
	value := func(pod, file string) string {
		return "cat /sys/fs/cgroup/$(cut -d: -f3 /proc/$(playlet pods " + pod + "-" + n.Name + " -o jsonpath={.status.containerStatuses[0].containerID} | " +
			"sed 's#.*//##' | xargs ctr -n k8s.io tasks ps | sed -n 2p | cut -d' ' -f1)/cgroup)/" + file
	}
	is := func(want string) func(string) bool {
		return func(out string) bool { return strings.TrimSpace(out) == want }
	}
	t.Run("out of memory", func(t *testing.T) {
		n.Await(commandLimit, "playlet explain oom-"+n.Name, func(out string) bool {
			return strings.Contains(out, "container main was killed for using more than 32Mi of memory")
		})
	})
	t.Run("swap", func(t *testing.T) {
		// As with a kubelet, static pods count as critical and get none (KEP-2400).
		if got := n.Must(value("swap", "memory.swap.max")); got != "0" {
			t.Errorf("memory.swap.max of a static pod is %s", got)
		}
	})
	t.Run("huge pages", func(t *testing.T) {
		if got := n.Must(value("huge", "../hugetlb.2MB.max")); got != "4194304" {
			t.Errorf("hugetlb.2MB.max is %s", got)
		}
		if got := n.Must(value("users", "../hugetlb.2MB.max")); got != "0" {
			t.Errorf("hugetlb.2MB.max of a pod without huge pages is %s", got)
		}
	})
	t.Run("users", func(t *testing.T) {
		got := strings.Fields(n.Must("playlet exec users-" + n.Name + " -- cat /proc/self/uid_map"))
		if len(got) != 3 || got[0] != "0" || got[1] == "0" || got[2] != "65536" {
			t.Errorf("the pod's users are %q", got)
		}
	})
	t.Run("eviction", func(t *testing.T) {
		n.Pod("hog", strings.Replace(hog, "%s", "1800", 1), volume, memory(""))
		n.Await(commandLimit, "playlet pods hog-"+n.Name+" -o jsonpath={.status.reason}", is("Evicted"))
		n.AwaitPods("swap", "huge", "users")
		n.Await(commandLimit, "playlet explain node", func(out string) bool { return !strings.Contains(out, "MemoryPressure") })
		n.Must("rm /etc/kubernetes/manifests/hog.yaml")
	})
	t.Run("inhibitor", func(t *testing.T) {
		if got := n.Must("systemd-inhibit --list --no-pager"); !strings.Contains(got, "delay") || !strings.Contains(got, "playlet") {
			t.Errorf("the locks are\n%s", got)
		}
	})
}
