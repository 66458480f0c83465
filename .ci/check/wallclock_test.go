package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// wallClock are the methods and functions whose results have no monotonic part. A difference of such times is no duration: the
// clock may be set in between. Truncate strips it, too, and is also a method of durations and files.
var wallClock = []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "ModTime", "Truncate", "Rfc3339Copy", "AddDate"}

// mayUseWallClock are the permitted uses, by file. A use in a decision has a bound for a clock that was set forward or back.
var mayUseWallClock = map[string]permit{
	"actors/ender/machine.go":                    {1, "a generation, compared for equality"},
	"actors/events/source.go":                    {1, "unique names of Events, which increase"},
	"actors/eviction/oomkill/oomkill.go":         {1, "a deadline in the past, which ends a read"},
	"actors/images/pullrecord/records.go":        {1, "times of records; those of this process are compared by the monotonic clock"},
	"actors/internal/finalstatus/finalstatus.go": {1, "reported in seconds"},
	"actors/internal/metrics/metrics.go":         {1, "a metric"},
	"actors/internal/suspend/suspend.go":         {2, "finds that the clock was set"},
	"actors/internal/wholefile/wholefile.go":     {2, "times of files; a negative age is an old file"},
	"actors/objects/reader.go":                   {1, "times of files; a negative age is an old file"},
	"actors/pod/events.go":                       {2, "durations in Events"},
	"actors/pod/known/clock.go":                  {2, "anchors recorded times by the monotonic clock"},
	"actors/pod/podstatus/conditions.go":         {1, "reported in seconds"},
	"actors/pod/probes.go":                       {1, "a generation, compared for equality"},
	"actors/pod/start.go":                        {1, "a generation, compared for equality"},
	"actors/registration/lease.go":               {1, "the lease's time, which always increases"},
	"actors/registration/status.go":              {1, "compared for equality"},
	"actors/runtime/choose.go":                   {1, "the runtime's times; a negative age is an old container"},
	"actors/server/admin/api/params.go":          {1, "the sinceTime of a client"},
	"actors/server/cadvisor/events.go":           {3, "a key of an event, and the times of a client"},
	"actors/server/containers/choose.go":         {1, "reported in seconds"},
	"actors/server/containers/logs.go":           {1, "the runtime's times; the wait has a bound of its own"},
	"actors/server/nodeapi/containers.go":        {1, "the sinceTime of a client"},
	"actors/server/nodeapi/systemlogs.go":        {1, "the sinceTime of a client"},
	"actors/server/observatory/filter.go":        {2, "the expiry of a cookie, which the browser keeps"},
	"actors/shutdown/state.go":                   {1, "a metric"},
	"actors/sources/submit/objects.go":           {1, "shown to users"},
	"actors/stats/agentmetrics/starts.go":        {1, "a metric"},
	"actors/stats/cgroupmetrics/families.go":     {5, "metrics"},
	"actors/stats/cgroupmetrics/gatherer.go":     {1, "metrics"},
	"actors/stats/disk.go":                       {1, "shown to users"},
	"actors/stats/ofcri.go":                      {1, "the runtime's times, shown to users"},
	"actors/stats/resource.go":                   {2, "metrics"},
	"actors/stats/summary.go":                    {1, "the runtime's times, shown to users"},
	"actors/status/merge.go":                     {2, "reported in seconds"},
	"actors/volumes/kinds/write.go":              {1, "the form of a name"},
	"cri/crilog/part.go":                         {3, "order of log files"},
	"cri/crilog/print.go":                        {1, "the runtime's times, which select lines"},
	"cri/crilog/read.go":                         {1, "a deadline in the past, which ends a read"},
	"cri/facts/container.go":                     {1, "the runtime's times: back-off, deadline and probes anchor them, bounded by now"},
	"cri/facts/sandbox.go":                       {1, "the pod's start: the deadline anchors it, bounded by now"},
	"supervisors/cell.go":                        {1, "shown to users"},
	"supervisors/vitals.go":                      {1, "shown to users"},
}

// TestWallClock_PermittedUses reads the agent's rooms. Each use has a reason why a jump of the clock does no harm.
func TestWallClock_PermittedUses(t *testing.T) {
	found := map[string]int{}
	eachSource(t, func(path string, file *ast.File) {
		if inAgent(path) {
			found[path] += wallClockUses(file)
		}
	}, func(string, string) {})
	for path, uses := range found {
		if permitted := mayUseWallClock[path].calls; uses != permitted {
			t.Errorf("%s has %d times without a monotonic part, and is permitted to have %d", path, uses, permitted)
		}
	}
	for path, one := range mayUseWallClock {
		if found[path] == 0 || one.reason == "" {
			t.Errorf("%s is permitted to use the wall clock, and has no use or no reason", path)
		}
	}
}

// inAgent reports whether a file is part of the agent, and not of a simulation or a kit for tests.
func inAgent(path string) bool {
	for _, room := range []string{"actors/", "cri/", "cni/", "supervisors/", "cmd/playlet/agent/"} {
		if strings.HasPrefix(path, room) {
			return !strings.HasPrefix(path, "cri/sim/") && !strings.Contains(path, "test/")
		}
	}
	return false
}

// wallClockUses counts the uses in a file.
func wallClockUses(file *ast.File) (n int) {
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		for _, name := range wallClock {
			if s.Sel.Name == name {
				n++
			}
		}
		if zero, ok := first(call.Args).(*ast.BasicLit); ok && zero.Value == "0" && s.Sel.Name == "Round" {
			n++ // strips the monotonic part
		} else if ok && zero.Value == "0" && s.Sel.Name == "Truncate" {
			n-- // of a file
		}
		if from, ok := s.X.(*ast.Ident); ok && from.Name == "time" && s.Sel.Name == "Parse" {
			n++
		}
		return true
	})
	return n
}

func first(args []ast.Expr) ast.Expr {
	if len(args) == 0 {
		return nil
	}
	return args[0]
}

// TestWallClock_UsesAreFound shows the finder each form of a use.
func TestWallClock_UsesAreFound(t *testing.T) {
	for source, want := range map[string]int{
		`func f() { time.Unix(0, c.GetCreatedAt()) }`:             1,
		`func f() { t.UnixNano(); t.Unix(); info.ModTime() }`:     3,
		`func f() { t.Round(0); d.Round(time.Second); t.Sub(u) }`: 1,
		`func f() { t.Truncate(time.Second); file.Truncate(0) }`:  1,
		`func f() { time.Parse(layout, s); template.Parse(s) }`:   1,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := wallClockUses(file); got != want {
			t.Errorf("in %s: %d uses, want %d", source, got, want)
		}
	}
}
