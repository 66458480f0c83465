package crilog

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A rotated log N.log is N.log.<time>, and N.log.<time>.gz once it is compressed. These are the kubelet's names, so that either
// agent can continue the other's rotation.
const (
	stampLayout = "20060102-150405"
	compressed  = ".gz"
	unfinished  = ".tmp"
)

// File is a rotated file of a log.
type File struct {
	Name       string
	Compressed bool
	stamp      string
}

// Rotated returns the rotated files of the log base, oldest first, from the names of its folder. If a file exists both plain and
// compressed, a crash interrupted the cleanup after compression: Rotated returns the compressed one.
func Rotated(names []string, base string) []File {
	var out []File
	for _, name := range names {
		if f, ok := parseName(name, base); ok {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b File) int { // for equal stamps the compressed file, with the longer name, comes first
		return cmp.Or(strings.Compare(a.stamp, b.stamp), strings.Compare(b.Name, a.Name))
	})
	return slices.CompactFunc(out, func(a, b File) bool { return a.stamp == b.stamp })
}

func parseName(name, base string) (File, bool) {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok {
		return File{}, false
	}
	stamp, isCompressed := strings.CutSuffix(rest, compressed)
	at, err := time.ParseInLocation(stampLayout, stamp, time.UTC)
	if err != nil || at.Format(stampLayout) != stamp {
		return File{}, false
	}
	return File{name, isCompressed, stamp}, true
}

// Leftovers returns files that a crash left during compression: unfinished copies, and originals of finished copies. They can be
// removed without loss.
func Leftovers(names []string, base string) []string {
	var out []string
	for _, name := range names {
		whole, isUnfinished := strings.CutSuffix(name, unfinished)
		f, ok := parseName(whole, base)
		if ok && (isUnfinished || !f.Compressed && slices.Contains(names, name+compressed)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Plan lists the steps of one rotation.
type Plan struct {
	Remove   []string // surplus files, oldest first
	To       string   // the new name of the log
	Compress []string // to compress once the runtime writes to a new file
}

// PlanRotation plans the rotation of the log base, such that at most maxFiles (at least 2) remain, including the new one. Only
// files rotated earlier are compressed, since the runtime may still write to the newest. Names increase even if the clock was set
// back.
func PlanRotation(names []string, base string, now time.Time, maxFiles int) Plan {
	rotated := Rotated(names, base)
	p := Plan{To: base + "." + nextStamp(rotated, now)}
	excess := max(len(rotated)-max(maxFiles-2, 0), 0)
	for i, f := range rotated {
		switch {
		case i < excess:
			p.Remove = append(p.Remove, f.Name)
		case !f.Compressed:
			p.Compress = append(p.Compress, f.Name)
		}
	}
	return p
}

func nextStamp(rotated []File, now time.Time) string {
	stamp := now.Format(stampLayout)
	if n := len(rotated); n > 0 {
		last, _ := time.ParseInLocation(stampLayout, rotated[n-1].stamp, time.UTC) // Rotated has parsed it
		stamp = max(stamp, last.Add(time.Second).Format(stampLayout))
	}
	return stamp
}
