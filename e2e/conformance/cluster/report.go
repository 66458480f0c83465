package main

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/playlet-dev/playlet/e2e/conformance/suite"
)

// files are templates: the files of the CNCF's conformance programme that the suite does not write, and the table.
//
//go:embed files
var files embed.FS

// report is a run of the suite.
type report struct {
	suite.Options
	suite.Results
	All    []string // the names of the specs of conformance
	Commit string   // of the checkout when the run began
	Date   time.Time
	Took   time.Duration
}

// write writes the files of the programme into the folder of reports, and the table unless its path is empty.
func (r report) write(table string) error {
	paths := map[string]string{
		"README.md": filepath.Join(r.Out, "README.md"), "PRODUCT.yaml": filepath.Join(r.Out, "PRODUCT.yaml"), "table.md": table,
	}
	all := template.New("").Funcs(template.FuncMap{"cell": cell})
	for name, path := range paths {
		text, err := fs.ReadFile(files, "files/"+name)
		if err != nil || path == "" {
			continue
		}
		var out strings.Builder
		if err := template.Must(all.New(name).Parse(string(text))).Execute(&out, r); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// cell is text that may stand in a column of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

// commit returns the checkout's commit, with -dirty where it has changes.
func commit() (string, error) {
	out, err := exec.Command("git", "-c", "safe.directory=*", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	return strings.TrimSpace(string(out)), err
}

// Command is the command line of the run.
func (r report) Command() string {
	command := "go run ./e2e/conformance/cluster"
	for _, arg := range os.Args[1:] {
		if strings.ContainsAny(arg, ` |\[]()*'`) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		command += " " + arg
	}
	return command
}

// Agent is the program in the kubelet's place.
func (r report) Agent() string {
	if r.Kubelet {
		return "kubelet"
	}
	return "Playlet"
}

// NotRun are the specs of conformance that neither passed nor failed, and the reasons that are known.
func (r report) NotRun() (specs []suite.Spec) {
	ran := map[string]bool{}
	for _, s := range slices.Concat(r.Passed, r.Failed) {
		ran[s.Name] = true
	}
	for _, name := range r.All {
		if ran[name] {
			continue
		}
		why := ""
		for _, k := range known {
			if regexp.MustCompile(k.Tests).MatchString(name) {
				why = k.Why
			}
		}
		specs = append(specs, suite.Spec{Name: name, Why: why})
	}
	return specs
}

// Known are the specs that do not run for a known reason.
func (r report) Known() []suite.Spec {
	return slices.DeleteFunc(r.NotRun(), func(s suite.Spec) bool { return s.Why == "" })
}

// Cut counts the specs that were not asked for, or that the end of the run cut off.
func (r report) Cut() int { return len(r.NotRun()) - len(r.Known()) }

// Partial reports that specs without a known reason did not run.
func (r report) Partial() bool { return r.Cut() > 0 }

// Group counts the specs of a special interest group.
type Group struct {
	Name                         string
	Passed, Failed, Known, Other int
}

var sig = regexp.MustCompile(`^\[sig-[a-z-]+\]`)

// Groups counts the specs of conformance by group.
func (r report) Groups() []Group {
	all := map[string]*Group{}
	count := func(specs []suite.Spec, add func(*Group, suite.Spec)) {
		for _, s := range specs {
			name := strings.Trim(sig.FindString(s.Name), "[]")
			if all[name] == nil {
				all[name] = &Group{Name: name}
			}
			add(all[name], s)
		}
	}
	count(r.Passed, func(g *Group, _ suite.Spec) { g.Passed++ })
	count(r.Failed, func(g *Group, _ suite.Spec) { g.Failed++ })
	count(r.NotRun(), func(g *Group, s suite.Spec) {
		if s.Why == "" {
			g.Other++
		} else {
			g.Known++
		}
	})
	var groups []Group
	for _, g := range slices.SortedFunc(maps.Values(all), func(a, b *Group) int { return cmp.Compare(a.Name, b.Name) }) {
		groups = append(groups, *g)
	}
	return groups
}

// Minutes is the time of the run.
func (r report) Minutes() string { return fmt.Sprintf("%.0f", r.Took.Minutes()) }
