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

// The owner of a cgroup follows from its place and its name.

const podPrefix = "pod" // of the cgroups of pods

// walk calls class for the cgroups of all pods and of the QoS classes, and pod for each pod's.
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
			if base != literal { // systemd.slice(5) uses dashes as separators
				uid = strings.ReplaceAll(uid, "_", "-")
			}
			pod(uid, child)
		}
	}
}

// children returns the names of the direct children, sorted.
func (r *Reader) children(name string) []string {
	entries, err := os.ReadDir(path.Join(dirOf(r.Mounts), name))
	if err != nil {
		return nil // removed, or its own reading reports the error
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

// containerID returns the ID in a runtime's name for a container's cgroup: "<id>", "cri-containerd-<id>.scope",
// "crio-<id>.scope". For other names it returns "".
func containerID(literal string) string {
	if m := idPattern.FindStringSubmatch(literal); m != nil {
		return m[1]
	}
	return ""
}

// sandbox returns the cgroup of a pod's sandbox: the child of the pod's cgroup without a known container. If there are several,
// it is the one with the eldest process: a container not on the board yet is younger.
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

// started returns the start time of the first process of a cgroup, in ticks since the machine's start, or the largest number if
// there is none.
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

// firstProcess returns a process in the cgroup, or 0.
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

// dirOf returns a folder that every cgroup has.
func dirOf(paths map[string]string) string { return paths[controllerOf(paths)] }

// controllerOf returns a controller that every cgroup has.
func controllerOf[T any](of map[string]T) string {
	for _, controller := range []string{"", "memory"} {
		if _, ok := of[controller]; ok {
			return controller
		}
	}
	return slices.Min(slices.Collect(maps.Keys(of)))
}
