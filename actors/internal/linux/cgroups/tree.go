package cgroups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri/translate"
)

// Tree is the kubelet's tree of groups: kubepods, the QoS classes, pods. It is immutable, and safe for concurrent use on
// different pods.
type Tree struct {
	Groups   Groups
	Root     Name // [cgroupRoot]
	Settings Settings
	// Systemd reports whether the systemd driver is in use. The runtime's driver applies once the runtime has reported it.
	Systemd func() bool
	// Capacity returns the capacity of the machine.
	Capacity func() (Capacity, error)
	// Pause is the interval between checks for the end of killed processes; 0 means 50 ms.
	Pause time.Duration
}

// classes are the QoS classes that have a group, in the order of creation.
var classes = []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort}

// ApplyNode creates kubepods and the groups of the QoS classes, and sets their values from the requests of pods.
func (t Tree) ApplyNode(pods []*v1.Pod) error {
	systemd := t.Systemd()
	if err := t.checkRoot(systemd); err != nil {
		return err
	}
	capacity, err := t.Capacity()
	if err != nil {
		return err
	}
	if err := t.applyShared(t.Root.Child(kubepods), systemd, NodeValues(pods, capacity, t.Settings)); err != nil {
		return err
	}
	for _, class := range classes {
		if err := t.applyShared(ClassName(t.Root, class), systemd, ClassValues(class, pods, capacity, t.Settings)); err != nil {
			return err
		}
	}
	return nil
}

// applyShared sets the values of a group of many pods. Its memory limit is never below its usage: after larger reservations, or
// a loss of memory of the machine, the group cannot grow, but no process is killed. Eviction frees memory in an order.
func (t Tree) applyShared(name Name, systemd bool, v Values) error {
	if v.Memory > 0 {
		used, err := t.Groups.Uses(name, systemd)
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", name.Cgroupfs(), err)
		}
		v.Memory = max(v.Memory, used)
	}
	return t.apply(name, systemd, v)
}

// Reserve sets the values of the groups that enforce reservations. The agent does not own these groups: as in the kubelet, the
// values are set when the agent starts, and later changes by others are kept.
func (t Tree) Reserve() error {
	var errs []error
	for _, r := range t.Settings.Reservations {
		errs = append(errs, t.reserve(r, t.Systemd()))
	}
	return errors.Join(errs...)
}

// reserve enforces a reservation on its group.
func (t Tree) reserve(r Reservation, systemd bool) error {
	name := parseGroup(r.Group, systemd)
	there, err := t.exists(name, systemd)
	if err == nil && !there {
		err = errMissing
	}
	if err == nil {
		err = t.Groups.Set(name, systemd, r.Values(t.Settings))
	}
	if err != nil {
		return r.failed(err)
	}
	return nil
}

var errMissing = errors.New("it does not exist; it has to be made before the agent starts")

func (r Reservation) failed(err error) error {
	return fmt.Errorf("%s, cgroup %s: %w", r.Setting, r.Group, err)
}

// CheckGroups returns an error for each missing group among cgroupRoot and the groups that enforce reservations. A group may
// exist in the spelling of either driver: the runtime may not have reported its driver yet, and a host may have only one of the
// two groups.
func (t Tree) CheckGroups() error {
	var errs []error
	if err := t.checkRoot(false); err != nil {
		if slice, _ := t.exists(t.Root, true); !slice {
			errs = append(errs, err)
		}
	}
	for _, r := range t.Settings.Reservations {
		plain, err := t.exists(parseGroup(r.Group, false), false)
		if plain {
			continue
		}
		if slice, _ := t.exists(parseGroup(r.Group, true), true); !slice {
			errs = append(errs, r.failed(cmp.Or(err, errMissing)))
		}
	}
	return errors.Join(errs...)
}

// checkRoot returns an error if cgroupRoot does not exist, as in the kubelet. Otherwise a mistyped name would create a group.
func (t Tree) checkRoot(systemd bool) error {
	there, err := t.exists(t.Root, systemd)
	if err == nil && !there {
		err = fmt.Errorf("cgroupRoot %s does not exist; it has to be made before the agent starts", t.Root.Cgroupfs())
	}
	return err
}

