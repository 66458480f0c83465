package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/util/keyutil"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/pod"
	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/config"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/sim"
)

// Each check, on a machine that is fit but for one thing.
func TestEachCheckFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		flags  []string
		wrong  func(r *rig)
		check  string
		result Result
		says   string
	}{
		"configuration": {check: "configuration", result: OK, says: "flags and defaults"},
		"a pending flag": {wrong: func(r *rig) { r.Warnings = []config.Warning{{Flag: "--x", Message: "does nothing"}} },
			check: "configuration", result: Warn, says: "--x: does nothing"},
		"a service that root can read": {wrong: func(r *rig) { r.Unread = "/etc/x.service" }, check: "configuration", result: Warn,
			says: "(/etc/x.service)"},
		"an unknown field": {wrong: func(r *rig) {
			r.Warnings = []config.Warning{{Flag: "--config", Message: "unknown field", Mistake: true}}
		}, check: "configuration", result: Fail, says: "--config: unknown field"},
		"CPUs that are not there": {flags: []string{"--reserved-cpus=0,7"},
			wrong: func(r *rig) { r.write(r.Sys+"/devices/system/cpu/online", "0-3\n") },
			check: "configuration", result: Fail, says: "reservedSystemCPUs"},
		"many of them": {wrong: func(r *rig) {
			for i := range 9 {
				r.Warnings = append(r.Warnings, config.Warning{Flag: fmt.Sprint("--", i), Message: "long"})
			}
		}, check: "configuration", result: Warn, says: "--7, --8"},

		"no volumes are left": {check: "volumes", result: OK, says: "no volumes that the agent cannot manage"},
		"a kubelet's block device": {wrong: func(r *rig) {
			r.write(r.Node.RootDir+"/pods/u/volumeDevices/kubernetes.io~iscsi/pv", "")
		}, check: "volumes", result: Warn, says: "pods/u/volumeDevices/kubernetes.io~iscsi/pv is a block device of kubernetes.io/iscsi"},
		"data in a plain folder": {wrong: func(r *rig) {
			r.write(r.Node.RootDir+"/pods/u/volumes/kubernetes.io~nfs/pv/file", "")
		}, check: "volumes", result: Warn, says: "holds data although no volume of kubernetes.io/nfs is mounted there"},

		"a folder of a pod that is over": {wrong: func(r *rig) {
			r.write(r.Node.RootDir+"/pods/u/volumes/kubernetes.io~nfs/pv/file", "")
			r.Held = func(context.Context) ([]api.Finding, error) {
				return []api.Finding{{Cause: "/r/pods/over of a pod that is over", Remedy: "unmount it"},
					{Cause: r.Node.RootDir + "/pods/u/volumes/kubernetes.io~nfs/pv holds data although no volume of " +
						"kubernetes.io/nfs is mounted there: it is kept"}}, nil
			}
		}, check: "volumes", result: Warn, says: "/r/pods/over of a pod that is over → unmount it"},

		"no exclusive CPUs": {check: "cpus", result: OK, says: "no exclusive CPUs"},
		"CPUs of another policy": {wrong: func(r *rig) { r.cpus(`{"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}`) },
			check: "cpus", result: Fail, says: `/root/cpu_manager_state: configured policy "none" differs from state checkpoint ` +
				`policy "static" → drain this node and remove the file`},
		"CPUs, unreadable": {wrong: func(r *rig) { r.cpus("{") }, check: "cpus", result: Warn, says: "cannot be read: unexpected end"},
		"CPUs, static":     {wrong: staticCPUs, check: "cpus", result: OK, says: "the policy static"},
		"CPUs, static and unreadable": {wrong: func(r *rig) { staticCPUs(r); r.cpus("{") }, check: "cpus", result: Fail,
			says: "/root/cpu_manager_state: unexpected end of JSON input → drain this node"},
		"CPUs, static and newer": {wrong: func(r *rig) {
			staticCPUs(r)
			r.cpus(`{"policyName":"static","defaultCpuSet":"0-63","checksum":1,"data":"{}","dataChecksum":2}`)
		}, check: "cpus", result: Fail, says: "a newer version of the format: unknown fields data, dataChecksum"},
		"CPUs, static and others": {wrong: func(r *rig) {
			staticCPUs(r)
			r.cpus(`{"policyName":"static","defaultCpuSet":"60000-60001","checksum":0}`)
			r.write(r.Sys+"/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu.slice/cgroup.procs", "")
		}, check: "cpus", result: Fail, says: "are present in defaultCpuSet"},
		"CPUs, static and others, without pods": {wrong: func(r *rig) {
			staticCPUs(r)
			r.cpus(`{"policyName":"static","defaultCpuSet":"60000-60001","checksum":0}`)
		}, check: "cpus", result: Warn, says: "does not fit: it is of another machine, and no container runs"},
		"CPUs, static without reserved ones": {wrong: func(r *rig) { r.Node.Kubelet.CPUManagerPolicy = "static" }, check: "cpus", result: Fail,
			says: "cpuManagerPolicy static: the static policy requires"},

		"no other agent": {check: "agent", result: OK, says: "none runs"},
		"a kubelet": {wrong: func(r *rig) { r.process("77", "kubelet") }, check: "agent", result: Fail,
			says: "process 77"},
		"a kubelet elsewhere": {wrong: kubeletElsewhere, check: "agent", result: Warn, says: "in a container"},
		"an agent": {wrong: func(r *rig) { r.agent(true) }, check: "agent", result: OK,
			says: "playlet v1 runs here, process 88"},
		"an agent named kubelet": {wrong: func(r *rig) { r.agent(true); r.write(filepath.Join(r.Proc, "88", "comm"), "kubelet\n") },
			check: "agent", result: OK, says: "playlet v1 runs here, process 88"},
		"an agent behind a link": {wrong: func(r *rig) { r.rootThroughALink(); r.agent(true) }, check: "agent", result: OK,
			says: "playlet v1 runs here, process 88"},
		"an agent that is dumb":                 {wrong: func(r *rig) { r.agent(false) }, check: "agent", result: Warn, says: "does not answer"},
		"an agent of other root, by its socket": {wrong: elsewhere, check: "agent", result: OK, says: "playlet v1 runs here, process 88"},
		"its port":                              {wrong: elsewhere, check: "ports", result: OK, says: "used by the running agent: 10248"},
		"an agent of other root": {wrong: func(r *rig) {
			r.Agent = func(context.Context) (RunningAgent, error) { return RunningAgent{Version: "v1"}, nil }
		},
			check: "agent", result: Warn, says: "another root folder"},

		"conditions": {check: "conditions", result: OK, says: "RuntimeReady, NetworkReady"},
		"not ready": {wrong: func(r *rig) { r.condition(0, "broken") }, check: "conditions", result: Fail,
			says: "broken"},
		"no network": {wrong: func(r *rig) { r.condition(1, "cni") }, check: "conditions", result: Fail,
			says: "NetworkReady is false"},
		"its own condition": {wrong: func(r *rig) { r.condition(-1, "old") }, check: "conditions", result: Warn, says: "old"},
		"no conditions": {wrong: func(r *rig) { r.runtime.err = errors.New("x") }, check: "conditions", result: Skip,
			says: "does not answer"},

		"features": {check: "features", result: OK, says: "events, cgroup driver reporting; not: recursive"},
		"no events": {wrong: func(r *rig) { r.runtime.noEvents = unimplemented(r.t) }, check: "features", result: OK,
			says: "not: events (changes are found by polling)"},
		"old runtime": {wrong: func(r *rig) { r.runtime.driver, r.runtime.noDriver = nil, unimplemented(r.t) }, check: "features",
			result: Warn, says: "cgroupDriver"},

		"cgroups": {check: "cgroups", result: OK, says: "version 2; root /"},
		"no controller": {wrong: func(r *rig) { r.write(r.Sys+"/fs/cgroup/cgroup.controllers", "cpu cpuset pids hugetlb") },
			check: "cgroups", result: Fail, says: "the controller memory is missing"},
		"no huge pages": {wrong: func(r *rig) { r.write(r.Sys+"/fs/cgroup/cgroup.controllers", "cpu cpuset pids memory") },
			check: "cgroups", result: Warn, says: "hugetlb"},
		"not writable": {wrong: func(r *rig) { r.system.unwritable = map[string]bool{r.Sys + "/fs/cgroup": true} },
			check: "cgroups", result: Fail, says: "Delegate=yes"},
		"read-only": {wrong: func(r *rig) { r.cgroupMount("cgroup2", "ro", "rw") }, check: "cgroups", result: Fail,
			says: "read-only"},
		"a root that is not there": {flags: []string{"--cgroup-root=/pods/here"}, check: "cgroups", result: Fail,
			says: "cgroupRoot /pods/here does not exist"},
		"a reservation without its group": {flags: []string{"--enforce-node-allocatable=pods,system-reserved",
			"--system-reserved=memory=1Gi", "--system-reserved-cgroup=/sys"}, check: "cgroups", result: Fail,
			says: "systemReserved, cgroup /sys: it does not exist"},
		"a root that systemd has made": {flags: []string{"--cgroup-root=/pods"},
			wrong: func(r *rig) { r.write(r.cgroup()+"/pods.slice/cgroup.type", "domain") }, check: "cgroups", result: OK,
			says: "root /pods"},
		"not mounted": {wrong: func(r *rig) { r.write(r.Proc+"/self/mountinfo", "") }, check: "cgroups", result: Fail,
			says: "mount -t cgroup2"},
		"version 1": {wrong: func(r *rig) { r.system.cgroupsMagic = unix.TMPFS_MAGIC }, check: "cgroups", result: Fail,
			says: "failCgroupV1"},
		"version 1 is wanted": {flags: []string{"--fail-cgroupv1=false"}, wrong: versionOne, check: "cgroups", result: Warn,
			says: "version 1, allowed by failCgroupV1: false"},
		"processes in the way": {wrong: func(r *rig) {
			r.write(r.Sys+"/fs/cgroup/cgroup.type", "domain\n")
			r.write(r.Sys+"/fs/cgroup/cgroup.subtree_control", "")
		}, check: "cgroups", result: Fail, says: "cannot be enabled for pods"},
		"nothing handed down at the root": {wrong: func(r *rig) { r.write(r.Sys+"/fs/cgroup/cgroup.subtree_control", "") },
			check: "cgroups", result: OK, says: "version 2"},

		"driver": {check: "cgroup-driver", result: OK, says: "cgroupfs, reported by the runtime"},
		"systemd without it": {wrong: func(r *rig) { r.driverIs(runtimeapi.CgroupDriver_SYSTEMD) }, check: "cgroup-driver",
			result: Fail, says: "SystemdCgroup = false"},
		"systemd with it": {flags: []string{"--cgroup-driver=systemd"},
			wrong: func(r *rig) { r.systemd(); r.driverIs(runtimeapi.CgroupDriver_SYSTEMD) }, check: "cgroup-driver", result: OK,
			says: "systemd, reported"},
		"cgroupfs beside it": {wrong: func(r *rig) { r.systemd() }, check: "cgroup-driver", result: Warn,
			says: "SystemdCgroup = true"},
		"drivers that differ": {flags: []string{"--cgroup-driver=systemd"},
			wrong: func(r *rig) { r.driverIs(runtimeapi.CgroupDriver_CGROUPFS) }, check: "cgroup-driver", result: Warn,
			says: "set cgroupDriver: cgroupfs"},
		"nothing configured": {wrong: func(r *rig) { r.systemd(); r.driverIs(runtimeapi.CgroupDriver_SYSTEMD) },
			check: "cgroup-driver", result: OK, says: "systemd, reported"},

		"no network configuration": {check: "network", result: Fail, says: "no network configuration in "},
		"the same, and nobody to ask": {wrong: func(r *rig) { r.CNIConfDir, r.runtime.err = "", errors.New("x") },
			check: "network", result: Warn, says: "the default folders"},
		"the runtime says where": {wrong: func(r *rig) {
			r.CNIConfDir = ""
			r.runtime.status.Info = map[string]string{"config": `{"cni":{"confDir":"/none/of/it"}}`}
		}, check: "network", result: Fail, says: "/none/of/it (the folders that the runtime reports)"},
		"a runtime that does not say where": {wrong: func(r *rig) { r.CNIConfDir = "" }, check: "network", result: Warn,
			says: "name the folder where it is configured with --cni-conf-dir"},
		"CRI-O without events": {wrong: func(r *rig) { r.runtime.noEvents = io.EOF }, check: "features", result: OK,
			says: "not: events"},
		"CRI-O is away": {flags: []string{"--container-runtime-endpoint=unix:///none/crio/crio.sock"},
			wrong: func(r *rig) { r.runtime.err = errors.New("x") }, check: "runtime", result: Fail, says: "systemctl start crio"},
		"another is away": {flags: []string{"--container-runtime-endpoint=unix:///none/x.sock"},
			wrong: func(r *rig) { r.runtime.err = errors.New("x") }, check: "runtime", result: Fail, says: "→ start the runtime, or"},
		"CRI-O is broken": {flags: []string{"--container-runtime-endpoint=unix:///none/crio/crio.sock"},
			wrong: func(r *rig) { r.condition(0, "broken") }, check: "conditions", result: Fail, says: "journalctl -u crio"},
		"CRI-O and systemd": {flags: []string{"--container-runtime-endpoint=unix:///none/crio/crio.sock"},
			wrong: func(r *rig) { r.driverIs(runtimeapi.CgroupDriver_SYSTEMD) }, check: "cgroup-driver", result: Fail,
			says: "cgroup_manager = \"cgroupfs\" of CRI-O"},
		"nothing to attach to": {check: "attach", result: Skip, says: "not ready"},
		"a plugin is missing":  {wrong: func(r *rig) { r.write(r.CNIConfDir+"/a.conf", `{"name": "a", "type": "none"}`) }, check: "network", result: Fail, says: "install it into /opt/cni/bin"},
		"forwarding":           {check: "forwarding", result: OK, says: "is 1"},
		"no forwarding": {wrong: func(r *rig) { r.write(r.Proc+"/sys/net/ipv4/ip_forward", "0\n") },
			check: "forwarding", result: Warn, says: "sysctl -w"},
		"an address of another machine": {check: "address", result: Warn, says: "on no interface"},
		"no address": {wrong: func(r *rig) { r.noAddress() }, check: "address", result: Fail,
			says: "--node-ip"},

		"ports": {check: "ports", result: OK, says: "free: 10248"},
		"more ports": {flags: []string{"--authorization-mode=AlwaysAllow", "--anonymous-auth", "--read-only-port=10255"}, check: "ports",
			result: OK, says: "free: 10248, 10250, 10255"},
		"a port of others": {wrong: func(r *rig) { r.listens("0100007F:2808", "99", "nginx") }, check: "ports", result: Fail,
			says: "10248, health check (healthzPort), is taken by nginx (process 99)"},
		"a port that is closed": {wrong: func(r *rig) { r.listens("00000000:280A", "99", "nginx") }, check: "ports", result: OK, says: "free: 10248"},
		"the node's API": {flags: []string{"--authorization-mode=AlwaysAllow", "--anonymous-auth"},
			wrong: func(r *rig) { r.listens("00000000:280A", "99", "nginx") }, check: "ports", result: Fail,
			says: "port 10250, the node's API (port), is taken by nginx"},
		"cAdvisor's port": {flags: []string{"--cadvisor-port=4194"}, check: "ports", result: OK, says: "free: 10248, 4194"},
		"cAdvisor's port of others": {flags: []string{"--cadvisor-port=4194"},
			wrong: func(r *rig) { r.listens("00000000:1062", "99", "nginx") }, check: "ports", result: Fail,
			says: "port 4194, cAdvisor's pages (--cadvisor-port), is taken by nginx"},
		"cAdvisor's port on another address": {flags: []string{"--cadvisor-port=4194"},
			wrong: func(r *rig) { r.listens("0200007F:1062", "99", "nginx") }, check: "ports", result: OK, says: "free: 10248, 4194"},
		"another address": {wrong: func(r *rig) { r.listens("0200007F:2808", "99", "nginx") }, check: "ports", result: OK,
			says: "free: 10248"},
		"a port of the agent": {wrong: func(r *rig) { r.agent(true); r.listens("0100007F:2808", "88", "playlet") },
			check: "ports", result: OK, says: "used by the running agent: 10248"},
		"nobody to be seen": {wrong: func(r *rig) { r.listens("0100007F:2808", "", "") }, check: "ports", result: Fail,
			says: "is not visible"},

		"mounts": {check: "mounts", result: OK, says: "on / (ext4), shared"},
		"not shared": {wrong: func(r *rig) { r.write(r.Proc+"/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n") },
			check: "mounts", result: Warn, says: "--make-rshared /"},
		"ro": {wrong: func(r *rig) { r.write(r.Proc+"/self/mountinfo", "1 0 8:1 / / ro shared:1 - ext4 /dev/sda1 rw\n") },
			check: "mounts", result: Fail, says: "read-only"},
		"noexec": {wrong: func(r *rig) {
			r.write(r.Proc+"/self/mountinfo", "1 0 8:1 / / rw,noexec shared:1 - ext4 /dev/sda1 rw\n")
		}, check: "mounts", result: Warn, says: "remount,exec"},
		"a remote one": {wrong: func(r *rig) { r.write(r.Proc+"/self/mountinfo", "1 0 8:1 / / rw shared:1 - nfs4 x:/ rw\n") },
			check: "mounts", result: Warn, says: "nfs4"},
		"not to write": {wrong: func(r *rig) { r.system.unwritable = map[string]bool{r.Node.RootDir: true} }, check: "mounts",
			result: Fail, says: "run as root"},

		"openat2":     {check: "openat2", result: OK, says: "available"},
		"no openat2":  {wrong: func(r *rig) { r.system.openat2 = unix.ENOSYS }, check: "openat2", result: Fail, says: "5.6"},
		"not allowed": {wrong: func(r *rig) { r.system.openat2 = unix.EPERM }, check: "openat2", result: Fail, says: "seccomp"},

		"manifests": {check: "manifests", result: OK, says: "1 file"},
		"no folder": {wrong: func(r *rig) { must(r.t, os.RemoveAll(r.Node.Kubelet.StaticPodPath)) }, check: "manifests",
			result: Warn, says: "mkdir -p"},
		"nobody else's": {check: "permissions", result: OK, says: "no other user can write"},
		"for all to write": {wrong: func(r *rig) { must(r.t, os.Chmod(r.Node.Kubelet.StaticPodPath, 0o777)) }, check: "permissions",
			result: Warn, says: "chmod go-w"},
		"a folder above for all": {wrong: func(r *rig) {
			r.Node.LockFile = filepath.Join(r.t.TempDir(), "open", "in", "lock")
			must(r.t, os.MkdirAll(filepath.Dir(r.Node.LockFile), 0o755))
			must(r.t, os.Chmod(filepath.Dir(filepath.Dir(r.Node.LockFile)), 0o777))
		}, check: "permissions", result: Warn, says: "open is writable by everybody"},
		"a lock that is not there yet in a sticky folder": {wrong: func(r *rig) {
			r.Node.LockFile = filepath.Join(r.t.TempDir(), "lock")
			must(r.t, os.Chmod(filepath.Dir(r.Node.LockFile), 0o777|os.ModeSticky))
		}, check: "permissions", result: Warn, says: "--lock-file="},
		"another user's": {wrong: func(r *rig) { must(r.t, os.Chown(r.Node.RootDir, 12345, -1)) }, check: "permissions",
			result: Warn, says: "belongs to user 12345"},
		"another user's authorities": {wrong: func(r *rig) {
			r.Node.Kubelet.Authentication.X509.ClientCAFile = filepath.Join(r.t.TempDir(), "ca.crt")
			must(r.t, os.WriteFile(r.Node.Kubelet.Authentication.X509.ClientCAFile, nil, 0o600))
			must(r.t, os.Chown(r.Node.Kubelet.Authentication.X509.ClientCAFile, 12345, -1))
		}, check: "permissions", result: Warn, says: "--client-ca-file="},
		"no certificates": {check: "certificates", result: OK, says: "usable"},
		"an absent certificate": {flags: []string{"--tls-cert-file=/none.crt", "--tls-private-key-file=/none.key"},
			check: "certificates", result: Fail, says: "open /none.crt: no such file or directory"},
		"a good certificate": {wrong: func(r *rig) { r.certified(-time.Hour, 60*24*time.Hour) }, check: "certificates", result: OK, says: "usable"},
		"an expired one":     {wrong: func(r *rig) { r.certified(-2*time.Hour, -time.Hour) }, check: "certificates", result: Fail, says: "expired on "},
		"one of the future":  {wrong: func(r *rig) { r.certified(time.Hour, 60*24*time.Hour) }, check: "certificates", result: Fail, says: "not valid before "},
		"one that ends soon": {wrong: func(r *rig) { r.certified(-time.Hour, time.Hour) }, check: "certificates", result: Warn, says: "expires on "},
		"authorities in no PEM": {wrong: func(r *rig) {
			r.certified(-time.Hour, 60*24*time.Hour)
			must(r.t, os.WriteFile(r.Node.Kubelet.Authentication.X509.ClientCAFile, []byte("x"), 0o600))
		}, check: "certificates", result: Fail, says: "authentication.x509.clientCAFile: "},
		"a bad one": {wrong: func(r *rig) { r.manifest("b", "hostname: 1") }, check: "manifests", result: Fail,
			says: "/manifests/b.yaml:5: spec.hostname: "},
		"a misspelt field": {wrong: func(r *rig) { r.manifest("b", "hostNetwrk: true") }, check: "manifests", result: Warn,
			says: "spec.hostNetwrk: is not a field of the API here; did you mean hostNetwork?"},
		"a good one": {wrong: func(r *rig) { r.manifest("b", "restartPolicy: Always") }, check: "manifests", result: OK, says: "2 files"},
		"one name twice": {wrong: func(r *rig) {
			r.manifest("b", "restartPolicy: Always")
			must(r.t, os.Link(r.Node.Kubelet.StaticPodPath+"/b.yaml", r.Node.Kubelet.StaticPodPath+"/c.yaml"))
		}, check: "manifests", result: Fail, says: "already: this one is left out"},
		"what is not for these": {wrong: func(r *rig) {
			r.manifest("b", "volumes: [{name: v, configMap: {name: c}}]")
		}, check: "manifests", result: Fail, says: "spec.volumes[0].configMap"},
		"too much memory": {wrong: func(r *rig) { r.manifest("b", "resources: {requests: {memory: 100Gi}}") }, check: "manifests",
			result: Warn, says: " requests 100Gi of memory, and this machine has 15.3 GiB"},
		"too many processors": {wrong: func(r *rig) { r.manifest("b", "resources: {requests: {cpu: 100k}}") }, check: "manifests",
			result: Warn, says: "requests 100k CPUs"},
		"one port for two": {wrong: func(r *rig) {
			r.manifest("b", "hostNetwork: true", "ports: [{containerPort: 80, hostPort: 80}]")
			r.manifest("c", "hostNetwork: true", "ports: [{containerPort: 80, hostPort: 80}]")
		}, check: "manifests", result: Warn, says: "both use host port 80"},
		"none": {wrong: func(r *rig) { r.Node.Kubelet.StaticPodPath = "" }, check: "manifests", result: OK,
			says: "playlet run"},

		"mounts of the agent": {wrong: sharedForTheAgent, check: "mounts", result: OK, says: "shared"},

		"disk": {check: "disk", result: OK, says: "free for pods, logs and images 50.0 GiB (50%)"},
		"a disk of the logs": {wrong: func(r *rig) {
			r.system.devices = map[string]uint64{existing(r.Node.Kubelet.PodLogsDir): 3}
		}, check: "disk", result: Warn, says: "50.0 GiB (50%) free, and no pod is evicted when it is full"},
		"disks": {wrong: imagesElsewhere, check: "disk", result: OK, says: "free for pods and logs 50.0 GiB (50%); for images 50.0 GiB (50%)"},
		"full": {wrong: func(r *rig) { imagesElsewhere(r); r.system.disk.Free = 5 << 30 }, check: "disk", result: Fail,
			says: "pods are evicted below 10.0 GiB (nodefs.available)"},
		"nearly full": {wrong: func(r *rig) { imagesElsewhere(r); r.system.disk.Free = 12 << 30 }, check: "disk", result: Warn,
			says: "nodefs.available"},
		"no inodes": {wrong: func(r *rig) { r.system.disk.InodesFree = 10 }, check: "disk", result: Fail, says: "10 inodes"},
		"for images": {wrong: func(r *rig) { r.system.disk.Free = 14 << 30 }, check: "disk", result: Fail,
			says: "imagefs.available"},
		"own limits": {flags: []string{"--eviction-hard=nodefs.available<1Gi,imagefs.available<1Gi"},
			wrong: func(r *rig) { r.system.disk.Free = 9 << 30 }, check: "disk", result: OK, says: "9.0 GiB"},

		"memory": {check: "memory", result: OK, says: "no swap"},
		"little memory": {wrong: func(r *rig) { r.write(r.Proc+"/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 1000 kB\n") },
			check: "memory", result: Fail, says: "memory.available"},
		"swap": {wrong: func(r *rig) { r.swapOn() }, check: "memory", result: Fail, says: "swapoff -a"},
		"swap is meant": {flags: []string{"--fail-swap-on=false"}, wrong: func(r *rig) { r.swapOn() }, check: "memory",
			result: OK, says: "swap for pods: NoSwap"},

		"clock":    {check: "clock", result: OK, says: "synchronised, 2026-01-01"},
		"unsynced": {wrong: func(r *rig) { r.system.unsync = true }, check: "clock", result: Warn, says: "adjtimex"},
		"the past": {wrong: func(r *rig) { r.Built = r.system.wall[0].Add(48 * time.Hour) }, check: "clock", result: Fail,
			says: "this program was built at"},
		"a jump": {wrong: func(r *rig) { r.system.wall = append(r.system.wall, r.system.wall[0].Add(time.Hour)) },
			check: "clock", result: Warn, says: "the clock jumped by 1h0m0s"},

		"capabilities": {check: "capabilities", result: OK, says: "all"},
		"not root": {wrong: func(r *rig) {
			r.write(r.Proc+"/self/status",
				"CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n")
		}, check: "capabilities", result: Fail,
			says: "CAP_SYS_ADMIN is missing: mounts of volumes, namespaces → run as root"},
		"bounded": {wrong: func(r *rig) {
			r.write(r.Proc+"/self/status",
				"CapEff:\t000001fffeffffff\nCapBnd:\t000001fffeffffff\n")
		}, check: "capabilities", result: Warn,
			says: "CapabilityBoundingSet="},

		"kernel": {check: "kernel", result: OK, says: "kernel settings as Kubernetes expects"},
		"another setting": {wrong: func(r *rig) { r.write(r.Proc+"/sys/vm/overcommit_memory", "0\n") }, check: "kernel",
			result: OK, says: "vm.overcommit_memory is 0"},
		"a setting guarded": {flags: []string{"--protect-kernel-defaults"},
			wrong: func(r *rig) { r.write(r.Proc+"/sys/vm/overcommit_memory", "0\n") }, check: "kernel", result: Fail,
			says: "sysctl -w vm.overcommit_memory=1"},
		"few watches": {wrong: func(r *rig) { r.write(r.Proc+"/sys/fs/inotify/max_user_instances", "12\n") },
			check: "kernel", result: Warn, says: "max_user_instances=128"},
		"no user namespace": {wrong: func(r *rig) { r.write(r.Proc+"/sys/user/max_user_namespaces", "0\n") }, check: "users",
			result: Warn, says: "sysctl -w user.max_user_namespaces=65536"},
		"a kernel without": {wrong: func(r *rig) { must(r.t, os.Remove(r.Proc+"/sys/user/max_user_namespaces")) }, check: "users",
			result: Warn, says: "CONFIG_USER_NS"},
		"a runtime without": {check: "users", result: OK, says: "the runtime cannot run pods with hostUsers: false: they wait"},
		"user namespaces": {wrong: ownUsers, check: "users", result: OK,
			says: "pods with hostUsers: false get 65536 user IDs each, of 65536-7274495"},
		"few user IDs": {wrong: func(r *rig) {
			ownUsers(r)
			r.UserBounds = func(context.Context, uint32) (pod.UserRange, error) {
				return pod.UserRange{First: 65536, Length: 2 * 65536}, nil
			}
		}, check: "users", result: Warn, says: "enough for 2 pods with hostUsers: false, and maxPods is 110"},
		"user IDs that do not fit": {wrong: func(r *rig) {
			ownUsers(r)
			r.UserBounds = func(context.Context, uint32) (pod.UserRange, error) {
				return pod.UserRange{}, errors.New("the range of user kubelet begins at 100000")
			}
		}, check: "users", result: Warn, says: "begins at 100000"},
		"a kernel before tmpfs": {wrong: func(r *rig) {
			ownUsers(r)
			r.write(r.Proc+"/sys/kernel/osrelease", "6.1.0-37-cloud-amd64\n")
		}, check: "users", result: Warn, says: "Linux 6.1.0 cannot mount volumes in memory"},

		"no resolver": {flags: []string{"--resolv-conf="}, check: "resolver", result: OK, says: "pods get no name servers"},
		"resolver missing": {flags: []string{"--resolv-conf=/none/of/it"}, check: "resolver", result: Warn,
			says: "does not exist"},
		"loopback alone": {wrong: func(r *rig) { r.resolver("nameserver 127.0.0.53\n") }, check: "resolver", result: Warn,
			says: "systemd-resolved"},
		"no servers": {wrong: func(r *rig) { r.resolver("search x\n") }, check: "resolver", result: Warn,
			says: "names no name server"},
		"a server": {wrong: func(r *rig) { r.resolver("nameserver 192.0.2.53\n") }, check: "resolver", result: OK,
			says: "192.0.2.53"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.flags...)
			if c.wrong != nil {
				c.wrong(r)
			}
			r.find(c.check, c.result, c.says)
		})
	}
}

