package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Key is one key: the character that it types, or the name of one that types none.
type Key string

// Keys that type no character.
const (
	Up        Key = "up"
	Down      Key = "down"
	Left      Key = "left"
	Right     Key = "right"
	PageUp    Key = "page up"
	PageDown  Key = "page down"
	Home      Key = "home"
	End       Key = "end"
	Enter     Key = "enter"
	Tab       Key = "tab"
	Esc       Key = "esc"
	Backspace Key = "backspace"
	CtrlC     Key = "ctrl-c"
)

// sequences maps the input of terminals to keys, without the escape character (ECMA-48, as in xterm).
var sequences = map[string]Key{
	"[A": Up, "[B": Down, "[C": Right, "[D": Left, "OA": Up, "OB": Down, "OC": Right, "OD": Left,
	"[5~": PageUp, "[6~": PageDown, "[H": Home, "[F": End, "OH": Home, "OF": End, "[1~": Home, "[4~": End, "[7~": Home,
	"[8~": End,
}

const escape = '\x1b'

// Keys parses the input of a terminal in raw mode. A lone escape character is the key Esc; unknown sequences are skipped.
func Keys(sent []byte) []Key {
	var out []Key
	for in := string(sent); in != ""; {
		r, n := utf8.DecodeRuneInString(in)
		if r == escape {
			var k Key
			if k, n = sequence(in[1:]); k != "" {
				out = append(out, k)
			}
			in = in[1+n:]
			continue
		}
		in = in[n:]
		switch {
		case r == '\r' || r == '\n':
			out = append(out, Enter)
		case r == '\t':
			out = append(out, Tab)
		case r == 3:
			out = append(out, CtrlC)
		case r == 8 || r == 127:
			out = append(out, Backspace)
		case unicode.IsPrint(r) && r != utf8.RuneError:
			out = append(out, Key(r))
		}
	}
	return out
}

// sequence parses the text after an escape character. It returns a key, or none, and the number of bytes read.
func sequence(in string) (Key, int) {
	if in == "" || in[0] == escape {
		return Esc, 0
	}
	if in[0] != '[' && in[0] != 'O' {
		return "", 1 // with the Alt key
	}
	end := 1 + strings.IndexFunc(in[1:], func(r rune) bool { return r >= '@' && r <= '~' })
	if end == 0 {
		return "", len(in)
	}
	return sequences[in[:end+1]], end + 1
}
