package client

import (
	"io"
	"strings"
	"unicode/utf8"
)

const (
	tableGap = 3 // spaces between columns
	noCell   = "<none>"
)

// table prints rows in columns. Widths are remembered and only grow, so that the rows of a watch stay under their
// headings for as long as they can.
type table struct {
	out     io.Writer
	heading []string
	widths  []int
	begun   bool
}

// print writes the rows, and the heading before the first.
func (t *table) print(rows [][]string) error {
	if !t.begun {
		rows = append([][]string{t.heading}, rows...)
		t.begun = true
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
	_, err := io.WriteString(t.out, text.String())
	return err
}
