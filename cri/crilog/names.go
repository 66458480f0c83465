package crilog

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A log N.log that was rotated away is N.log.<time>, and N.log.<time>.gz once it is compressed. That is what the kubelet
// calls them, so that either can go on where the other ended.
const (
	stampLayout = "20060102-150405"
	compressed  = ".gz"
	unfinished  = ".tmp"
)

// File is one file of a log that was rotated away.
type File struct {
	Name       string
	Compressed bool
	stamp      string
}

// Rotated picks the rotated files of the log base from the names of its folder, oldest first. Of one that is there both
// ways, compressing was done but not tidied up: the compressed one is given.
func Rotated(names []string, base string) []File {
	var out []File
	for _, name := range names {
		if f, ok := parseName(name, base); ok {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b File) int { // of one stamp the compressed one, whose name is longer, comes first
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

// Leftovers are what a crash left of compressing: unfinished files, and the originals of finished ones. Nothing is lost
// with them.
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

// Plan is what one rotation does.
type Plan struct {
	Remove   []string // files there are too many of, oldest first
	To       string   // the name that the log gets
	Compress []string // once the runtime writes to a new file
}

// PlanRotation plans the rotation of the log base, so that with the new one no more than maxFiles (at least 2) are left.
// The newest of those that were rotated before is compressed only now: nobody writes to it any more. Names rise even
// where the clock was set back.
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
