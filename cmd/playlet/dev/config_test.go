package dev

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

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

func TestResolver_SkipsALoopbackStub(t *testing.T) {
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
