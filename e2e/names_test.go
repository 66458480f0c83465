//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/isolate"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
)

// shared returns the host's namespaces of a running container.
func shared(t *testing.T, s *stack.Stack, pod, container string) string {
	t.Helper()
	pid, err := s.ContainerPID(t.Context(), up(t, s, pod, container).Id)
	must(t, err)
	var kinds []string
	for _, kind := range []string{"ipc", "net", "pid", "uts"} {
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		must(t, err)
		own, err := os.Readlink("/proc/self/ns/" + kind)
		must(t, err)
		if its == own {
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, " ")
}

// namesPod prints the names in a container, and sleeps.
func namesPod(t *testing.T, s *stack.Stack, a *stack.Agent, name, spec string) {
	t.Helper()
	must(t, a.Write(name+".yaml", manifest(s, name, "terminationGracePeriodSeconds: 5\n"+strings.TrimSpace(spec)+`
containers:
- {name: hostname, image: HELLO, args: [cat, /proc/sys/kernel/hostname, --, sleep]}
- {name: hosts, image: HELLO, args: [cat, /etc/hosts, --, sleep]}
- {name: resolv, image: HELLO, args: [cat, /etc/resolv.conf, --, sleep]}`)))
}

// awaitLines waits until a running container's log equals the lines, or includes all of them if exact is false.
func awaitLines(t *testing.T, s *stack.Stack, pod, container string, exact bool, want ...string) {
	t.Helper()
	c := up(t, s, pod, container)
	await(t, func() error {
		text, err := s.Logs(t.Context(), c.Id)
		if err != nil {
			return err
		}
		missing := exact && text != strings.Join(want, "\n")+"\n"
		for _, line := range want {
			missing = missing || !strings.Contains("\n"+text, "\n"+line+"\n")
		}
		if missing {
			return fmt.Errorf("container %s of pod %s says\n%swant\n%s", container, pod, text, strings.Join(want, "\n"))
		}
		return nil
	})
}

// A pod's own name, its names for others, and its name servers.
func TestNamesAndTheirResolution(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		resolv := t.TempDir() + "/resolv.conf"
		must(t, os.WriteFile(resolv, []byte("nameserver 192.0.2.1\nsearch node.test\noptions timeout:3\n"), 0o644))
		a := agentWith(t, s, func(a *stack.Agent) {
			a.Config["resolvConf"], a.Config["clusterDNS"], a.Config["clusterDomain"] = resolv, []string{"10.96.0.10"},
				"cluster.test"
		})
		namesPod(t, s, a, "plain", "")
		namesPod(t, s, a, "own", `
hostname: other
hostAliases: [{ip: 192.0.2.7, hostnames: [one.test, two.test]}, {ip: 192.0.2.8, hostnames: [three.test]}]
dnsPolicy: None
dnsConfig: {nameservers: [192.0.2.53], searches: [a.test, b.test], options: [{name: ndots, value: "2"}, {name: edns0}]}`)
		namesPod(t, s, a, "default", "dnsPolicy: Default\ndnsConfig: {searches: [more.test]}")
		namesPod(t, s, a, "sub", "hostname: short\nsubdomain: sub\nsetHostnameAsFQDN: true")
		namesPod(t, s, a, "leaf", "hostname: short\nsubdomain: sub")
		namesPod(t, s, a, "over", "hostnameOverride: over.ride.test\nsubdomain: sub")
		must(t, a.Write("long.yaml", manifest(s, "long", "subdomain: "+strings.Repeat("s", 40)+
			"\nsetHostnameAsFQDN: true\ncontainers: [{name: c, image: HELLO, args: [sleep]}]")))
		namesPod(t, s, a, "host", "hostNetwork: true\nhostAliases: [{ip: 192.0.2.9, hostnames: [four.test]}]")

		ip := awaitPod(t, a, "plain", ready).Status.PodIP
		awaitLines(t, s, "plain", "hostname", true, onNode("plain"))
		awaitLines(t, s, "plain", "hosts", false, "127.0.0.1\tlocalhost", ip+"\t"+onNode("plain"))
		awaitLines(t, s, "plain", "resolv", true, "search default.svc.cluster.test svc.cluster.test cluster.test node.test",
			"nameserver 10.96.0.10", "options ndots:5")
		ip = awaitPod(t, a, "own", ready).Status.PodIP
		awaitLines(t, s, "own", "hostname", true, "other")
		awaitLines(t, s, "own", "hosts", false, ip+"\tother", "192.0.2.7\tone.test\ttwo.test", "192.0.2.8\tthree.test")
		awaitLines(t, s, "own", "resolv", true, "search a.test b.test", "nameserver 192.0.2.53", "options ndots:2 edns0")
		ip = awaitPod(t, a, "sub", ready).Status.PodIP
		awaitLines(t, s, "sub", "hostname", true, "short.sub.default.svc.cluster.test")
		awaitLines(t, s, "sub", "hosts", false, ip+"\tshort.sub.default.svc.cluster.test\tshort")
		ip = awaitPod(t, a, "leaf", ready).Status.PodIP
		awaitLines(t, s, "leaf", "hostname", true, "short")
		awaitLines(t, s, "leaf", "hosts", false, ip+"\tshort.sub.default.svc.cluster.test\tshort")
		ip = awaitPod(t, a, "over", ready).Status.PodIP
		awaitLines(t, s, "over", "hostname", true, "over.ride.test")
		awaitLines(t, s, "over", "hosts", false, ip+"\tover.ride.test")
		now, err := a.Snapshot(t.Context())
		must(t, err)
		if long := now.Pod(onNode("long")); long == nil || long.Waiting == nil ||
			!strings.Contains(long.Waiting.Message, "64 are allowed") {
			t.Errorf("a name that is too long: %+v", long)
		}
		awaitLines(t, s, "default", "resolv", true, "search node.test more.test", "nameserver 192.0.2.1", "options timeout:3")
		awaitLines(t, s, "host", "hostname", true, isolate.HostName)
		awaitLines(t, s, "host", "hosts", false, "192.0.2.9\tfour.test")
		awaitLines(t, s, "host", "resolv", true, "search node.test", "nameserver 192.0.2.1", "options timeout:3")
	})
}

