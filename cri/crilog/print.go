package crilog

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// maxLine limits the buffer for an incomplete line, in bytes. Runtimes split far shorter lines.
const maxLine = 4 << 20

// errEnough is returned when the limit of bytes is reached.
var errEnough = errors.New("enough")

// stampFormat is the format of kubectl's times in front of lines.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// printer prints the lines that the container wrote, in batches.
type printer struct {
	o       Options
	out     io.Writer
	left    int64 // bytes that may still be printed; negative means no limit
	in      []byte
	used    int // bytes of in
	text    []byte
	partial bool // the last printed line is incomplete
	seen    int64
	failed  error
}

func newPrinter(o Options, out io.Writer) *printer {
	p := &printer{o: o, out: out, left: -1}
	if o.LimitBytes != nil {
		p.left = *o.LimitBytes
	}
	return p
}

// space returns the buffer for the next bytes of the log.
func (p *printer) space() []byte {
	if len(p.in)-p.used < block {
		p.in = append(p.in, make([]byte, block)...)
	}
	return p.in[p.used:]
}

// add takes n bytes from space and prints the lines that they complete, except the first skip ones.
func (p *printer) add(n int, skip int64) int64 {
	p.seen += int64(n)
	p.used += n
	rest := p.in[:p.used]
	for p.failed == nil {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		if skip > 0 {
			skip--
		} else {
			p.line(rest[:end+1])
		}
		rest = rest[end+1:]
	}
	if len(rest) > maxLine {
		rest = nil // no runtime writes such a line
	}
	p.used = copy(p.in, rest)
	p.flush()
	return skip
}

// line appends the content of a line to the text. It skips lines that are not in the CRI's format.
func (p *printer) line(raw []byte) {
	l, ok := ParseLine(raw)
	if !ok || l.At.Before(p.o.Since) || p.o.Stream != "" && l.Stderr != (p.o.Stream == "stderr") {
		return
	}
	if p.o.Timestamps && !p.partial {
		p.text = append(l.At.AppendFormat(p.text, stampFormat), ' ')
	}
	p.partial = l.Partial
	p.text = append(p.text, l.Text...)
}

func (p *printer) flush() {
	text := p.text
	p.text = p.text[:0]
	if p.left >= 0 && int64(len(text)) >= p.left {
		text, p.failed = text[:p.left], errEnough
	}
	if len(text) == 0 {
		return
	}
	if p.left > 0 {
		p.left -= int64(len(text))
	}
	if _, err := p.out.Write(text); err != nil {
		p.failed = err
	}
}

// end prints an unterminated last line.
func (p *printer) end() error {
	if p.used > 0 && p.failed == nil {
		p.line(p.in[:p.used])
		p.used = 0
		p.flush()
	}
	return p.failed
}

// Line is one line of a log in the CRI's format: "<RFC 3339 time> stdout|stderr <tags> <text>". The tag P means that the text
// continues in the stream's next line.
type Line struct {
	At      time.Time
	Stderr  bool
	Partial bool
	Text    []byte // with the line end unless the line is partial or the log ends here; shares memory with the input
}

// ParseLine parses a line with its line end. It returns false if the line is not in the format.
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
