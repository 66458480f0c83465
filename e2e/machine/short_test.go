//go:build e2e

package machine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/playlet-dev/playlet/e2e/machine"
	"github.com/playlet-dev/playlet/e2e/parts/install"
)

// reports is a server that pods report to, by the address that the guest has of it.
type reports struct {
	url string
	mu  sync.Mutex
	got []string
}

func startReports(t *testing.T) *reports {
	r := &reports{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, strings.Trim(q.URL.Path, "/"))
	}))
	t.Cleanup(s.Close)
	r.url = strings.Replace(s.URL, "127.0.0.1", machine.HostAddress, 1)
	return r
}

// index returns the place of a report among all, -1: none.
func (r *reports) index(report string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Index(r.got, report)
}

// lingering is a script that reports its signal, and its end some seconds later.
func (r *reports) lingering(name string, seconds int) string {
	report := "wget -q -O /dev/null " + r.url + "/" + name
	return fmt.Sprintf("trap '%s-term; sleep %d; %s-end; exit 0' TERM; sleep 1000000 & wait", report, seconds, report)
}

// The package is installed on a Debian with systemd and cgroup v2. Pods of each class run in their slices, a restart of the agent
// leaves them alone, and a power-off ends them in the order of their priorities, each with its grace.
func TestShort(t *testing.T) {
	if len(machine.Releases()) == 0 {
		testShort(t, install.Bookworm)
		return
	}
	machine.Each(t, testShort)
}

func testShort(t *testing.T, release install.Release) {
	r := startReports(t)
	n := machine.StartNode(t, machine.Options{Release: release})
	n.Configure("shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 30s")
	const resources = "resources: {requests: {cpu: 50m, memory: 32Mi}%s}"
	n.Pod("guaranteed", r.lingering("guaranteed", 2), "priority: 2000000000",
		fmt.Sprintf(resources, ", limits: {cpu: 50m, memory: 32Mi}"))
	n.Pod("burstable", r.lingering("burstable", 2), "", fmt.Sprintf(resources, ""))
	n.Pod("besteffort", r.lingering("besteffort", 2), "", "")
	n.Enable()
	if got := n.Must("systemctl show -p Type,ActiveState,WatchdogUSec playlet.service | sort"); got !=
		"ActiveState=active\nType=notify\nWatchdogUSec=1min" {
		t.Errorf("the unit has\n%s", got)
	}
	pods := []string{"guaranteed", "burstable", "besteffort"}
	n.AwaitPods(pods...)
	groups := n.Must("find /sys/fs/cgroup/kubepods.slice -name 'cri-containerd-*.scope'")
	for _, slice := range []string{"/kubepods.slice/kubepods-pod", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod",
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"} {
		if !strings.Contains(groups, slice) {
			t.Errorf("no container is in %s*.slice, but in\n%s", slice, groups)
		}
	}
	before, agent := n.Tasks(), n.Must("systemctl show -p MainPID playlet.service")
	n.Must("systemctl restart playlet.service")
	n.AwaitPods(pods...)
	if now := n.Tasks(); now != before {
		t.Errorf("after a restart of the agent there runs\n%s\nand before\n%s", now, before)
	}
	if n.Must("systemctl show -p MainPID playlet.service") == agent {
		t.Error("the agent was not restarted")
	}

	if err := n.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if r.index(pod+"-term") < 0 || r.index(pod+"-end") < 0 {
			t.Errorf("%s had no signal or no grace: reports are %q", pod, r.got)
		}
	}
	for _, pod := range pods[1:] {
		if r.index(pod+"-end") > r.index("guaranteed-term") {
			t.Errorf("the critical pod ends before %s has: reports are %q", pod, r.got)
		}
	}
}