// A pod's namespaces, shared with the host or between containers; its ports; its sysctls.
func TestNamespacesAndPorts(t *testing.T) {
	overBoth(t, func(t *testing.T, s *stack.Stack) {
		a := s.Agent(t)
		pod := func(name, spec string) {
			must(t, a.Write(name+".yaml", manifest(s, name, "terminationGracePeriodSeconds: 5\n"+strings.TrimSpace(spec))))
		}
		pod("own", `
securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: "1"}]}
containers:
- {name: c, image: HELLO, args: [cat, /proc/1/cmdline, --, cat, /proc/sys/kernel/shm_rmid_forced, --, sleep]}`)
		pod("together", `
shareProcessNamespace: true
containers: [{name: c, image: HELLO, args: [cat, /proc/1/cmdline, --, cat, /proc/sys/kernel/hostname, --, sleep]}]`)
		pod("hosts", `
hostNetwork: true
hostPID: true
hostIPC: true
containers: [{name: c, image: HELLO, args: [serve, "8089"], ports: [{containerPort: 8089}]}]`)
		pod("mapped", `containers: [{name: c, image: HELLO, ports: [{name: http, containerPort: 8080, hostPort: 8088}]}]`)

		for name, want := range map[string]string{"own": "", "together": "", "hosts": "ipc net pid uts"} {
			if got := shared(t, s, name, "c"); got != want {
				t.Errorf("pod %s shares %q with the host, want %q", name, got, want)
			}
		}
		hello := "/hello\x00cat\x00/proc/1/cmdline\x00--\x00cat\x00/proc/sys/kernel/shm_rmid_forced\x00--\x00sleep\x00"
		awaitLogs(t, s, up(t, s, "own", "c").Id, hello+"1\n")
		awaitContains(t, s, up(t, s, "together", "c").Id, "/pause\x00"+onNode("together"))
		status := awaitPod(t, a, "hosts", ready).Status
		if status.PodIP != isolate.NodeIP || status.HostIP != isolate.NodeIP {
			t.Errorf("a pod on the host's network has the address %s on %s", status.PodIP, status.HostIP)
		}
		answers(t, isolate.NodeIP+":8089", isolate.HostName)
		awaitPod(t, a, "mapped", ready)
		answers(t, isolate.NodeIP+":8088", onNode("mapped"))
		must(t, a.Remove("mapped.yaml"))
		forgotten(t, a, "mapped")
		if conn, err := net.Dial("tcp", isolate.NodeIP+":8088"); err == nil {
			t.Error("the port of a pod that is gone answers")
			must(t, conn.Close())
		}
		awaitPod(t, a, "own", func(p *corev1.Pod) error {
			if p.Status.PodIP == "" || p.Status.PodIP == isolate.NodeIP || len(p.Status.PodIPs) != 1 {
				return fmt.Errorf("its addresses are %v", p.Status.PodIPs)
			}
			return nil
		})
	})
}

// awaitContains waits until a container's log has that text.
func awaitContains(t *testing.T, s *stack.Stack, id, want string) {
	t.Helper()
	await(t, func() error {
		got, err := s.Logs(t.Context(), id)
		if err == nil && !strings.Contains(got, want) {
			err = fmt.Errorf("the log is %q, want %q in it", got, want)
		}
		return err
	})
}

// answers waits until the hello server of the host of that name answers there.
func answers(t *testing.T, addr, name string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	await(t, func() error {
		resp, err := client.Get("http://" + addr + "/x")
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // read to the end
		body, err := io.ReadAll(resp.Body)
		if want := "Hello from " + name + ": /x\n"; err == nil && string(body) != want {
			err = fmt.Errorf("%s answers %q, want %q", addr, body, want)
		}
		return err
	})
}
