package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/config/configfile"
)

// FuzzLoadConfig reads arbitrary configuration files. The result is a node or a one-line error, and an accepted file is
// accepted again after it is written out.
func FuzzLoadConfig(f *testing.F) {
	for _, seed := range []string{
		"", "---\n", "{}", "[]", "null", "\x00", "a: &a [*a]", header, header + "maxPods: 3\n", header + "maxPods: 1e3\n",
		header + "evictionHard: {memory.available: 1%}\nevictionSoft: {memory.available: NaN%}\n",
		header + "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
		header + "logging: {flushFrequency: 5, verbosity: 4294967295, vmodule: [{filePattern: x, verbosity: 2}]}\n",
		header + "featureGates: {AllAlpha: true}\n",
		header + "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]\n",
		header + "tracing: {endpoint: \"://\", samplingRatePerMillion: -1}\nuserNamespaces: {idsPerPod: 65537}\n",
		header + "registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: 2020-01-01T00:00:00Z}]\n",
		header + "clusterDNS: [x]\nreservedSystemCPUs: 0-\nallowedUnsafeSysctls: [net.*, '']\n",
		`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","port":1,"port":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		folder := t.TempDir()
		path := filepath.Join(folder, "kubelet.conf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--config=" + path}, {"--config-dir=" + folder}} {
			flags, fs, err := parse(args...)
			if err != nil {
				t.Fatal(err)
			}
			node, _, err := load(flags, fs, testHost)
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Fatalf("more than one line: %q", err)
				}
				continue
			}
			text, err := json.Marshal(node.Kubelet)
			if err != nil {
				t.Fatalf("cannot be written: %v", err)
			}
			if _, err := configfile.Apply(&KubeletConfiguration{}, [][]byte{text}); err != nil {
				t.Fatalf("cannot be read again: %v", err)
			}
		}
	})
}
