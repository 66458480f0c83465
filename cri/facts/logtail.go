package facts

import (
	"bytes"

	"github.com/playlet-dev/playlet/cri/crilog"
)

// logTail is what an application wrote in the last lines of a CRI log, at most limit bytes of it. data is the end of
// the log, or all of it when whole is true. Lines that are not in the CRI's format ("<RFC 3339 time> stdout|stderr
// <tags> <content>", tag P for a line that goes on in the next) are skipped.
func logTail(data []byte, whole bool, lines, limit int) []byte {
	if !whole {
		_, rest, found := bytes.Cut(data, []byte{'\n'})
		if !found {
			return last(data, limit) // one line longer than all that was read: its end is content
		}
		data = rest
	}
	var out []byte
	for _, line := range lastLines(data, lines) {
		if l, ok := crilog.ParseLine(line); ok {
			out = append(out, l.Text...)
		}
	}
	return last(out, limit)
}

// lastLines is the last n lines with their line ends. A last line that has none is not counted.
func lastLines(data []byte, n int) [][]byte {
	all := bytes.SplitAfter(data, []byte{'\n'})
	if len(all[len(all)-1]) == 0 {
		all = all[:len(all)-1]
	} else {
		n++
	}
	return all[max(len(all)-n, 0):]
}

func last(b []byte, n int) []byte { return b[max(len(b)-n, 0):] }
