package cgroupstats

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cadvisor/lib/container/common"
)

// Whose a cgroup is follows from where it lies, and from its name.

const podPrefix = "pod" // of the cgroups of pods

// walk calls class for the cgroup of all pods and those of the QoS classes, and pod for each pod's.
func (r *Reader) walk(name string, depth int, class func(name string), pod func(uid, name string)) {
	class(name)
	for _, literal := range r.children(name) {
		base, child := strings.TrimSuffix(literal, ".slice"), path.Join(name, literal)
		if depth == 0 && (strings.HasSuffix(base, "burstable") || strings.HasSuffix(base, "besteffort")) {
			r.walk(child, 1, class, pod)
			continue
		}
		if at := strings.LastIndex(base, podPrefix); at >= 0 && (at == 0 || base[at-1] == '-') {
			uid := base[at+len(podPrefix):]
			if base != literal { // systemd.slice(5) takes dashes as separators
				uid = strings.ReplaceAll(uid, "_", "-")
			}
			pod(uid, child)
		}
	}
}

// children are the names of the cgroups directly within, sorted.
func (r *Reader) children(name string) []string {
	entries, err := os.ReadDir(path.Join(dirOf(r.Mounts), name))
	if err != nil {
		return nil // it is gone, or its reading says why not
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

var idPattern = regexp.MustCompile(`^(?:[a-z-]+-)?([0-9a-f]{32,64})(?:\.scope)?$`)

// containerID is the ID in the name that a runtime gave a container's cgroup: "<id>", "cri-containerd-<id>.scope",
// "crio-<id>.scope". Others have none.
func containerID(literal string) string {
	if m := idPattern.FindStringSubmatch(literal); m != nil {
		return m[1]
	}
	return ""
}

// sandbox is the cgroup of a pod's sandbox among those in the pod's: the one that is of no known container. Where there are
// several, it is the one with the eldest process: a container that the board does not know yet is younger.
func (r *Reader) sandbox(pod string, literals []string, known map[string]bool) string {
	unknown := slices.DeleteFunc(slices.Clone(literals), func(literal string) bool {
		id := containerID(literal)
		return id == "" || known[id]
	})
	if len(unknown) == 0 {
		return ""
	}
	if len(unknown) == 1 {
		return unknown[0]
	}
	return slices.MinFunc(unknown, func(a, b string) int { return cmp.Compare(r.started(pod, a), r.started(pod, b)) })
}

// started is when the first process of a cgroup began, in ticks since the machine's start; the largest number where there is
// none.
func (r *Reader) started(pod, literal string) uint64 {
	pid := firstProcess(common.MakeCgroupPaths(r.Mounts, path.Join(pod, literal)))
	text, err := os.ReadFile(path.Join(r.Root, "proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return math.MaxUint64
	}
	// The name, in parentheses, may have spaces. It is the second field, and the time the twenty-second; proc_pid_stat(5).
	rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(rest) < 20 {
		return math.MaxUint64
	}
	ticks, err := strconv.ParseUint(rest[19], 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return ticks
}

// firstProcess is a process in the cgroup; 0: there is none.
func firstProcess(paths map[string]string) int {
	text, err := os.ReadFile(path.Join(dirOf(paths), "cgroup.procs"))
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err := strconv.Atoi(string(line))
	if err != nil {
		return 0
	}
	return pid
}

// dirOf is a folder of a cgroup that every one has.
func dirOf(paths map[string]string) string { return paths[controllerOf(paths)] }

// controllerOf is a controller that every cgroup has.
func controllerOf[T any](of map[string]T) string {
	for _, controller := range []string{"", "memory"} {
		if _, ok := of[controller]; ok {
			return controller
		}
	}
	return slices.Min(slices.Collect(maps.Keys(of)))
}
