package persistent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/internal/reconcile"
	"github.com/playlet-dev/playlet/actors/volumes/csi"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/supervisors"
)

// stagedPrefix begins the keys of what is done to a volume for all its pods.
const stagedPrefix = "staged/"

// stagedKey is the volume's folder among those that are staged: the driver and a hash of the handle.
func stagedKey(r csi.Record) string {
	return filepath.Join(r.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(r.Handle))))
}

// stagedResult is what came of one piece of work on a volume; nobody joins another's.
type stagedResult struct{ err error }

// alone does something for a volume while nothing else is done for it here.
func (s *Storage) alone(ctx context.Context, key string, do func(context.Context) error) error {
	never := func(stagedResult) bool { return false }
	out, err := reconcile.Join(ctx, s.Operations, stagedPrefix+key, kinds.OperationTimeout, never,
		func(ctx context.Context) stagedResult { return stagedResult{do(ctx)} })
	return errors.Join(err, out.err)
}

// stagedDriver unstages volumes that no pod has any more. They are an object of the reconciler only for that: pods have them
// staged by themselves, and a record of each pod's lies on the disk before that.
type stagedDriver struct{ *Storage }

// Unstager is the reconciler that unstages volumes.
type Unstager = *reconcile.Reconciler[struct{}, struct{}]

// NewUnstager makes an Unstager. report is called after each attempt.
func NewUnstager(s *Storage, report func(supervisors.Context)) Unstager {
	return reconcile.New(reconcile.Options[struct{}, struct{}]{
		Name: "staged volume", Driver: stagedDriver{s}, Operations: s.Operations, Prefix: stagedPrefix,
		OperationTimeout: kinds.OperationTimeout, Pod: func(string) string { return "" },
		Report: func(ctx supervisors.Context, _ reconcile.Report[struct{}, struct{}]) { report(ctx) },
		Rules: reconcile.Rules[struct{}, struct{}]{
			Same: func(_, _ struct{}) bool { return true }, Retry: kinds.Retry,
			Timeout: time.Minute, RemoveTimeout: 3 * time.Minute,
		},
	})
}

// Ensure implements reconcile.Driver; nobody asks for it.
func (stagedDriver) Ensure(context.Context, reconcile.Operation[struct{}, struct{}]) (none struct{}, err error) {
	return none, nil
}

// Inventory implements reconcile.Driver: what is staged and no pod has a record of.
func (d stagedDriver) Inventory(context.Context) (out []string, err error) {
	staged, _, err := d.staged()
	if len(staged) == 0 {
		return nil, err // one that cannot be read stays, and is named by who lists what is in use
	}
	published, lost, err := d.published()
	if err != nil {
		return nil, err
	}
	for key, r := range staged {
		if !has(published, r) && d.mayHave(lost, key) == nil {
			out = append(out, key)
		}
	}
	return out, nil
}

func has(published map[string]csi.Record, r csi.Record) bool {
	return len(others(published, r, "")) > 0
}

// others are the pods that have the volume, but for one.
func others(published map[string]csi.Record, r csi.Record, but string) (uids []string) {
	for key, p := range published {
		if uid := podOf(key); uid != but && p.Same(r) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Remove implements reconcile.Driver. A pod may have got the volume meanwhile: then it stays.
func (d stagedDriver) Remove(ctx context.Context, key string) error {
	root, err := safepath.OpenRoot(d.csiFolder())
	if err != nil {
		return kinds.IgnoreAbsent(err)
	}
	defer root.Close() //nolint:errcheck // read only
	r, err := csi.Read(root, key)
	switch {
	case kinds.IsAbsent(err): // the driver has undone it
		return kinds.IgnoreAbsent(release(ctx, root, key, csi.GlobalMount))
	case err != nil:
		return err
	}
	published, lost, err := d.published()
	if err != nil || has(published, r) {
		return err
	}
	if err := d.mayHave(lost, key); err != nil {
		return err
	}
	driver, err := d.Drivers.Get(r.Driver)
	if err != nil {
		return err
	}
	at := filepath.Join(root.Path(), key, csi.GlobalMount)
	ref, err := d.referenceAt(r, at)
	if err = errors.Join(err, ref.check()); err != nil {
		return err
	}
	d.setReady(key, false)
	defer d.touch(false)
	if driver.Can(csi.Stages) {
		if err := driver.Unstage(ctx, d.stagerOf(key), r.Handle, at); err != nil {
			return err
		}
	}
	if err := release(ctx, root, key, csi.GlobalMount); err != nil {
		return err
	}
	d.setStager(key, "")
	d.Log.Info("unstaged a volume", "driver", r.Driver, "folder", filepath.Join(root.Path(), key))
	return nil
}
