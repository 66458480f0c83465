package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/playlet-dev/playlet/actors/volumes/leftover"
	"github.com/playlet-dev/playlet/cmd/playlet/doctor"
	"github.com/playlet-dev/playlet/config/systemd"
)

// takeOver has the kubelet's service run this program. If it does not start, the kubelet gets the node back.
func (i *installer) takeOver(ctx context.Context) error {
	if i.config != systemd.ConfigPath {
		return errors.New("--config and --replace-kubelet exclude each other: the arguments of the kubelet are kept")
	}
	dropIn, args, err := systemd.Takeover(i.root, i.binary)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no kubelet is installed here as kubelet.service; playlet install without --replace-kubelet needs none")
	}
	if err != nil {
		return fmt.Errorf("nothing was installed: %w", err)
	}
	if i.onlyRoot {
		i.say("not looked at: whether an agent can work with the kubelet's arguments on this machine")
	} else if err := i.refuse(ctx, args); err != nil {
		return fmt.Errorf("nothing was installed, for the kubelet's arguments would not do: %w", err)
	}
	folders, err := doctor.FoldersOf(args)
	if err != nil {
		i.say("not read: the volumes and manifests of the kubelet (%v)", err)
	} else {
		i.nameLeftovers(folders)
		i.nameManifests(folders)
	}
	if err := i.writeProgram(); err != nil { // the service must not name a program that is absent
		return err
	}
	before, absent := os.ReadFile(i.path(systemd.TakeoverPath))
	if err := i.write(systemd.TakeoverPath, []byte(dropIn), 0o600); err != nil {
		return err
	}
	if i.noStart {
		i.say("not started: systemctl daemon-reload and systemctl restart %s do that", systemd.KubeletUnit)
		return nil
	}
	if err := i.control(ctx, "daemon-reload"); err != nil {
		if absent == nil {
			return errors.Join(fmt.Errorf("%w; playlet keeps the node, with its former arguments", err),
				i.write(systemd.TakeoverPath, before, 0o600))
		}
		// Else the next boot would start playlet after an install that failed.
		return errors.Join(fmt.Errorf("%w; the kubelet keeps the node", err), i.remove(systemd.TakeoverPath))
	}
	if err := i.control(ctx, "restart", systemd.KubeletUnit); err != nil {
		err = fmt.Errorf("%w (journalctl -u %s says why); the kubelet has the node again", err, systemd.KubeletUnit)
		return errors.Join(err, i.giveBack(ctx, "restart"))
	}
	if !i.dryRun {
		i.say("%s runs playlet; playlet pods shows its pods", systemd.KubeletUnit)
	}
	return nil
}

// giveBack has the kubelet's service run the kubelet.
func (i *installer) giveBack(ctx context.Context, restart string) error {
	if err := errors.Join(i.remove(systemd.TakeoverPath), i.remove(systemd.LogindPath)); err != nil {
		return err
	}
	if _, err := os.Stat(i.path(systemdLives)); err != nil {
		return nil //nolint:nilerr // no systemd: nothing was started
	}
	return errors.Join(i.control(ctx, "daemon-reload"), i.control(ctx, restart, systemd.KubeletUnit))
}

// nameLeftovers names the volumes of the kubelet that the agent will keep because it cannot manage them.
func (i *installer) nameLeftovers(of doctor.Folders) {
	found, err := leftover.Explain(i.path(of.Root), of.Standalone)
	for _, f := range found {
		i.say("not managed by playlet: %s (%s)", f.Cause, f.Remedy)
	}
	if err != nil {
		i.say("not all volumes of the kubelet can be read: %v", err)
	}
}

// nameManifests names the faults of the static pods' manifests before anything changes. A pod that runs is kept, but playlet does
// not start it again while its manifest has a fault.
func (i *installer) nameManifests(of doctor.Folders) {
	if of.StaticPods == "" {
		return
	}
	for _, f := range doctor.Manifests(i.path(of.StaticPods), of.Node) {
		if f.Result != doctor.OK {
			i.say("manifest: %s (%s)", strings.ReplaceAll(f.Seen, i.path(of.StaticPods), of.StaticPods), f.Do)
		}
	}
}
