package config

import (
	"fmt"
	"strings"
	"testing"
)

// Every flag that does something is in one group, and marked where nothing looks at it.
func TestHelpGroupsEveryFlag(t *testing.T) {
	flags, _, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	groups := flags.Help()
	seen := map[string]FlagHelp{}
	for _, g := range groups {
		for _, h := range g.Flags {
			if _, twice := seen[h.Name]; twice {
				t.Errorf("--%s is there twice", h.Name)
			}
			seen[h.Name] = h
		}
	}
	for _, row := range allRows() {
		switch h, ok := seen[row.name]; {
		case ok == row.legacy:
			t.Errorf("--%s: of old %v, shown %v", row.name, row.legacy, ok)
		case ok && (h.Field != row.field || h.InForce == row.pending()):
			t.Errorf("%+v", h)
		}
	}
	for _, h := range groups[len(groups)-1].Flags {
		if h.Usage != NoEffect {
			t.Errorf("--%s has an effect and no group", h.Name)
		}
	}
	if h := seen["sync-frequency"]; h.InForce || h.Default != "1m0s" {
		t.Errorf("%+v", h)
	}
	for _, name := range CommonFlags {
		if h := flags.HelpOf(name); !h.InForce || h.Usage == "" {
			t.Errorf("%+v", h)
		}
	}
}

// Errors in a file name the line and the expected value, without Go's terms.
func TestFilesAreCorrectedInPlainWords(t *testing.T) {
	for text, want := range map[string]string{
		"healthzPrt: 1": `unknown field "healthzPrt", line 3: did you mean healthzPort?`,
		"sorcery: 1":    `unknown field "sorcery", line 3`,
		"\nMaxPods: 1":  `unknown field "MaxPods", line 4: did you mean maxPods?`,
		"maxPods: 1\n\nauthentication:\n  x509:\n    clientCaFile: x": `unknown field "authentication.x509.clientCaFile", line 7: did you mean authentication.x509.clientCAFile?`,
		"reservedMemory:\n- numaNode: 0\n- numaNod: 1":                `unknown field "reservedMemory[1].numaNod", line 5: did you mean reservedMemory[1].numaNode?`,
		"healthzPort: abc":           "healthzPort: must be a whole number",
		"syncFrequency: soon":        "syncFrequency: it must be a duration, such as 90s, 10m or 1h30m",
		"enableServer: 3":            "enableServer: must be true or false",
		"evictionHard: [a]":          "evictionHard: must be a map",
		"maxPods: 1\nmaxPods: 2":     `"maxPods" already set`,
		"clusterDNS: 10.0.0.10":      "clusterDNS: must be a list",
		"maxPods: 30000000000000000": "maxPods: must be between -2147483648 and 2147483647",
	} {
		_, warnings, err := loadArgs(t, "--config="+write(t, t.TempDir(), "f", header+text+"\n"))
		got := fmt.Sprint(err)
		for _, w := range warnings {
			if w.Mistake {
				got = strings.TrimSuffix(w.Message, " (passed over, as by the kubelet)")
			}
		}
		if !strings.HasSuffix(got, want) && !strings.Contains(want, "already") || !strings.Contains(got, want) {
			t.Errorf("%q:\n%s, want\n%s", text, got, want)
		}
	}
}

// The warning for a flag with a field names the field, and the one that takes precedence.
func TestDeprecatedFlagsSayWhatWins(t *testing.T) {
	file := write(t, t.TempDir(), "f", header+"evictionHard: {memory.available: 1Gi}\n")
	for args, want := range map[string]string{
		"--eviction-hard=memory.available<2Gi": "--eviction-hard: deprecated: set evictionHard in the --config file; the flag wins over the file",
		"--feature-gates=NodeSwap=true":        "--feature-gates: deprecated: set featureGates in the --config file; gate by gate, the flag wins over the file",
		"--system-container=/old":              "--system-container: deprecated: set systemCgroups in the --config file; the flag wins over the file",
		"--register-schedulable=false":         "--register-schedulable: deprecated: set registerWithTaints with node.kubernetes.io/unschedulable:NoSchedule in the --config file; the flag adds to the file",
		"--sync-frequency=5s":                  "--sync-frequency: without effect in this version of Playlet; deprecated: set syncFrequency in the --config file",
	} {
		n, warnings, err := loadArgs(t, "--config="+file, args, "--cgroup-root=/")
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, w := range warnings {
			said += w.String() + "\n"
		}
		if !strings.Contains(said, want+"\n") {
			t.Errorf("%s:\n%s, want\n%s", args, said, want)
		}
		if strings.HasPrefix(args, "--eviction") && n.Kubelet.EvictionHard["memory.available"] != "2Gi" {
			t.Errorf("the flag does not win: %v", n.Kubelet.EvictionHard)
		}
	}
}
