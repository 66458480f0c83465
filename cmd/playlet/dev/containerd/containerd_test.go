package containerd

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestContainerdsConfigurationFollowsItsVersion(t *testing.T) {
	for _, c := range []struct {
		version    [2]int
		have, lack []string
	}{
		{[2]int{1, 6}, []string{"version = 2\n", `"io.containerd.grpc.v1.cri"`, `sandbox_image = "pause"`, `bin_dir = "/cni"`, `snapshotter = "native"`}, []string{"cri.v1"}},
		{[2]int{1, 7}, []string{"version = 2\n", `config_path = "/d/certs.d"`}, []string{"cri.v1", "bin_dirs"}},
		{[2]int{2, 0}, []string{"version = 3\n", `"io.containerd.cri.v1.runtime"`, `sandbox = "pause"`, `bin_dir = "/cni"`}, []string{"grpc.v1.cri", "sandbox_image"}},
		{[2]int{2, 4}, []string{"version = 3\n", `bin_dirs = ["/cni"]`, `config_path = "/d/certs.d"`, `snapshotter = "native"`}, []string{"bin_dir ="}},
		{[2]int{3, 0}, []string{"version = 3\n", `bin_dirs = ["/cni"]`}, nil},
	} {
		text, err := Settings{
			Major: c.version[0], Minor: c.version[1], Root: "/d/containerd", State: "/d/run", Socket: "/d/s", Opt: "/d/opt",
			RuncRoot: "/d/run/runc", Snapshotter: "native",
			Runc: "/bin/runc", Handlers: []string{"runc", "other"}, CNIBins: []string{"/cni"}, CNIConf: "/d/net.d",
			Hosts: "/d/certs.d", Sandbox: "pause", KeepScore: true,
		}.TOML()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(c.have, "restrict_oom_score_adj = true", `BinaryName = "/bin/runc"`, `conf_dir = "/d/net.d"`, `Root = "/d/run/runc"`, ".runtimes.other]") {
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
		if _, err := (Settings{Root: path, CNIBins: []string{"/"}}).TOML(); err == nil {
			t.Errorf("%q is put into quotes", path)
		}
	}
}

func TestTheNetworksConfiguration(t *testing.T) {
	text, err := Network{Version: "1.0.0", Name: "playlet-dev-x", Bridge: "playlet0", Subnet: "10.199.0.0/24",
		Leases: "/d/leases"}.Conflist()
	if err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Plugins) != 2 || got.Name != "playlet-dev-x" || got.Plugins[0].Bridge != "playlet0" ||
		got.Plugins[0].IPAM.DataDir != "/d/leases" ||
		got.Plugins[0].IPAM.Ranges[0][0].Subnet != "10.199.0.0/24" || got.Plugins[1].Type != "portmap" {
		t.Errorf("%s", text)
	}
	if got := hostsTOML("127.0.0.1:5000"); !strings.Contains(got, `[host."http://127.0.0.1:5000"]`) {
		t.Errorf("%s", got)
	}
}

func TestContainerdsCommand(t *testing.T) {
	cmd := Folder("/d").Command("/a/containerd", []string{"PATH=/mine", "HTTPS_PROXY=p", "NOTIFY_SOCKET=s"}, "/a/shim", "/b/runc",
		"/c/iptables")
	if cmd.Dir != "/d" || strings.Join(cmd.Args, " ") != "/a/containerd --config /d/containerd.toml" {
		t.Errorf("%v in %s", cmd, cmd.Dir)
	}
	if want := []string{"PATH=/a:/b:/c:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HTTPS_PROXY=p"}; !slices.Equal(cmd.Env, want) {
		t.Errorf("%q", cmd.Env)
	}
}

func TestAllThatContainerdReadsIsWritten(t *testing.T) {
	f := Folder(t.TempDir())
	err := f.Write(Settings{Major: 2, Runc: "/bin/runc", Handlers: []string{"runc"}, CNIBins: []string{"/cni"}, Sandbox: "pause"},
		Network{Version: "1.0.0", Name: "n", Bridge: "b0", Subnet: "10.199.0.0/24"}, "127.0.0.1:5000", "playlet.local")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"containerd.toml": `address = "` + f.Socket() + `"`, "net.d/10-playlet.conflist": `"dataDir":"` + f.Leases() + `"`,
		"certs.d/playlet.local/hosts.toml": "http://127.0.0.1:5000",
	} {
		if text, err := os.ReadFile(f.at(name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s: %v\n%s", name, want, err, text)
		}
	}
	entries, err := os.ReadDir(string(f))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(Contents, e.Name()) {
			t.Errorf("%s is not said to be in the folder", e.Name())
		}
	}
}
