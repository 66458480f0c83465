// Package containerd has the files of a private containerd: its configuration, the pods' network, and the folder of all that it
// reads and writes. It serves `playlet dev`, the end-to-end tests and the benchmarks, and imports nothing of the project.
package containerd

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
)

// Settings are the variables of containerd's configuration.
type Settings struct {
	// Major and Minor are containerd's version, from 1.6 on.
	Major, Minor int
	// Root, State and Opt are folders, Socket is where it listens. RuncRoot is runc's state; its usual one when empty.
	Root, State, Socket, Opt, RuncRoot string
	// Runc is the program, Handlers are the names of the runtime's handlers, the default one first. Others are the programs of
	// those handlers that are not runc's.
	Runc     string
	Handlers []string
	Others   map[string]string
	// Snapshotter is the one that Snapshotter finds.
	Snapshotter string
	// CNIBins are the folders of the network's plugins, CNIConf that of its configuration. CNITemplate is the file from which
	// containerd 2 generates the configuration when it receives the pods' range of addresses; none when empty. Before 2.1 only
	// one folder of plugins is supported.
	CNIBins              []string
	CNIConf, CNITemplate string
	// Hosts has a folder a registry (containerd, docs/hosts.md); none when empty.
	Hosts string
	// Sandbox is the image of sandboxes.
	Sandbox string
	// KeepScore means that oom_score_adj cannot be lowered here.
	KeepScore bool
}

// New reports whether the CRI plugin's settings belong to two plugins, as from 2.0 on.
func (s Settings) New() bool { return s.Major >= 2 }

// Plugin is the one that runs pods.
func (s Settings) Plugin() string {
	if s.New() {
		return "io.containerd.cri.v1.runtime"
	}
	return "io.containerd.grpc.v1.cri"
}

// Program is the one that runs the containers of a handler.
func (s Settings) Program(handler string) string {
	if other := s.Others[handler]; other != "" {
		return other
	}
	return s.Runc
}

// ManyDirs reports whether several folders of CNI plugins are supported, as from 2.1 on.
func (s Settings) ManyDirs() bool { return s.Major > 2 || s.Major == 2 && s.Minor >= 1 }

// configuration is for every containerd from 1.6 on.
//
// Profiles of AppArmor would be loaded into the machine's kernel, and stay; so pods go without. Sockets of NRI would be
// the machine's too. Lowering oom_score_adj takes CAP_SYS_RESOURCE.
const configuration = `version = {{if .New}}3{{else}}2{{end}}
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
{{- if .Hosts}}
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{{.Hosts}}"
{{- end}}
{{end}}
[plugins."{{.Plugin}}"]
{{- if not .New}}
  sandbox_image = "{{.Sandbox}}"
{{- end}}
  restrict_oom_score_adj = {{.KeepScore}}
  disable_apparmor = true
  netns_mounts_under_state_dir = true
{{- if and .Hosts (not .New)}}
  [plugins."{{.Plugin}}".registry]
    config_path = "{{.Hosts}}"
{{- end}}
  [plugins."{{.Plugin}}".cni]
{{- if .ManyDirs}}
    bin_dirs = [{{range $i, $d := .CNIBins}}{{if $i}}, {{end}}"{{$d}}"{{end}}]
{{- else}}
    bin_dir = "{{index .CNIBins 0}}"
{{- end}}
    conf_dir = "{{.CNIConf}}"
{{- if and .CNITemplate .New}}
    conf_template = "{{.CNITemplate}}"
{{- end}}
{{- if not .New}}
  [plugins."{{.Plugin}}".containerd]
    snapshotter = "{{.Snapshotter}}"
{{- end}}
{{- range .Handlers}}
  [plugins."{{$.Plugin}}".containerd.runtimes.{{.}}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{{$.Plugin}}".containerd.runtimes.{{.}}.options]
      BinaryName = "{{$.Program .}}"
{{- if $.RuncRoot}}
      Root = "{{$.RuncRoot}}"
{{- end}}
      SystemdCgroup = false
{{- end}}
`

// TOML returns the text of the configuration. Paths come in as Go values and must not contain characters that end a quoted
// string of TOML.
func (s Settings) TOML() (string, error) {
	for _, path := range slices.Concat([]string{s.Root, s.Runc}, s.CNIBins, slices.Collect(maps.Values(s.Others))) {
		if strings.ContainsAny(path, "\"\\\n") {
			return "", fmt.Errorf("the path %q contains characters that containerd's configuration cannot hold", path)
		}
	}
	var out strings.Builder
	err := template.Must(template.New("containerd").Parse(configuration)).Execute(&out, s)
	return out.String(), err
}

// Network is the pods' network: a bridge, addresses of a subnet, and ports of the machine's.
type Network struct {
	// Version is CNI's: STATUS and GC came with 1.1.0.
	Version, Name, Bridge, Subnet string
	// Leases is the folder with the addresses that are taken.
	Leases string
	// Masquerade gives pods a way out, by iptables.
	Masquerade bool
}

// Conflist is the network's configuration. containerd adds the loopback plugin by itself. Plugins older than a key ignore it.
func (n Network) Conflist() (string, error) {
	type object = map[string]any
	bridge := object{
		"type": "bridge", "bridge": n.Bridge, "isGateway": true, "hairpinMode": true,
		"ipam": object{
			"type": "host-local", "dataDir": n.Leases, "ranges": [][]object{{{"subnet": n.Subnet}}},
			"routes": []object{{"dst": "0.0.0.0/0"}},
		},
	}
	portmap := object{"type": "portmap", "capabilities": object{"portMappings": true}, "snat": true}
	if n.Masquerade {
		bridge["ipMasq"], bridge["ipMasqBackend"], portmap["backend"] = true, "iptables", "iptables"
	}
	text, err := json.Marshal(object{"cniVersion": n.Version, "name": n.Name, "plugins": []object{bridge, portmap}})
	return string(text), err
}
