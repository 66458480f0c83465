package userns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
)

// Account is the user with the subordinate IDs for pods, as for a kubelet.
const Account = "kubelet"

// The files in which the administrator sets IDs aside (subuid(5)).
const files = "/etc/subuid and /etc/subgid"

// lookupTimeout limits how long getsubids may take, which may ask a server (nsswitch.conf(5)).
const lookupTimeout = 10 * time.Second

// Bounds returns the IDs for pods: those of user kubelet in /etc/subuid and /etc/subgid, or all from the second
// range on if there is no such user, or no program getsubids. The first ID and the number are multiples of idsPerPod, as for a
// kubelet, which can take the node back.
func Bounds(ctx context.Context, idsPerPod uint32) (Range, error) {
	if _, err := user.Lookup(Account); err != nil {
		if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
			return rest(idsPerPod), nil
		}
		return Range{}, err
	}
	program, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) {
		return rest(idsPerPod), nil
	}
	if err != nil {
		return Range{}, err
	}
	users, err := subIDs(ctx, program, Account)
	if err != nil {
		return Range{}, err
	}
	groups, err := subIDs(ctx, program, "-g", Account)
	if err != nil {
		return Range{}, err
	}
	return boundsOf(users, groups, idsPerPod)
}

// rest returns all IDs except the first range, which is the host's own, and the last one: it has the ID 2^32-1,
// which is none (user_namespaces(7)), and the kernel refuses to map it (kubernetes/kubernetes#141345).
func rest(idsPerPod uint32) Range {
	return Range{First: idsPerPod, Length: uint32(max(1<<32-2*int64(idsPerPod), 0))} //nolint:gosec // less than 2^32
}

func subIDs(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "", fmt.Errorf("getsubids %s: %w: add a line %s:<first ID>:<number of IDs> to %s, or remove the user %s",
			strings.Join(args, " "), err, Account, files, Account)
	}
	return string(out), nil
}

// boundsOf returns the bounds in the output of getsubids for users and for groups.
func boundsOf(users, groups string, idsPerPod uint32) (Range, error) {
	if users != groups {
		return Range{}, fmt.Errorf("%s have different ranges for user %s (%s, %s): make them the same", files, Account,
			strings.TrimSpace(users), strings.TrimSpace(groups))
	}
	// One line, as "0: kubelet 65536 7208960".
	words := strings.Fields(users)
	if len(words) != 4 || words[0] != "0:" {
		return Range{}, fmt.Errorf("%s have no single range for user %s (getsubids: %q): leave one line", files, Account, users)
	}
	first, err := strconv.ParseUint(words[2], 10, 32)
	number, err2 := strconv.ParseUint(words[3], 10, 32)
	if err = errors.Join(err, err2); err != nil {
		return Range{}, fmt.Errorf("%s, user %s: %w", files, Account, err)
	}
	bounds := Range{uint32(first), uint32(number)}
	if bounds.end() == 1<<32 && bounds.Length >= idsPerPod { // a kubelet takes it; its last pod could not start (see rest)
		bounds.Length -= idsPerPod
	}
	switch {
	case bounds.First < idsPerPod || bounds.First%idsPerPod != 0:
		return Range{}, fmt.Errorf("the range of user %s in %s begins at %d: it must begin at a multiple of %d, and not at 0",
			Account, files, bounds.First, idsPerPod)
	case bounds.Length == 0 || bounds.Length%idsPerPod != 0:
		return Range{}, fmt.Errorf("the range of user %s in %s has %d IDs: it must have a multiple of %d", Account, files,
			bounds.Length, idsPerPod)
	case bounds.end() > 1<<32:
		return Range{}, fmt.Errorf("the range of user %s in %s ends above ID 4294967295", Account, files)
	}
	return bounds, nil
}

// Pods returns the number of pods that have room within the bounds.
func (r Range) Pods(idsPerPod uint32) int { return int(r.Length / idsPerPod) }

// Kernel returns the reason why the kernel makes no user namespaces, from the proc file system mounted at proc, or nil.
func Kernel(proc string) error {
	data, err := atomicfile.ReadFile(filepath.Join(proc, "sys/user/max_user_namespaces"), 64)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("this kernel has no user namespaces: use one that was built with CONFIG_USER_NS")
	case err != nil:
		return err
	case strings.TrimSpace(string(data)) == "0":
		return errors.New("this kernel makes no user namespaces, by user.max_user_namespaces: " +
			"sysctl -w user.max_user_namespaces=65536")
	}
	return nil
}
