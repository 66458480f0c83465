package iscsi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/playlet-dev/playlet/actors/internal/linux/program"
	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/blockmap"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
)

// Logout ends the sessions of the volume with this folder below Top, and removes the record and the folder, which is not mounted.
// It may be repeated after an interruption at any point. A session stays if others logged it in, or if another volume is recorded
// with it: only the disk of the logical unit is removed from the kernel then. While anything uses a disk of a session that would
// end, Logout returns an error that names the user, and ends nothing.
func (i Initiator) Logout(ctx context.Context, owner safepath.Owner, rootDir string, top *safepath.Root, folder string) error {
	if err := errors.Join(safepath.CheckElement(filepath.Base(folder)), safepath.CheckElement(filepath.Dir(folder))); err != nil {
		return err
	}
	if is, err := top.IsMountPoint(folder); err != nil || is {
		return errors.Join(kinds.IgnoreAbsent(err), isMounted(is, top, folder))
	}
	records, err := Records(rootDir)
	if err != nil {
		return err
	}
	own, known := records[folder]
	delete(records, folder)
	if known {
		for _, key := range own.sessions() {
			if err := i.logoutOf(ctx, owner, top, records, own, key); err != nil {
				return err
			}
		}
		if err := removeInterface(ctx, own, records); err != nil {
			return err
		}
	}
	for _, name := range []string{RecordFile, RecordFile + ".new"} {
		if err := kinds.IgnoreAbsent(top.Unlink(filepath.Join(folder, name))); err != nil {
			return err
		}
	}
	if err := kinds.IgnoreAbsent(top.RemoveEmpty(folder)); err != nil {
		return err
	}
	for _, key := range own.sessions() { // last: while there is a record, the session of others is marked
		if !isRecorded(records, key) {
			if err := kinds.IgnoreAbsent(top.Unlink(key.marker())); err != nil {
				return err
			}
		}
	}
	var others *safepath.NotEmptyError
	if err := top.RemoveEmpty(filepath.Dir(folder)); !errors.As(err, &others) {
		return kinds.IgnoreAbsent(err)
	}
	return nil
}

func isMounted(is bool, top *safepath.Root, folder string) error {
	if !is {
		return nil
	}
	return fmt.Errorf("%s is mounted, so its target stays logged in", filepath.Join(top.Path(), folder))
}

// logoutOf ends one session of a volume unless it stays. records are those of the other volumes.
func (i Initiator) logoutOf(
	ctx context.Context, owner safepath.Owner, top *safepath.Root, records map[string]Record, own Record, key sessionKey,
) error {
	found, err := i.kernel().find(key)
	if err != nil {
		return err
	}
	_, markErr := top.Lstat(key.marker())
	foreign := markErr == nil
	if err := kinds.IgnoreAbsent(markErr); err != nil {
		return err
	}
	switch shared := isRecorded(records, key); {
	case shared && (foreign || found == nil || hasUnit(records, own, key)):
		return nil
	case shared:
		if d, is := found.disk(own.Lun); is {
			return i.removeDisk(ctx, owner, d)
		}
		return nil
	case foreign:
		return nil
	case found != nil:
		for _, d := range found.disks() {
			if err := i.release(ctx, owner, d); err != nil {
				return fmt.Errorf("%s stays logged in: %w", key, err)
			}
		}
		if _, err := run(ctx, key.String(), "-m", "session", "-r", found.id, "-u"); err != nil &&
			!exits(err, exitSessionAbsent, exitNoRecord) {
			return err
		}
		if left, err := i.kernel().find(key); err != nil || left != nil {
			return errors.Join(err, fmt.Errorf("%s: iscsiadm reports a logout, and the session is still there", key))
		}
	}
	_, err = run(ctx, key.String(), "-m", "node", "-T", key.target, "-p", key.portal, "-I", key.iface, "-o", "delete")
	if exits(err, exitNoRecord) {
		return nil
	}
	return err
}

// hasUnit reports whether another volume with the session has the same logical unit.
func hasUnit(records map[string]Record, own Record, key sessionKey) bool {
	for _, r := range records {
		if r.has(key) && r.Lun == own.Lun {
			return true
		}
	}
	return false
}

// release returns an error if a disk is in use. A multipath device over it that is not in use is removed.
func (i Initiator) release(ctx context.Context, owner safepath.Owner, d disk) error {
	kernel := i.kernel()
	if mapped := kernel.multipath(d); mapped != "" {
		if err := isUnused(ctx, owner, node(mapped)); err != nil {
			return err
		}
		name := value(string(kernel), "class/block", mapped, "dm/name")
		if out, err := program.Run(ctx, "multipath", "-f", name); err != nil {
			return fmt.Errorf("the multipath device %s cannot be removed: %w (%s)", name, err, strings.TrimSpace(out))
		}
	}
	for _, name := range d.partitions() {
		if err := isUnused(ctx, owner, node(name)); err != nil {
			return err
		}
	}
	return nil
}

func isUnused(ctx context.Context, owner safepath.Owner, path string) error {
	device, err := blockmap.At(path)
	if err != nil {
		return kinds.IgnoreAbsent(err)
	}
	users, err := device.Users(ctx, owner)
	if err == nil && len(users) > 0 {
		err = fmt.Errorf("the device %s is in use by %s", path, strings.Join(users, ", "))
	}
	return err
}

// removeDisk removes the disk of a volume whose session stays, so that a logical unit with the number may become another disk.
func (i Initiator) removeDisk(ctx context.Context, owner safepath.Owner, d disk) error {
	if err := i.release(ctx, owner, d); err != nil {
		return err
	}
	_, err := safepath.Bounded(ctx, owner, d.path, "remove "+d.path, func() (struct{}, error) { return struct{}{}, d.remove() })
	return kinds.IgnoreAbsent(err)
}

// removeInterface removes the interface of a volume with an initiator's name of its own, unless another volume has it.
func removeInterface(ctx context.Context, own Record, records map[string]Record) error {
	if own.InitiatorName == "" {
		return nil
	}
	for _, r := range records {
		if r.Iface == own.Iface {
			return nil
		}
	}
	_, err := run(ctx, own.Iqn, "-m", "iface", "-I", own.Iface, "-o", "delete")
	if exits(err, exitNoRecord, exitNoInterface) {
		return nil
	}
	return err
}
