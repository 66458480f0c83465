package systemd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/spf13/pflag"

	"github.com/playlet-dev/playlet/config"
)

// The unit keeps containers running when the agent stops, and restarts the agent after any end.
func TestUnit(t *testing.T) {
	options, err := unit.DeserializeOptions(strings.NewReader(Unit("/opt/my node/playlet", "/etc/100%/$x.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range options {
		got[o.Section+"."+o.Name] = o.Value
	}
	for name, want := range map[string]string{
		"Unit.StartLimitIntervalSec": "0", "Unit.Conflicts": "kubelet.service", "Service.Type": "notify",
		"Service.Restart":  "always",
		"Service.KillMode": "process", "Service.WatchdogSec": "60", "Install.WantedBy": "multi-user.target",
		"Service.UMask":     "0022",
		"Service.OOMPolicy": "continue",
		"Service.ExecStart": `"/opt/my node/playlet" --config=/etc/100%%/$$x.yaml $PLAYLET_ARGS`,
	} {
		if got[name] != want {
			t.Errorf("%s=%s, want %s", name, got[name], want)
		}
	}
	// Each of these gives the service a mount namespace of its own, in which the mounts of its pods would be lost.
	for _, name := range []string{"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "ReadOnlyPaths",
		"PrivateMounts", "ProtectKernelTunables"} {
		if value, ok := got["Service."+name]; ok {
			t.Errorf("%s=%s", name, value)
		}
	}
}

// The file is taken as it is, without a warning.
func TestConfiguration(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(Configuration(v1)), 0o600); err != nil {
			t.Fatal(err)
		}
		fs := pflag.NewFlagSet("playlet", pflag.ContinueOnError)
		flags := config.AddFlags(fs)
		if err := fs.Parse([]string{"--config=" + file}); err != nil {
			t.Fatal(err)
		}
		node, warnings, err := config.Load(flags, fs)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range warnings {
			t.Errorf("%s: %s", w.Flag, w.Message)
		}
		if node.Kubelet.HealthzBindAddress != "127.0.0.1" || node.Kubelet.ReadOnlyPort != 0 || !node.Standalone() {
			t.Errorf("%+v", node.Kubelet)
		}
		if err := node.CheckCgroups(!v1); err != nil {
			t.Errorf("cgroups v1 %v: %v", v1, err)
		}
	}
}