// sharedForTheAgent has mounts that are shared in the mount namespace of the running agent alone.
func sharedForTheAgent(r *rig) {
	r.write(r.Proc+"/88/mountinfo", "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n")
	r.write(r.Proc+"/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
	r.Running, r.RunningPID = true, 88
}

func imagesElsewhere(r *rig) { r.system.devices = map[string]uint64{r.runtime.images: 2} }

func kubeletElsewhere(r *rig) {
	r.process("77", "kubelet")
	for pid, ns := range map[string]string{"77": "mnt:[1]", "self": "mnt:[2]"} {
		must(r.t, os.MkdirAll(filepath.Join(r.Proc, pid, "ns"), 0o755))
		must(r.t, os.Symlink(ns, filepath.Join(r.Proc, pid, "ns", "mnt")))
	}
}

// agent has one running, process 88, which answers or not.
func (r *rig) agent(answers bool) {
	lock := filepath.Join(r.Node.RootDir, "playlet", "lock")
	r.write(lock, "")
	info, err := os.Stat(lock)
	must(r.t, err)
	r.write(r.Proc+"/locks",
		fmt.Sprintf("1: POSIX  ADVISORY  WRITE 5 08:01:1 0 EOF\n2: FLOCK  ADVISORY  WRITE 88 08:01:%d 0 EOF\n",
			info.Sys().(*syscall.Stat_t).Ino))
	resolved, err := filepath.EvalSymlinks(lock) // as /proc has it
	must(r.t, err)
	r.process("88", "playlet", resolved, "socket:[4711]")
	if answers {
		r.Agent = func(context.Context) (RunningAgent, error) { return RunningAgent{Version: "v1"}, nil }
	}
}

// elsewhere sets up an agent with another root folder than the configured one. The user named its socket.
func elsewhere(r *rig) {
	configured := r.Node.RootDir
	r.Node.RootDir += "-other"
	r.agent(true)
	root := r.Node.RootDir
	r.Agent = func(context.Context) (RunningAgent, error) { return RunningAgent{Version: "v1", RootDir: root}, nil }
	r.Node.RootDir, r.Chosen = configured, true
	r.listens("0100007F:2808", "88", "")
}

// rootThroughALink has the root folder elsewhere.
func (r *rig) rootThroughALink() {
	must(r.t, os.MkdirAll(r.Node.RootDir, 0o755))
	must(r.t, os.Rename(r.Node.RootDir, r.Node.RootDir+"-elsewhere"))
	must(r.t, os.Symlink(r.Node.RootDir+"-elsewhere", r.Node.RootDir))
}

func (r *rig) condition(i int, message string) {
	all := &r.runtime.status.Status.Conditions
	if i < 0 {
		*all = append(*all, &runtimeapi.RuntimeCondition{Type: "Other"})
		i = len(*all) - 1
	}
	(*all)[i].Status, (*all)[i].Message = false, message
}

func (r *rig) cgroupMount(kind, options, super string) {
	r.write(r.Proc+"/self/mountinfo", "2 1 0:30 / "+r.Sys+"/fs/cgroup "+options+" shared:2 - "+kind+" cgroup "+super+"\n")
}

func versionOne(r *rig) {
	r.system.cgroupsMagic = unix.TMPFS_MAGIC
	var text strings.Builder
	for i, c := range []string{"cpu,cpuacct", "cpuset", "memory", "pids", "hugetlb"} {
		fmt.Fprintf(&text, "%d 1 0:%d / %s/fs/cgroup/%s rw shared:2 - cgroup cgroup rw,%s\n", i+2, i+30, r.Sys, c, c)
	}
	r.write(r.Proc+"/self/mountinfo", text.String())
}

func (r *rig) driverIs(d runtimeapi.CgroupDriver) { r.runtime.driver.Linux.CgroupDriver = d }
func (r *rig) systemd()                           { r.write(r.Run+"/systemd/system/x", "") }
func (r *rig) swapOn()                            { r.write(r.Proc+"/swaps", "Filename Type\n/dev/sda2 partition 1 0 -2\n") }
func (r *rig) noAddress()                         { r.Machine.Addresses = func() []netip.Addr { return nil } }

func (r *rig) resolver(text string) {
	path := filepath.Join(r.Run, "resolv.conf")
	r.write(path, text)
	r.Node.Kubelet.ResolverConfig = &path
}

// listens has a process listen, or one that cannot be seen.
func (r *rig) listens(at, pid, name string) {
	inode := "12345"
	if pid == "88" {
		inode = "4711"
	} else if pid != "" {
		r.process(pid, name, "socket:["+inode+"]")
	}
	r.write(r.Proc+"/net/tcp",
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
			"   0: "+at+" 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "+inode+" 1 0\n")
}

// unimplemented returns a runtime's error for an unknown call.
func unimplemented(t *testing.T) error {
	t.Helper()
	old := startSim(t, sim.Options{Old: true})
	_, err := old.RuntimeConfig(t.Context())
	if !cri.IsUnimplemented(err) {
		t.Fatal(err)
	}
	return err
}

func startSim(t *testing.T, o sim.Options) *cri.Client {
	t.Helper()
	o.Socket = filepath.Join(t.TempDir(), "c.sock")
	r, err := sim.Start(o)
	must(t, err)
	t.Cleanup(r.Close)
	client, err := cri.Dial(cri.Options{RuntimeEndpoint: "unix://" + o.Socket})
	must(t, err)
	t.Cleanup(func() { must(t, client.Close()) })
	return client
}

// The ways in which a runtime is not there.
// certified makes a certificate with this life, relative to the rig's time, and names it as the serving one and as an authority.
func (r *rig) certified(from, to time.Duration) {
	r.t.Helper()
	now, _ := r.System.Clocks()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(r.t, err)
	of := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(from), NotAfter: now.Add(to)}
	der, err := x509.CreateCertificate(rand.Reader, &of, &of, key.Public(), key)
	must(r.t, err)
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	must(r.t, err)
	dir := r.t.TempDir()
	k := r.Node.Kubelet
	k.TLSCertFile, k.TLSPrivateKeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	k.Authentication.X509.ClientCAFile = k.TLSCertFile
	must(r.t, os.WriteFile(k.TLSCertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(r.t, os.WriteFile(k.TLSPrivateKeyFile, text, 0o600))
}

func TestARuntimeThatIsNotThere(t *testing.T) {
	dial := func(node *config.Node) (Runtime, error) {
		return cri.Dial(cri.Options{RuntimeEndpoint: node.Kubelet.ContainerRuntimeEndpoint})
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, socket string)
		says    string
	}{
		"no socket": {func(*testing.T, string) {}, "there is no socket → start the runtime"},
		"a file":    {func(t *testing.T, s string) { must(t, os.WriteFile(s, nil, 0o600)) }, "it is not a socket"},
		"refused": {func(t *testing.T, s string) {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s, Net: "unix"})
			must(t, err)
			l.SetUnlinkOnClose(false)
			must(t, l.Close())
		}, "nothing listens on the socket"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Dial = dial
			socket, err := cri.SocketPath(r.Node.Kubelet.ContainerRuntimeEndpoint)
			must(t, err)
			c.prepare(t, socket)
			r.find("runtime", Fail, c.says)
		})
	}
	r := newRig(t)
	r.Node.Kubelet.ContainerRuntimeEndpoint = "tcp://x"
	r.Dial = dial
	r.find("runtime", Fail, "only unix → correct containerRuntimeEndpoint")
}

