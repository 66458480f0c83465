package iscsi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
	"github.com/playlet-dev/playlet/actors/volumes/kinds"
	"github.com/playlet-dev/playlet/messages"
)

// Initiator logs in to targets. It has no state: the disk and the kernel have it. Calls for different targets may be concurrent.
// The caller makes those for one target one after another.
type Initiator struct {
	Root string // the folder with the folders sys and etc/iscsi; empty: /
}

// diskTimeout is the wait for a disk after its scan, as in the kubelet.
var diskTimeout = 10 * time.Second

const diskInterval = 100 * time.Millisecond

// loginTries is the number of attempts of iscsid for one login, 15 s each at most. With its default of 8, the cause of a failure
// would be known only after two minutes. The agent repeats a failed login anyway.
const loginTries = "2"

func (i Initiator) kernel() sysfs { return sysfs(filepath.Join("/", i.Root, "sys")) }

// Login logs in to the portals of a target unless sessions are there, and returns the path of the device: the multipath device
// over its disks, or the disk of the first portal that has it. At least one portal has to answer. The record is written before
// the first login. An error leaves it, and Logout undoes any part. The owner has the calls to the device, which may hang. rootDir
// is the kubelet's folder, and top the one of Top.
func (i Initiator) Login(
	ctx context.Context, owner safepath.Owner, rootDir string, top *safepath.Root, s Source, secret map[string][]byte,
) (device string, err error) {
	if s.CHAP {
		if err := checkSecret(s.String(), secret); err != nil {
			return "", err
		}
	}
	sessions, err := i.begin(rootDir, top, s)
	if err != nil {
		return "", err
	}
	var disks []disk
	var failed []error
	for _, key := range sessions {
		d, err := i.loginTo(ctx, owner, top, s, key, secret)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		disks = append(disks, d)
	}
	if len(disks) == 0 {
		return "", errors.Join(failed...)
	}
	kernel, name := i.kernel(), disks[0].name()
	if len(disks) > 1 {
		err = poll(ctx, func() bool {
			mapped := kernel.multipath(disks[0])
			if mapped != "" {
				name = mapped
			}
			return mapped != ""
		})
		if ctx.Err() != nil {
			return "", err
		}
	} else if mapped := kernel.multipath(disks[0]); mapped != "" {
		name = mapped
	}
	return node(name), kernel.checkNode(name)
}

