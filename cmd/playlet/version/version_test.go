package version

import (
	"runtime/debug"
	"testing"
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
