package version

import (
	"runtime/debug"
	"testing"

	semver "k8s.io/apimachinery/pkg/util/version"
)

func TestVersionOfABuild(t *testing.T) {
	setting := func(k, v string) debug.BuildSetting { return debug.BuildSetting{Key: k, Value: v} }
	revision := setting("vcs.revision", "0123456789abcdef")
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.3":                   {Main: debug.Module{Version: "v1.2.3"}},
		"devel":                    {Main: debug.Module{Version: "(devel)"}},
		"devel-0123456789ab":       {Settings: []debug.BuildSetting{revision, setting("vcs.modified", "false")}},
		"devel-0123456789ab-dirty": {Settings: []debug.BuildSetting{revision, setting("vcs.modified", "true")}},
	} {
		if got := versionOf(info); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	Build = "v9"
	defer func() { Build = "" }()
	if Playlet() != "v9" {
		t.Errorf("%s", Playlet())
	}
}

// Others read the kubelet's version as a semantic one, whatever Playlet's is.
func TestKubeletVersion(t *testing.T) {
	for own, want := range map[string]string{
		"v0.4.0": "v1.36.3+playlet-v0.4.0", "devel-1d48ce8-dirty": "v1.36.3+playlet-devel-1d48ce8-dirty",
		"v0.4.1-0.2026+dirty": "v1.36.3+playlet-v0.4.1-0.2026-dirty",
		"a b..c.":             "v1.36.3+playlet-a-b.c",
	} {
		got := kubeletVersion(own)
		if v, err := semver.ParseSemantic(got); got != want || err != nil || v.Minor() != 36 {
			t.Errorf("%q: %q, want %q, %v", own, got, want, err)
		}
	}
}
