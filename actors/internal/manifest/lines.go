package manifest

import (
	"bytes"
	"unicode/utf8"
)

// lineAt returns the line of an offset, 1 for the first.
func lineAt(data []byte, offset int) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), len(data))], []byte("\n"))
}

// lastLine returns the last line of text that is not empty, 1 for the first.
func lastLine(text []byte) int { return lineAt(text, len(bytes.TrimRight(text, " \t\r\n"))) }

// firstLine returns the first line of text that is not empty, 1 for the first.
func firstLine(text []byte) int {
	return lineAt(text, len(text)-len(bytes.TrimLeft(text, " \t\r\n")))
}

// fromYAMLLine turns a line as the YAML parser counts them into one as editors do. YAML 1.1 has more ways to end a line
// than the line feed, and the parser may stop behind the last line.
func fromYAMLLine(text []byte, line int) int {
	offset := 0
	for ; line > 1 && offset < len(text); line-- {
		offset += lineLength(text[offset:])
	}
	return min(lineAt(text, offset), lastLine(text))
}

// lineLength returns how many bytes the first line of text has, with what ends it.
func lineLength(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		at += size
		switch r {
		case '\r':
			if at < len(text) && text[at] == '\n' {
				at++
			}
			return at
		case '\n', '\u0085', '\u2028', '\u2029':
			return at
		}
	}
	return len(text)
}