// begin marks the sessions that others have logged in, writes the record, and returns its sessions. A session with a record of a
// volume is the agent's or a kubelet's. A mounted volume keeps its record and sessions, whatever portals the source has. It is an
// error if the logical unit has another place, by another interface or first portal: the kernel has another disk for it there,
// and a file system that is mounted from two disks is damaged.
func (i Initiator) begin(rootDir string, top *safepath.Root, s Source) ([]sessionKey, error) {
	records, err := Records(rootDir)
	if err != nil {
		return nil, err
	}
	own := s.record()
	for folder, r := range records {
		if folder != s.Folder() && strings.EqualFold(r.Iqn, own.Iqn) && r.Lun == own.Lun {
			return nil, fmt.Errorf("%s is in use on this node by another interface or portal (%s): use the same in all pods, or "+
				"end those that have it", s, folder)
		}
	}
	if is, err := top.IsMountPoint(s.Folder()); kinds.IgnoreAbsent(err) != nil || is {
		return records[s.Folder()].sessions(), kinds.IgnoreAbsent(err)
	}
	for _, key := range own.sessions() {
		if isRecorded(records, key) {
			continue
		}
		found, err := i.kernel().find(key)
		if err != nil {
			return nil, err
		}
		if found == nil {
			err = kinds.IgnoreAbsent(top.Unlink(key.marker())) // of an earlier session
		} else {
			var f interface{ Close() error }
			if f, err = top.OpenBeneath(key.marker(), unix.O_CREAT|unix.O_WRONLY, 0o600); err == nil {
				err = f.Close()
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if err := top.MkdirAll(s.Folder(), kinds.FolderMode); err != nil {
		return nil, err
	}
	return own.sessions(), s.Write(top)
}

func isRecorded(records map[string]Record, key sessionKey) bool {
	for _, r := range records {
		if r.has(key) {
			return true
		}
	}
	return false
}

// loginTo logs in to one portal unless the session is there, and returns the disk.
func (i Initiator) loginTo(
	ctx context.Context, owner safepath.Owner, top *safepath.Root, s Source, key sessionKey, secret map[string][]byte,
) (none disk, err error) {
	kernel, about := i.kernel(), key.String()
	found, err := kernel.find(key)
	if err != nil {
		return none, err
	}
	if found == nil {
		if err := i.newSession(ctx, s, key, secret); err != nil {
			return none, err
		}
		if found, err = kernel.find(key); err != nil || found == nil {
			return none, errors.Join(err, fmt.Errorf("%s: iscsiadm reports success, and the kernel has no such session: "+
				"the portal has to be the address that the session has", about))
		}
	}
	lun := strconv.Itoa(int(s.LUN))
	if d, is := found.disk(lun); is {
		return d, nil
	}
	_, err = safepath.Bounded(ctx, owner, about, "scan "+about+" lun "+lun, func() (struct{}, error) {
		return struct{}{}, kernel.scan(*found, lun)
	})
	if err != nil {
		return none, fmt.Errorf("%s cannot be scanned: %w", about, err)
	}
	var d disk
	if err := poll(ctx, func() (is bool) { d, is = found.disk(lun); return is }); err != nil {
		state := ""
		if now, err := kernel.find(key); err == nil && now != nil && now.state != "LOGGED_IN" {
			state = ", the session is in the state " + now.state
		}
		return none, messages.Cause{Code: messages.CauseLUNAbsent, Name: about, Detail: lun}.Errorf(
			"%s has no lun %s for this initiator (no disk appeared within %s%s)", about, lun, diskTimeout, state)
	}
	return d, nil
}

// newSession makes a session. The kubelet discovers the targets of the portal first, which needs credentials of its own. A record
// of open-iscsi without a discovery suffices.
func (i Initiator) newSession(ctx context.Context, s Source, key sessionKey, secret map[string][]byte) (err error) {
	about := key.String()
	if s.Initiator != "" {
		if err := cloneInterface(ctx, s, about); err != nil {
			return err
		}
	}
	node := []string{"-m", "node", "-T", key.target, "-p", key.portal, "-I", key.iface}
	calls := [][]string{{"-o", "new"}, {"-o", "update", "-n", "node.startup", "-v", "manual"},
		{"-o", "update", "-n", "node.session.scan", "-v", "manual"},
		{"-o", "update", "-n", "node.session.initial_login_retry_max", "-v", loginTries}}
	for _, call := range calls {
		if _, err := run(ctx, about, slices.Concat(node, call)...); err != nil {
			return err
		}
	}
	if s.CHAP {
		err = i.setSecret(key, secret)
	}
	if err == nil {
		_, err = run(ctx, about, append(node, "--login")...)
	}
	if err == nil || exits(err, exitExists) {
		return nil
	}
	_, _ = run(context.WithoutCancel(ctx), about, append(node, "-o", "delete")...) // with the password; Logout does it as well
	return err
}

// cloneInterface makes the interface of a volume with an initiator's name of its own, from the one that the spec names.
func cloneInterface(ctx context.Context, s Source, about string) error {
	settings, err := run(ctx, about, "-m", "iface", "-I", s.Interface, "-o", "show")
	if err != nil {
		return err
	}
	clone := []string{"-m", "iface", "-I", s.iface()}
	if _, err := run(ctx, about, append(clone, "-o", "new")...); err != nil && !exits(err, exitExists) {
		return err
	}
	for line := range strings.Lines(settings) {
		name, value, is := strings.Cut(strings.TrimSpace(line), " = ")
		if !is || name == "iface.iscsi_ifacename" || name == "iface.initiatorname" || value == "<empty>" {
			continue
		}
		if _, err := run(ctx, about, append(clone, "-o", "update", "-n", name, "-v", value)...); err != nil {
			return err
		}
	}
	_, err = run(ctx, about, append(clone, "-o", "update", "-n", "iface.initiatorname", "-v", s.Initiator)...)
	return err
}

// poll waits for a condition of the kernel, which reports no changes of it.
func poll(ctx context.Context, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	for ticks := time.NewTicker(diskInterval); ; {
		if is() {
			ticks.Stop()
			return nil
		}
		select {
		case <-ctx.Done():
			ticks.Stop()
			return ctx.Err()
		case <-ticks.C:
		}
	}
}
