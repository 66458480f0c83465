package cli

import (
	"io"
	"strings"
	"unicode/utf8"
)

// NoCell stands for a value that there is not.
const NoCell = "<none>"

const tableGap = 3 // spaces between columns

// Table prints rows in columns. Widths are remembered and only grow, so that the rows of a watch stay under their
// headings for as long as they can.
type Table struct {
	Out     io.Writer
	Heading []string
	Begun   bool // the heading was printed, or is to be left out
	widths  []int
}

// Print writes the rows, and the heading before the first.
func (t *Table) Print(rows [][]string) error {
	if !t.Begun {
		rows = append([][]string{t.Heading}, rows...)
		t.Begun = true
	}
	for _, row := range rows {
		for i, cell := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			text.WriteString(cell)
			if i < len(row)-1 { // nothing after the last: no spaces at the end of lines
				text.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+tableGap))
			}
		}
		text.WriteByte('\n')
	}
	_, err := io.WriteString(t.Out, text.String())
	return err
}

// OrNone is a cell's text, where there is one.
func OrNone(s string) string {
	if s == "" {
		return NoCell
	}
	return s
}
