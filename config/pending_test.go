package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestEverySettingIsDecided: nothing that can be set is accepted without anybody knowing whether it does something.
func TestEverySettingIsDecided(t *testing.T) {
	known := map[string]string{}
	fieldsOf(t, reflect.ValueOf(KubeletConfiguration{}), "", known)
	for path := range known {
		if _, decided := fieldEffects[path]; !decided {
			t.Errorf("field %s: whether it takes effect is not in the table", path)
		}
	}
	for path := range fieldEffects {
		if _, there := known[path]; !there {
			t.Errorf("field %s is in the table and not in KubeletConfiguration", path)
		}
	}
	rows := map[string]bool{}
	for _, row := range allRows() {
		_, decided := flagEffects[row.name]
		switch needed := row.field == "" && !strings.HasPrefix(row.warning, "ignored: "); {
		case needed && !decided:
			t.Errorf("--%s: whether it takes effect is not in the table", row.name)
		case !needed && decided:
			t.Errorf("--%s is decided twice", row.name)
		case row.field != "" && known[row.field] == "":
			t.Errorf("--%s sets %s, which is no field", row.name, row.field)
		}
		rows[row.name] = true
	}
	for name := range flagEffects {
		if !rows[name] {
			t.Errorf("--%s is in the table and no flag", name)
		}
	}
	for name := range effectiveGates {
		if _, there := knownGates()[name]; !there {
			t.Errorf("%s is no feature gate", name)
		}
	}
}

// TestEachFlagWithoutEffectSaysSo sets every flag alone: one that nothing looks at says so, once, and no other does.
func TestEachFlagWithoutEffectSaysSo(t *testing.T) {
	for _, row := range allRows() {
		_, fs, err := parse()
		if err != nil {
			t.Fatal(err)
		}
		flags, fs, err := parse("--" + row.name + "=" + sample(t, fs.Lookup(row.name)))
		if err != nil {
			t.Fatal(err)
		}
		got := pendingOf(t, flags, fs)
		want := []string{}
		if row.pending() {
			want = append(want, "--"+row.name)
		}
		if row.name == gatesRow.name {
			want = []string{"featureGates.AllAlpha"} // of the sample
		}
		if !slices.Equal(got, want) {
			t.Errorf("--%s: %v are said to have no effect", row.name, got)
		}
	}
}

// pendingOf names what is said to be without effect.
func pendingOf(t *testing.T, flags *Flags, fs *pflag.FlagSet) []string {
	t.Helper()
	to := newTarget(nil)
	sent, err := flags.replay(fs, to)
	if err != nil {
		t.Fatal(err)
	}
	to.kubelet.FeatureGates = mergeGates(nil, to.gates)
	if !to.node.schedulable {
		to.node.Kubelet = to.kubelet
		if _, err := to.node.settle(testHost); err != nil {
			t.Fatal(err)
		}
	}
	return named(flags.pendingSettings(fs, to.kubelet, defaultConfiguration(nil), sent))
}

func named(warnings []Warning) []string {
	out := []string{}
	for _, w := range warnings {
		if strings.Contains(w.Message, noEffectYet) {
			out = append(out, w.Flag)
		}
	}
	return out
}

// TestWhatIsSetWithoutEffectIsNamedOnce, whether a file, a drop-in or a flag sets it, and only where it is not the default.
func TestWhatIsSetWithoutEffectIsNamedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		file string
		args []string
		want []string
	}{
		"nothing":  {},
		"in force": {file: "staticPodPath: /m\nclusterDNS: [192.0.2.1]\nhealthzPort: 1\n", want: nil},
		"a file": {file: "maxOpenFiles: 5\nmemorySwap: {}\nhairpinMode: none\n",
			want: []string{"hairpinMode", "maxOpenFiles"}},
		"its defaults":     {file: "maxOpenFiles: 1000000\nsystemReserved: {}\nreadOnlyPort: 0\nevictionPressureTransitionPeriod: 0s\npodPidsLimit: -1\n"},
		"a flag":           {args: []string{"--max-open-files=5"}, want: []string{"--max-open-files"}},
		"a flag's default": {args: []string{"--max-open-files=1000000", "--node-labels="}},
		"a file and a flag": {file: "maxOpenFiles: 5\n", args: []string{"--max-open-files=6"},
			want: []string{"--max-open-files"}},
		"a flag takes back": {file: "maxOpenFiles: 5\n", args: []string{"--max-open-files=1000000"}},
		"a flag of old": {args: []string{"--api-servers=http://a", "--network-plugin=cni", "--cadvisor-port=4194"},
			want: []string{"--api-servers"}},
		"two flags of one": {args: []string{"--max-open-files=5", "--max-open-files=6"},
			want: []string{"--max-open-files"}},
		"a node that is full": {args: []string{"--register-schedulable=false"}},
		"a threshold": {file: "evictionHard: {memory.available: 1Gi}\n",
			args: []string{"--experimental-allocatable-ignore-eviction"}},
		"a soft threshold": {file: "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\n"},
		"gates": {file: "featureGates: {PodsAPI: true, MemoryQoS: true, ReduceDefaultCrashLoopBackOffDecay: true, NodeLogQuery: true}\n",
			want: []string{"featureGates.PodsAPI"}},
		"no cloud": {args: []string{"--cloud-provider=aws"}}, // it is ignored, and that is said
	} {
		t.Run(name, func(t *testing.T) {
			args := test.args
			if test.file != "" {
				args = append(args, "--config="+write(t, t.TempDir(), "f", header+test.file))
			}
			_, warnings, err := loadArgs(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := named(warnings); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("got %v, want %v", got, test.want)
			}
			count := map[string]int{}
			for _, w := range warnings {
				count[w.Flag]++
			}
			for flag, n := range maps.All(count) {
				if n > 1 {
					t.Errorf("%s has %d lines", flag, n)
				}
			}
		})
	}
}

// TestAFlagWithoutEffectReadsSo looks at the line once, for people.
func TestAFlagWithoutEffectReadsSo(t *testing.T) {
	_, warnings, err := loadArgs(t, "--max-open-files=5")
	if err != nil || len(warnings) != 1 {
		t.Fatal(warnings, err)
	}
	if got, want := warnings[0].String(),
		"--max-open-files: without effect in this version of Playlet; deprecated: set maxOpenFiles in the --config file"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
