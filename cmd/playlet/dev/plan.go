package dev

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/playlet-dev/playlet/cmd/playlet/dev/namespaces"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/network"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/programs"
	"github.com/playlet-dev/playlet/cmd/playlet/dev/progress"
)

// Plan is the data that the processes of the run share. It is in the run's folder.
type Plan struct {
	Name        string            `json:"name"`
	Programs    programs.Programs `json:"programs"`
	Version     programs.Version  `json:"version"`
	Bridge      string            `json:"bridge"`
	Subnet      string            `json:"subnet"`
	AdminSocket string            `json:"adminSocket"`
	// NodeIP is given to the agent where it cannot find an address of the machine; empty otherwise.
	NodeIP string `json:"nodeIP,omitempty"`
	Once   bool   `json:"once,omitempty"`
	// Page is the port of the web page on the loopback, or of any free port; -1: none.
	Page      int    `json:"page,omitempty"`
	NoChaos   bool   `json:"noChaos,omitempty"`
	ObjectDir string `json:"objectDir,omitempty"`
	// Pods are manifests to run beside the sample. Tour shows the node in steps.
	Pods []string `json:"pods,omitempty"`
	Tour bool     `json:"tour,omitempty"`
	// Temporary means that the folder is removed with the run.
	Temporary bool `json:"temporary,omitempty"`
}

func readPlan(dir string) (*Plan, error) {
	data, err := os.ReadFile(folder(dir).at(planFile))
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	return plan, json.Unmarshal(data, plan)
}

// prepare finds out all that a run needs, and makes nothing.
func prepare(ctx context.Context, o Options, p *progress.Progress) (*Plan, *Record, error) {
	if err := enoughSpace(cmp.Or(o.Dir, os.TempDir()), freeSpace); err != nil {
		return nil, nil, err
	}
	found, err := programs.Provide(ctx, o.Programs, o.Install, p)
	if err != nil {
		return nil, nil, err
	}
	plan := &Plan{Programs: found, Once: o.Once, Page: o.Page, NoChaos: !o.Chaos, ObjectDir: o.ObjectDir,
		Pods: o.Pods, Tour: o.Tour}
	err = p.Step("programs", func(func(string)) (string, error) {
		plan.Version, err = programs.ContainerdVersion(ctx, found.Containerd)
		if err == nil && plan.Version.Major == 1 && plan.Version.Minor < 6 {
			err = fmt.Errorf("%s is containerd %s; it takes 1.6 or newer", found.Containerd, plan.Version.Text)
		}
		return fmt.Sprintf("containerd %s in %s", plan.Version.Text, filepath.Dir(found.Containerd)), err
	})
	if err != nil {
		return nil, nil, err
	}
	r := &Record{ID: strings.ToLower(rand.Text()[:6]), Marked: true}
	plan.Name = r.Name()
	if err := planFolder(o, plan, r); err != nil {
		return nil, nil, err
	}
	if r.Changes, plan.NodeIP, err = network.Plan(ctx, found.IPTables); err != nil {
		return nil, nil, err
	}
	plan.Bridge, plan.Subnet = r.Bridge, r.Subnet
	if r.Controllers, r.Groups, err = namespaces.Before(); err != nil {
		return nil, nil, err
	}
	if r.Boot, err = bootID(); err != nil {
		return nil, nil, err
	}
	r.Outer, err = identify(procDir, os.Getpid())
	return plan, r, err
}

func planFolder(o Options, plan *Plan, r *Record) (err error) {
	if r.Dir, r.Temporary, err = newFolder(o.Dir, r.Name()); err != nil {
		return err
	}
	plan.Temporary = r.Temporary
	f := folder(r.Dir)
	there, err := f.manifestsThere()
	if err != nil {
		return err
	}
	switch {
	case !there:
		r.Sample = sampleManifest
	case o.Tour:
		return fmt.Errorf("the tour needs the sample pod, and %s holds manifests of yours", f.manifests())
	}
	if r.AdminSocket, err = chooseSocket(o, f); err != nil {
		return err
	}
	plan.AdminSocket = r.AdminSocket
	wanted := append([]string{filepath.Dir(r.AdminSocket)}, privateFolders...)
	if !r.Temporary { // all of a temporary one goes
		wanted = append(wanted, f.manifests())
	}
	r.Folders, err = missingFolders(wanted...)
	return err
}

// chooseSocket prefers the socket where the sub-commands look, if no other agent is there.
func chooseSocket(o Options, f folder) (string, error) {
	switch {
	case o.AdminSocket != "":
		return filepath.Abs(o.AdminSocket)
	case listening(o.DefaultSocket):
		return f.at(adminSock), nil
	default:
		return o.DefaultSocket, nil
	}
}
