package dev

import (
	"net/netip"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// registryHost is the name by which images of the registry in this process are known, so that manifests do not depend on
// its port.
const registryHost = "playlet.local"

// leftFree is the disk space below which the agent evicts pods. The kubelet's default is a part of the disk: 15 % are 150 GB of
// a developer's 1 TB.
const leftFree = "100Mi"

// kubeletYAML returns the agent's KubeletConfiguration: the defaults, except for the paths and for features that a developer's
// machine may lack (cgroups of version 2, no swap, an almost empty disk).
func kubeletYAML(f folder, healthz int, resolv string) (string, error) {
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1": false, "failSwapOn": false, "cgroupDriver": "cgroupfs", "resolvConf": resolv,
		"makeIPTablesUtilChains":   false,
		"containerRuntimeEndpoint": "unix://" + f.containerd().Socket(),
		"staticPodPath":            f.manifests(), "podLogsDir": f.at(podLogsFolder),
		"evictionHard": map[string]string{
			"memory.available": "100Mi", "nodefs.available": leftFree, "imagefs.available": leftFree,
			"nodefs.inodesFree": "1%", "imagefs.inodesFree": "1%",
		},
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

// loopbackOnly reports whether a resolv.conf has name servers, all of them on loopback.
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

// sampleFile and sampleName are the file and the name of the pod that a run starts with.
const (
	sampleFile = "hello.yaml"
	sampleName = "hello"
	samplePort = 8080
)

// brokenManifest needs a ConfigMap that is not there: playlet explain names it, and the folder of objects takes it.
const brokenManifest = `apiVersion: v1
kind: Pod
metadata:
  name: broken
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: hello
    image: ` + registryHost + `/hello:1
    args: ["serve", "8080"]
    env:
    - name: GREETING
      valueFrom: {configMapKeyRef: {name: greeting, key: text}}
`

// greetingManifest is the ConfigMap that brokenManifest needs.
const greetingManifest = `apiVersion: v1
kind: ConfigMap
metadata:
  name: greeting
data:
  text: Hello
`

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
