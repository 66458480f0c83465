package screen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/playlet-dev/playlet/cmd/playlet/cli"
)

// Style is how a line stands out.
type Style string

// The styles, as parameters of the terminal's "select graphic rendition" (ECMA-48, section 8.3.117).
const (
	Plain   Style = ""
	Bold    Style = "1"
	Faint   Style = "2"
	Reverse Style = "7"
	Red     Style = "31"
	Yellow  Style = "33"
	Green   Style = "32"
)

// Line is one line of a frame.
type Line struct {
	Text  string
	Style Style
}

const (
	listFrame = 3 // lines around the rows of a list: the lists' names, headings, and the last line
	textFrame = 2 // around a text: its title and the last line
	columnGap = 2
)

// body is how many rows of the list there is room for.
func (s State) body() int { return s.height - len(s.header()) - listFrame }

// header is the content's, as far as there is room for it and three rows.
func (s State) header() []string {
	return s.content.Header[:max(min(len(s.content.Header), s.height-listFrame-3), 0)]
}

// Frame returns the lines of the screen: as many as its height, none longer than its width.
func (s State) Frame() []Line {
	var out []Line
	if s.text.of.Verb != None {
		out = s.textFrame()
	} else {
		out = s.listFrame()
	}
	out = append(out, make([]Line, s.height)...)[:s.height-1]
	out = append(out, s.last())
	for i := range out {
		out[i].Text = cut(out[i].Text, 0, s.width)
	}
	return out
}

func (s State) textFrame() []Line {
	out := []Line{{s.text.title, Bold}}
	for _, line := range s.text.lines[s.text.scroll:] {
		out = append(out, Line{Text: cut(line, s.shift, s.width)})
	}
	return out
}

func (s State) listFrame() []Line {
	var out []Line
	for _, line := range s.header() {
		out = append(out, Line{Text: line})
	}
	p, list, rows := s.place(), s.now(), s.rows()
	var names []string
	for i, l := range s.content.Lists {
		name := fmt.Sprintf(" %s (%d) ", l.Name, len(l.Rows))
		if i == s.list {
			name = fmt.Sprintf("[%s (%d)]", l.Name, len(rows))
		}
		names = append(names, name)
	}
	tabs := strings.Join(names, " ")
	if p.order < len(list.Orders) {
		tabs += "   by " + list.Orders[p.order]
	}
	if p.filter != "" && !s.typing {
		tabs += fmt.Sprintf("   only %q", p.filter)
	}
	out = append(out, Line{tabs, Bold})
	cells := [][]string{list.Headings}
	for _, r := range rows {
		line := slices.Clone(r.Cells)
		if r.Branch != "" && p.order == 0 && p.filter == "" {
			line[0] = r.Branch
		}
		cells = append(cells, line)
	}
	cells = fit(cells, list.Spare, s.width)
	widths := cli.Widths(nil, cells)
	out = append(out, Line{cut(cli.Line(cells[0], widths, columnGap), s.shift, s.width), Faint})
	for i := p.first; i < min(p.first+max(s.body(), 1), len(rows)); i++ {
		style := rows[i].Style
		if i == p.row {
			style = Reverse
		}
		out = append(out, Line{cut(cli.Line(cells[i+1], widths, columnGap), s.shift, s.width), style})
	}
	return out
}

// fit leaves out spare columns, one after another, until the longest line fits the width.
func fit(cells [][]string, spare []int, width int) [][]string {
	kept := make([]int, len(cells[0]))
	for i := range kept {
		kept[i] = i
	}
	for {
		out := make([][]string, len(cells))
		for i, line := range cells {
			for _, k := range kept {
				out[i] = append(out[i], line[k])
			}
		}
		whole := -columnGap
		for _, w := range cli.Widths(nil, out) {
			whole += w + columnGap
		}
		if whole <= width || len(spare) == 0 {
			return out
		}
		kept, spare = slices.DeleteFunc(kept, func(k int) bool { return k == spare[0] }), spare[1:]
	}
}

// last returns the last line: a question, the input so far, a note, or the keys.
func (s State) last() Line {
	switch {
	case s.question != "":
		return Line{s.question + " (y/n)", Bold}
	case s.typing:
		return Line{"/" + s.place().filter + "_", Bold}
	case s.note != "":
		return Line{s.note, Bold}
	case s.text.of.Verb == Help:
		return Line{"Esc back  Ctrl-C quit", Faint}
	}
	logs := ""
	if s.now().Logs {
		logs = "  l logs  d describe"
	}
	if s.text.of.Verb != None {
		return Line{"Esc back  j/k scroll  ←/→ shift" + logs + "  t trace  Ctrl-C quit", Faint}
	}
	next := s.content.Lists[(s.list+1)%len(s.content.Lists)].Name
	return Line{"? keys  Tab " + next + "  Enter " + s.now().Open + logs + "  t trace  s sort  / filter  q quit", Faint}
}

// cut leaves so many columns of a line, from one on. Where something is left out at the end, it ends with an ellipsis.
func cut(line string, from, width int) string {
	runes := []rune(line)
	runes = runes[min(from, len(runes)):]
	if len(runes) > width {
		runes = append(runes[:width-1:width-1], '…')
	}
	return string(runes)
}

// Draw returns the output that makes a terminal show the lines. Each line overwrites the previous one in place, which avoids
// flicker.
func Draw(lines []Line) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if l.Style != Plain {
			b.WriteString("\x1b[" + string(l.Style) + "m")
		}
		b.WriteString(l.Text)
		if l.Style != Plain {
			b.WriteString("\x1b[0m")
		}
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// Begin and Leave are sent to a terminal before the first frame and after the last. Leave restores the previous contents.
const (
	Begin = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	Leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)
