package dev

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestContainerdsConfigurationFollowsItsVersion(t *testing.T) {
	for _, c := range []struct {
		version    Version
		have, lack []string
	}{
		{Version{Major: 1, Minor: 6}, []string{"version = 2\n", `"io.containerd.grpc.v1.cri"`, `sandbox_image = "pause"`, `bin_dir = "/cni"`, `snapshotter = "native"`}, []string{"cri.v1"}},
		{Version{Major: 1, Minor: 7}, []string{"version = 2\n", `config_path = "/d/certs.d"`}, []string{"cri.v1", "bin_dirs"}},
		{Version{Major: 2, Minor: 0}, []string{"version = 3\n", `"io.containerd.cri.v1.runtime"`, `sandbox = "pause"`, `bin_dir = "/cni"`}, []string{"grpc.v1.cri", "sandbox_image"}},
		{Version{Major: 2, Minor: 4}, []string{"version = 3\n", `bin_dirs = ["/cni"]`, `config_path = "/d/certs.d"`, `snapshotter = "native"`}, []string{"bin_dir ="}},
		{Version{Major: 3, Minor: 0}, []string{"version = 3\n", `bin_dirs = ["/cni"]`}, nil},
	} {
		text, err := containerdSettings{
			Version: c.version, Root: "/d/containerd", State: "/d/run", Socket: "/d/s", Opt: "/d/opt", RuncRoot: "/d/run/runc", Snapshotter: "native",
			Runc: "/bin/runc", CNIBin: "/cni", CNIConf: "/d/net.d", Hosts: "/d/certs.d", Sandbox: "pause", KeepScore: true,
		}.toml()
		must(t, err)
		for _, want := range append(c.have, "restrict_oom_score_adj = true", `BinaryName = "/bin/runc"`, `conf_dir = "/d/net.d"`, `Root = "/d/run/runc"`) {
			if !strings.Contains(text, want) {
				t.Errorf("%v lacks %s:\n%s", c.version, want, text)
			}
		}
		for _, other := range c.lack {
			if strings.Contains(text, other) {
				t.Errorf("%v has %s:\n%s", c.version, other, text)
			}
		}
	}
	for _, path := range []string{"/a\"b", "/a\nb", `/a\b`} {
		if _, err := (containerdSettings{Root: path}).toml(); err == nil {
			t.Errorf("%q is put into quotes", path)
		}
	}
}

func TestTheNetworksConfiguration(t *testing.T) {
	text, err := cniConflist("playlet-dev-x", "playlet0", netip.MustParsePrefix("10.199.0.0/24"), "/d/leases")
	must(t, err)
	var got struct {
		CNIVersion, Name string
		Plugins          []struct {
			Type, Bridge string
			IPAM         struct {
				DataDir string
				Ranges  [][]struct{ Subnet string }
			}
		}
	}
	must(t, json.Unmarshal([]byte(text), &got))
	if len(got.Plugins) != 2 || got.Name != "playlet-dev-x" || got.Plugins[0].Bridge != "playlet0" || got.Plugins[0].IPAM.DataDir != "/d/leases" ||
		got.Plugins[0].IPAM.Ranges[0][0].Subnet != "10.199.0.0/24" || got.Plugins[1].Type != "portmap" {
		t.Errorf("%s", text)
	}
	if got := hostsTOML("127.0.0.1:5000"); !strings.Contains(got, `[host."http://127.0.0.1:5000"]`) {
		t.Errorf("%s", got)
	}
}

func TestTheAgentsConfiguration(t *testing.T) {
	text, err := kubeletYAML("/d", 10248, "/etc/resolv.conf")
	must(t, err)
	got := map[string]any{}
	must(t, yaml.UnmarshalStrict([]byte(text), &got))
	for key, want := range map[string]any{
		"staticPodPath": "/d/manifests", "podLogsDir": "/d/pod-logs", "containerRuntimeEndpoint": "unix:///d/containerd.sock",
		"healthzPort": 10248.0, "resolvConf": "/etc/resolv.conf", "failCgroupV1": false,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

func TestAStubOnLoopbackIsNoNameServerForPods(t *testing.T) {
	for text, want := range map[string]bool{
		"nameserver 127.0.0.53\noptions edns0\n":        true,
		"nameserver 127.0.0.53\nnameserver 192.0.2.1\n": false,
		"nameserver ::1\n":                              true,
		"nameserver 192.0.2.1\n":                        false,
		"search example.org\n":                          false,
		"":                                              false,
		"nameserver nonsense\n":                         false,
		"# nameserver 192.0.2.1\nnameserver\t127.0.0.1 \n": true,
	} {
		if got := loopbackOnly(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if _, err := os.Stat(resolvConf()); err != nil {
		t.Logf("this machine has no name servers: %v", err)
	}
}

func TestFilesAreWrittenWithTheirFolders(t *testing.T) {
	f := folder(t.TempDir())
	must(t, f.writeAll(map[string]string{"a/b/c": "1", "d": "2"}))
	if read(t, filepath.Join(string(f), "a/b/c")) != "1" || read(t, f.at("d")) != "2" {
		t.Error("they hold something else")
	}
}
