package cgroupstats

import (
	"time"

	"github.com/google/cadvisor/lib/container/common"
	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/model"
	"golang.org/x/sys/unix"
)

// knownSpec holds the limits of a cgroup as of a time.
type knownSpec struct {
	at    time.Time
	inode uint64 // of its folder: another cgroup with the same name has a different one
	spec  model.ContainerSpec
}

// specAge is the maximum age of limits. They are a third of a cgroup's files, and rarely change.
const specAge = time.Minute

// spec returns the limits of a cgroup. Its controllers and its creation time do not change.
func (r *Reader) spec(g cgroupAt) (model.ContainerSpec, error) {
	now := r.Now()
	var folder unix.Stat_t
	if err := unix.Fstat(g.dirs[controllerOf(g.dirs)], &folder); err != nil {
		return model.ContainerSpec{}, err
	}
	k, known := r.specs[g.name]
	known = known && k.inode == folder.Ino
	if known && now.Sub(k.at) < specAge {
		return k.spec, nil
	}
	k.at, k.inode = now, folder.Ino
	var err error
	if known && g.name != "/" {
		limits := limitsV1
		if _, unified := r.Mounts[""]; unified {
			limits = limitsV2
		}
		err = readFiles(&r.kernel, limits, g.dirs, &k.spec)
	} else {
		k.spec, err = common.GetSpec(g.paths(), r, false, g.name == "/")
	}
	if err != nil {
		return k.spec, err
	}
	if g.name == "/" {
		nodeSpec(&k.spec)
	}
	if r.specs == nil {
		r.specs = map[string]knownSpec{}
	}
	r.specs[g.name] = k
	return k.spec, nil
}

// nodeSpec sets the root's limits to the machine's: it has no files for them.
func nodeSpec(spec *model.ContainerSpec) {
	if total, err := machine.GetMachineMemoryCapacity(); err == nil {
		spec.HasMemory, spec.Memory.Limit = true, total
	}
	if total, err := machine.GetMachineSwapCapacity(); err == nil {
		spec.Memory.SwapLimit = total
	}
}
