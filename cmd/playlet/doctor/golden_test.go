package doctor

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata")

// The output of the command as a user sees it. go test -run TestOutputs ./cmd/playlet/doctor -update rewrites it. The network is
// tested in e2e.
func TestOutputs(t *testing.T) {
	checks, err := chooseChecks(nil, []string{"attach"})
	must(t, err)
	ofRuntime, err := chooseChecks([]string{"runtime", "conditions", "features", "cgroup-driver"}, nil)
	must(t, err)
	for name, wrong := range map[string]func(r *rig){
		"fit": func(r *rig) { r.driverIs(runtimeapi.CgroupDriver_CGROUPFS) },
		"unfit": func(r *rig) {
			r.process("77", "kubelet")
			r.condition(1, "cni plugin not initialized")
			r.listens("0100007F:2808", "99", "nginx")
			r.swapOn()
			r.system.disk.Free = 5 << 30
			r.system.openat2 = unix.ENOSYS
			r.manifest("b", "hostname: 1")
			r.write(r.Proc+"/sys/net/ipv4/ip_forward", "0\n")
			r.write(r.Sys+"/fs/cgroup/cgroup.controllers", "cpu cpuset pids hugetlb")
		},
		"crio": func(r *rig) {
			r.runtime.noEvents = io.EOF
			r.runtime.name, r.runtime.version = "cri-o", "1.36.0"
			r.Node.Kubelet.ContainerRuntimeEndpoint = "unix:///var/run/crio/crio.sock"
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "--hostname-override=node")
			dir := filepath.Dir(r.Proc)
			r.Node.Kubelet.ResolverConfig = ptr.To(dir + "/resolv.conf")
			r.write(dir+"/resolv.conf", "nameserver 192.0.2.1\n")
			r.write(r.CNIConfDir+"/a.conf", `{"cniVersion": "1.0.0", "name": "pods", "type": "none"}`)
			r.write(dir+"/bin/none", "#!/bin/sh\necho '{\"cniVersion\": \"1.0.0\", \"supportedVersions\": [\"1.0.0\"]}'\n")
			must(t, os.Chmod(dir+"/bin/none", 0o755))
			r.CNIBinDirs = []string{dir + "/bin"}
			r.manifest("a", "restartPolicy: Always")
			wrong(r)
			var out bytes.Buffer
			run := checks
			if name == "crio" {
				run = ofRuntime
			}
			findings := Run(t.Context(), r.Machine, run, nil)
			must(t, printFindings(&out, findings))
			got := strings.ReplaceAll(out.String(), dir, "DIR")
			if err := failedChecks(findings); err != nil {
				got += "playlet: " + err.Error() + "\n"
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				must(t, os.WriteFile(file, []byte(got), 0o644))
			}
			if want, err := os.ReadFile(file); err != nil || string(want) != got {
				t.Errorf("%v\n%s\nwant\n%s", err, got, want)
			}
		})
	}
}
