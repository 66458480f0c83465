package dev

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"
)

// containerdSettings are what the configuration of containerd is made of.
type containerdSettings struct {
	Version                            Version
	Root, State, Socket, Opt, RuncRoot string
	Snapshotter, Runc                  string
	CNIBin, CNIConf, Hosts, Sandbox    string
	// KeepScore says that oom_score_adj cannot be lowered here.
	KeepScore bool
}

// New says that the CRI plugin's settings are those of two plugins, as from 2.0 on.
func (s containerdSettings) New() bool { return s.Version.Major >= 2 }

// Plugin is the one that runs pods.
func (s containerdSettings) Plugin() string {
	if s.New() {
		return "io.containerd.cri.v1.runtime"
	}
	return "io.containerd.grpc.v1.cri"
}

// ManyDirs says that there may be several folders of CNI plugins, as from 2.1 on.
func (s containerdSettings) ManyDirs() bool {
	return s.Version.Major > 2 || s.Version.Major == 2 && s.Version.Minor >= 1
}

// containerdTOML is for every containerd from 1.6 on.
//
// Profiles of AppArmor would be loaded into the machine's kernel, and stay; so pods go without. Sockets of NRI would be
// the machine's too.
const containerdTOML = `version = {{if .New}}3{{else}}2{{end}}
root = "{{.Root}}"
state = "{{.State}}"
imports = []

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Opt}}"

[plugins."io.containerd.nri.v1.nri"]
  disable = true
{{if .New}}
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{{.Snapshotter}}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Sandbox}}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{{.Hosts}}"
{{end}}
[plugins."{{.Plugin}}"]
{{- if not .New}}
  sandbox_image = "{{.Sandbox}}"
{{- end}}
  restrict_oom_score_adj = {{.KeepScore}}
  disable_apparmor = true
  netns_mounts_under_state_dir = true
{{- if not .New}}
  [plugins."{{.Plugin}}".registry]
    config_path = "{{.Hosts}}"
{{- end}}
  [plugins."{{.Plugin}}".cni]
    {{if .ManyDirs}}bin_dirs = ["{{.CNIBin}}"]{{else}}bin_dir = "{{.CNIBin}}"{{end}}
    conf_dir = "{{.CNIConf}}"
{{- if not .New}}
  [plugins."{{.Plugin}}".containerd]
    snapshotter = "{{.Snapshotter}}"
{{- end}}
  [plugins."{{.Plugin}}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{{.Plugin}}".containerd.runtimes.runc.options]
      BinaryName = "{{.Runc}}"
      Root = "{{.RuncRoot}}"
      SystemdCgroup = false
`

// toml gives the configuration's text. Paths come in as Go values and must not hold what ends a quoted string of TOML.
func (s containerdSettings) toml() (string, error) {
	for _, path := range []string{s.Root, s.Runc, s.CNIBin} {
		if strings.ContainsAny(path, "\"\\\n") {
			return "", fmt.Errorf("the path %q holds what containerd's configuration cannot", path)
		}
	}
	var out strings.Builder
	err := template.Must(template.New("containerd").Parse(containerdTOML)).Execute(&out, s)
	return out.String(), err
}

// registryHost is the name by which images of the registry in this process are known, so that manifests do not depend on
// its port.
const registryHost = "playlet.local"

// hostsTOML sends containerd's pulls from registryHost to the registry (containerd, docs/hosts.md).
func hostsTOML(registry string) string {
	return fmt.Sprintf("server = \"http://%[1]s\"\n\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", registry)
}

// cniConflist is the pods' network: a bridge, addresses of the subnet, a way out, and ports of the machine's. containerd
// adds the loopback plugin by itself. Plugins older than a key ignore it.
func cniConflist(name, bridge string, subnet netip.Prefix, leases string) (string, error) {
	type object = map[string]any
	text, err := yaml.Marshal(object{
		"cniVersion": "1.0.0", "name": name,
		"plugins": []object{
			{
				"type": "bridge", "bridge": bridge, "isGateway": true, "hairpinMode": true, "ipMasq": true,
				"ipMasqBackend": "iptables",
				"ipam": object{
					"type": "host-local", "dataDir": leases, "ranges": [][]object{{{"subnet": subnet.String()}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}, "snat": true, "backend": "iptables"},
		},
	})
	if err != nil {
		return "", err
	}
	json, err := yaml.YAMLToJSON(text)
	return string(json), err
}

// kubeletYAML is the agent's KubeletConfiguration: the defaults, but for what a machine for trying things out may lack
// (cgroups of version 2, no swap), and for where things are.
func kubeletYAML(f folder, healthz int, resolv string) (string, error) {
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1": false, "failSwapOn": false, "cgroupDriver": "cgroupfs", "resolvConf": resolv,
		"containerRuntimeEndpoint": "unix://" + f.at(containerdSock),
		"staticPodPath":            f.manifests(), "podLogsDir": f.at(podLogsFolder),
		"healthzBindAddress": "127.0.0.1", "healthzPort": healthz,
	})
	return string(text), err
}

// resolvConf is the file with the machine's name servers. With systemd-resolved, /etc/resolv.conf names a stub on
// loopback, which pods cannot reach; the servers behind it are in another file.
func resolvConf() string {
	const usual, behind = "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
	if _, err := os.Stat(behind); err != nil {
		return usual
	}
	text, err := os.ReadFile(usual)
	if err != nil || !loopbackOnly(string(text)) {
		return usual
	}
	return behind
}

// loopbackOnly says whether all name servers of a resolv.conf are on loopback, and there are some.
func loopbackOnly(text string) bool {
	some := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		addr, err := netip.ParseAddr(fields[1])
		if err != nil || !addr.IsLoopback() {
			return false
		}
		some = true
	}
	return some
}

// sampleFile and sampleName are those of the pod that a run begins with.
const (
	sampleFile = "hello.yaml"
	sampleName = "hello"
	samplePort = 8080
)

// sampleManifest is written for a newcomer to copy and change.
const sampleManifest = `apiVersion: v1
kind: Pod
metadata:
  name: ` + sampleName + `
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: hello
    image: ` + registryHost + `/hello:1    # held by playlet dev itself; needs no network
    args: ["serve", "8080"]
    ports:
    - containerPort: 8080
`

// writeAll writes files below the folder.
func (f folder) writeAll(files map[string]string) error {
	for name, text := range files {
		path := f.at(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := writeFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