// The runtime is queried once, over a real connection. An old one supports less.
func TestASimulatedRuntime(t *testing.T) {
	r := newRig(t)
	client, dials := startSim(t, sim.Options{Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}}), 0
	r.Dial = func(*config.Node) (Runtime, error) {
		dials++
		return unclosedClient{client}, nil
	}
	all := Run(t.Context(), r.Machine, Checks, nil)
	if dials != 1 {
		t.Errorf("it was dialled %d times", dials)
	}
	if i := slices.IndexFunc(all, func(f Finding) bool { return f.Check == "features" }); all[i].Result != OK ||
		!strings.Contains(all[i].Seen, "events, cgroup driver reporting") {
		t.Errorf("%+v", all[i])
	}
	old := newRig(t)
	client = startSim(t, sim.Options{Old: true})
	old.Dial = func(*config.Node) (Runtime, error) { return unclosedClient{client}, nil }
	old.find("features", Warn, "not: events")
	old.find("runtime", OK, "containerd 1.6.20")
}

// unclosedClient is closed by the test.
type unclosedClient struct{ *cri.Client }

func (unclosedClient) Close() error { return nil }

// A check that hangs is a finding, and does not prevent others from running. One that obeys its context returns its own reason.
func TestAHangIsAFinding(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	checks := []Check{
		{Name: "hangs", Limit: time.Millisecond, Run: func(context.Context, *Machine) []Finding { <-release; return nil }},
		{Name: "obeys", Limit: time.Millisecond, Run: func(ctx context.Context, _ *Machine) []Finding {
			<-ctx.Done()
			return warn("wait", "%v", context.Cause(ctx))
		}},
		{Name: "fine", Run: func(context.Context, *Machine) []Finding { return []Finding{{Seen: "x"}} }},
	}
	var sent [][]string
	all := Run(t.Context(), nil, checks, func(left []string) { sent = append(sent, left) })
	want := []Finding{
		{Check: "hangs", Result: Fail, Seen: "no answer: it took longer than 1ms", Do: all[0].Do},
		{Check: "obeys", Result: Warn, Seen: "it took longer than 1ms", Do: "wait"},
		{Check: "fine", Result: OK, Seen: "x"},
	}
	if !slices.Equal(all, want) {
		t.Errorf("%+v", all)
	}
	if len(sent) != 4 || len(sent[0]) != 3 || len(sent[3]) != 0 {
		t.Errorf("progress: %q", sent)
	}
	if n := Count(all); n[OK] != 1 || n[Warn] != 1 || n[Fail] != 1 {
		t.Errorf("%v", n)
	}
}

func TestTheListOfChecks(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks {
		if c.Name == "" || c.About == "" || c.Run == nil || seen[c.Name] || strings.ContainsAny(c.Name, " ,") {
			t.Errorf("%+v", c)
		}
		seen[c.Name] = true
	}
}

// The machine's own kernel answers.
func TestKernel(t *testing.T) {
	var k kernel
	disk, err := k.Disk(t.TempDir())
	if err != nil || disk.Size == 0 || disk.Free > disk.Size {
		t.Errorf("%+v %v", disk, err)
	}
	if _, err := k.Disk("/none/of/it"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := k.Writable(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := k.Writable("/none/of/it"); err == nil {
		t.Error("what is not there can be written to")
	}
	wall, monotonic := k.Clocks()
	if off := time.Since(wall); off < 0 || off > time.Hour || monotonic <= 0 {
		t.Errorf("%v %v", wall, monotonic)
	}
	if _, err := k.Synchronised(); err != nil {
		t.Error(err)
	}
	if err := k.Openat2(t.TempDir()); err != nil && !errors.Is(err, unix.ENOSYS) {
		t.Error(err)
	}
}

// ownUsers has the runtime run pods with user namespaces.
func ownUsers(r *rig) {
	r.runtime.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}}
}
