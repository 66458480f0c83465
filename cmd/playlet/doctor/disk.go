package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// checkDisk compares the room there is with the thresholds at which pods are evicted.
func checkDisk(ctx context.Context, m *Machine) []Finding {
	type place struct{ what, path, signal string }
	places := []place{
		{"pods", m.Node.RootDir, "nodefs"},
		{"logs", m.Node.Kubelet.PodLogsDir, "nodefs"},
	}
	if facts, err := m.askRuntime(ctx); err == nil {
		for _, at := range facts.images {
			if !slices.ContainsFunc(places, func(p place) bool { return p.path == at }) {
				places = append(places, place{"images", at, "imagefs"})
			}
		}
	}
	var found []Finding
	var good []string
	for _, p := range places {
		disk, err := m.System.Disk(existing(p.path))
		if err != nil {
			found = append(found, warn("see that it can be read", "%s: %v", p.what, err)...)
			continue
		}
		low := m.short(p.signal+".available", p.what+" in "+p.path, disk.Free, disk.Size, bytesText)
		if disk.Inodes > 0 {
			low = append(low, m.short(p.signal+".inodesFree", p.what+" in "+p.path, disk.InodesFree, disk.Inodes, inodesText)...)
		}
		found = append(found, low...)
		if len(low) == 0 {
			good = append(good, fmt.Sprintf("%s %s (%d%%)", p.what, bytesText(disk.Free), percent(disk.Free, disk.Size)))
		}
	}
	if len(good) > 0 {
		found = append(found, ok("free for %s", strings.Join(good, ", "))...)
	}
	return found
}

// nearly is how close to a threshold is worth saying: this much of the whole above it, in percent.
const nearly = 5

// short is what to say where less is free than a hard eviction threshold, or hardly more.
func (m *Machine) short(signal, what string, free, size uint64, text func(uint64) string) []Finding {
	limit, set := threshold(m.Node.Kubelet.EvictionHard[signal], size)
	if !set {
		return nil
	}
	seen := fmt.Sprintf("%s: %s (%d%%) free, and %s has pods evicted below %s", what, text(free), percent(free, size), signal,
		text(limit))
	switch {
	case free < limit:
		return fail("free some, or set evictionHard lower", "%s", seen)
	case free < limit+size/100*nearly:
		return warn("free some before it comes to that", "%s", seen)
	}
	return nil
}

// threshold reads one of evictionHard: a quantity, or a part of the whole; 0% and 100% turn it off.
func threshold(text string, whole uint64) (limit uint64, set bool) {
	if part, isPart := strings.CutSuffix(text, "%"); isPart {
		f, err := strconv.ParseFloat(part, 64)
		if err != nil || f <= 0 || f >= 100 {
			return 0, false
		}
		return uint64(float64(whole) * f / 100), true
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return 0, false
	}
	return uint64(q.Value()), true //nolint:gosec // positive
}

func percent(part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	return uint64(float64(part) / float64(whole) * 100)
}

// bytesText is a size for people.
func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

func inodesText(n uint64) string { return fmt.Sprintf("%d inodes", n) }
