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

// Tree is the kubelet's tree of groups: kubepods, the QoS classes, pods. Immutable; safe for concurrent use on different pods.
type Tree struct {
	Groups   Groups
	Root     Name // [cgroupRoot]
	Settings Settings
	// Systemd asks which driver counts now: the runtime's, once it has said.
	Systemd func() bool
	// Capacity asks what the machine has.
	Capacity func() (Capacity, error)
	// Pause is what lies between two looks whether killed processes have gone; 0: 50 ms.
	Pause time.Duration
}

// classes are the QoS classes in the order in which their groups are made.
var classes = []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort}

// ApplyNode makes kubepods and the groups of the QoS classes and gives them their values. pods are those that count.
func (t Tree) ApplyNode(pods []*v1.Pod) error {
	systemd := t.Systemd()
	if err := t.checkRoot(systemd); err != nil {
		return err
	}
	capacity, err := t.Capacity()
	if err != nil {
		return err
	}
	if err := t.apply(t.Root.Child(kubepods), systemd, NodeValues(pods, capacity, t.Settings)); err != nil {
		return err
	}
	for _, class := range classes {
		name, v := ClassName(t.Root, class), ClassValues(class, pods, capacity, t.Settings)
		if v.Memory > 0 { // a class that uses more grows no further, and no process ends for it
			used, err := t.Groups.Uses(name, systemd)
			if err != nil {
				return fmt.Errorf("cgroup %s: %w", name.Cgroupfs(), err)
			}
			v.Memory = max(v.Memory, used)
		}
		if err := t.apply(name, systemd, v); err != nil {
			return err
		}
	}
	return nil
}

// Reserve gives the groups on which reservations are enforced their values. They are others' groups: as by the kubelet, it is
// done when the agent starts, and what is changed of them later stays.
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

// CheckGroups names the groups that have to be there and are not by either driver's reading of their names: cgroupRoot, and
// those on which a reservation is to be enforced. The runtime may not have said which driver counts, and a host may have one
// alone.
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

// checkRoot refuses a cgroupRoot that is not there, as the kubelet does: a name that was mistyped would be made.
func (t Tree) checkRoot(systemd bool) error {
	there, err := t.exists(t.Root, systemd)
	if err == nil && !there {
		err = fmt.Errorf("cgroupRoot %s does not exist; it has to be made before the agent starts", t.Root.Cgroupfs())
	}
	return err
}

// exists says whether there is a group, in any hierarchy.
func (t Tree) exists(name Name, systemd bool) (bool, error) {
	if len(name) == 0 {
		return true, nil
	}
	names, err := t.Groups.Children(name[:len(name)-1], systemd)
	return slices.Contains(names, name.base(systemd)), err
}

// EnsurePod makes the pod's group, where it is not there, and gives it its values. It returns the group as the runtime takes
// it for a parent. No group gets a limit of memory below what is used in it.
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

// Pods lists the pods that have a group. With systemd, dashes of their UIDs are underscores; SameUID compares.
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

// Key is a pod's UID as Pods lists it with any driver.
func Key(uid string) string { return escape(uid) }

// RemovePod kills what still runs in the pod's group, and removes it, of whatever class the pod was.
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

// rounds is how often processes are looked for and killed: one that forks may need several.
const rounds = 20

// remove ends the processes in a group and removes it. What ends is still there for a moment.
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