// exists reports whether a group exists in any hierarchy.
func (t Tree) exists(name Name, systemd bool) (bool, error) {
	if len(name) == 0 {
		return true, nil
	}
	names, err := t.Groups.Children(name[:len(name)-1], systemd)
	return slices.Contains(names, name.base(systemd)), err
}

// EnsurePod creates the pod's group if it is missing, and sets its values. It returns the group in the runtime's spelling of a
// cgroup parent. A memory limit below the current usage is an error.
func (t Tree) EnsurePod(pod *v1.Pod) (parent string, err error) {
	systemd := t.Systemd()
	name := PodName(t.Root, translate.QOSClass(pod), string(pod.UID))
	v := PodValues(pod, t.Settings)
	if v.Memory > 0 {
		used, err := t.Groups.Uses(name, systemd)
		if err == nil && used > v.Memory {
			err = fmt.Errorf("memory limit (%d) below current usage (%d), in bytes", v.Memory, used)
		}
		if err != nil {
			return "", fmt.Errorf("cgroup %s: %w", name.Cgroupfs(), err)
		}
	}
	if err := t.apply(name, systemd, v); err != nil {
		return "", err
	}
	return name.Path(systemd), nil
}

func (t Tree) apply(name Name, systemd bool, v Values) error {
	if err := t.Groups.Apply(name, systemd, v); err != nil {
		return fmt.Errorf("cgroup %s: %w", name.Cgroupfs(), err)
	}
	return nil
}

// Pods returns the UIDs of the pods that have a group. With systemd, dashes of the UIDs are underscores; compare them with Key.
func (t Tree) Pods() ([]string, error) {
	systemd := t.Systemd()
	var uids []string
	for class := range Classes {
		name := ClassName(t.Root, class)
		names, err := t.Groups.Children(name, systemd)
		if err != nil {
			return nil, err
		}
		for _, literal := range names {
			if uid, ok := podIn(name, literal, systemd); ok && uid != "" {
				uids = append(uids, uid)
			}
		}
	}
	return uids, nil
}

// Idle reports whether no pod has a group, in the spelling of either driver, so that no container runs: e.g. after a boot, before
// the runtime has reported its driver. An unreadable group is not idle.
func (t Tree) Idle() bool {
	for _, systemd := range []bool{false, true} {
		for class := range Classes {
			name := ClassName(t.Root, class)
			names, err := t.Groups.Children(ParseName(name.Path(systemd)), false)
			if err != nil || slices.ContainsFunc(names, func(literal string) bool {
				_, is := podIn(name, literal, systemd)
				return is
			}) {
				return false
			}
		}
	}
	return true
}

// Key returns a form of a pod's UID for comparisons. It is the same for the UID and for its spelling in Pods, with either
// driver.
func Key(uid string) string { return escape(uid) }

// RemovePod kills the remaining processes in the pod's group and removes the group, in every QoS class.
func (t Tree) RemovePod(ctx context.Context, uid string) error {
	systemd := t.Systemd()
	var errs []error
	for class := range Classes {
		name := PodName(t.Root, class, uid)
		there, err := t.exists(name, systemd)
		if err == nil && there {
			err = t.remove(ctx, name, systemd)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// rounds limits the attempts to find and kill processes. A process that forks may need several.
const rounds = 20

// remove kills the processes in a group, waits for their end, and removes the group.
func (t Tree) remove(ctx context.Context, name Name, systemd bool) error {
	for round := 0; ; round++ {
		found, err := t.Groups.Kill(name, systemd)
		if err != nil {
			return fmt.Errorf("ending the processes in cgroup %s: %w", name.Cgroupfs(), err)
		}
		if len(found) == 0 {
			break
		}
		if round == rounds {
			return fmt.Errorf("cgroup %s: the processes %v do not end", path.Base(name.Cgroupfs()), found)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(cmp.Or(t.Pause, 50*time.Millisecond)):
		}
	}
	if err := t.Groups.Remove(name, systemd); err != nil {
		return fmt.Errorf("cgroup %s: %w", name.Cgroupfs(), err)
	}
	return nil
}
