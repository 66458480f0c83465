package crilog

import (
	"bytes"
	"time"
)

// Line is one line of a log in the CRI's format: "<RFC 3339 time> stdout|stderr <tags> <text>", of which the tag P says
// that the text goes on in the stream's next line.
type Line struct {
	At      time.Time
	Stderr  bool
	Partial bool
	Text    []byte // with the line's end unless it goes on, or the log ends here; shares what was parsed
}

// ParseLine reads a line with its end. False says that it is not in the format.
func ParseLine(line []byte) (Line, bool) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return Line{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return Line{}, false
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || string(stream) != "stdout" && string(stream) != "stderr" {
		return Line{}, false
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return Line{}, false
	}
	first, _, _ := bytes.Cut(tags, []byte{':'})
	l := Line{At: at, Stderr: string(stream) == "stderr", Partial: string(first) == "P", Text: text}
	if l.Partial {
		l.Text = bytes.TrimSuffix(text, []byte{'\n'})
	}
	return l, true
}
