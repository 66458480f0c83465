package config

import (
	"testing"
)

func TestGates(t *testing.T) {
	for name, test := range map[string]struct {
		set     map[string]bool
		on, off []string
	}{
		"defaults": {nil, []string{"NodeSwap", "KubeletCrashLoopBackOffMax", "ContextualLogging"},
			[]string{"MemoryQoS", "EventedPLEG", "AllAlpha", "NoSuchGate"}},
		"by name": {map[string]bool{"MemoryQoS": true, "KubeletSeparateDiskGC": false}, []string{"MemoryQoS"},
			[]string{"KubeletSeparateDiskGC"}},
		"all alpha but one": {map[string]bool{"AllAlpha": true, "EventedPLEG": false}, []string{"MemoryQoS", "AllAlpha"},
			[]string{"EventedPLEG", "MaxUnavailableStatefulSet"}},
		"no beta but one": {map[string]bool{"AllBeta": false, "ContainerCheckpoint": true},
			[]string{"ContainerCheckpoint", "NodeSwap"}, []string{"KubeletCrashLoopBackOffMax"}},
		"locked as it is": {map[string]bool{"NodeSwap": true}, []string{"NodeSwap"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			gates, warnings, err := resolveGates(test.set)
			if err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			for _, gate := range test.on {
				if !gates[gate] {
					t.Errorf("%s is off", gate)
				}
			}
			for _, gate := range test.off {
				if gates[gate] {
					t.Errorf("%s is on", gate)
				}
			}
		})
	}
}

func TestRefusedGates(t *testing.T) {
	_, _, err := resolveGates(map[string]bool{"NodeSwap": false, "Sorcery": true, "MemoryQoS": true})
	oneLineWith(t, err, "featureGates.NodeSwap (--feature-gates): invalid value false: the feature is GA and locked to true")
	oneLineWith(t, err, "featureGates.Sorcery (--feature-gates): invalid value true")
}

func TestRetiredGatesAreIgnoredWithAWarning(t *testing.T) {
	gates, warnings, err := resolveGates(map[string]bool{"DynamicKubeletConfig": true, "CSIMigration": false})
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 2 || warnings[0].Flag != "featureGates.CSIMigration" || gates["DynamicKubeletConfig"] {
		t.Errorf("warnings %v, on: %t", warnings, gates["DynamicKubeletConfig"])
	}
}
