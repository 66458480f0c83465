// Package envfile reads a variable from a file that a container has written for the others of its pod (KEP-3721). It trusts
// neither the path, nor the type of the file, nor its contents.
//
// A line is NAME='value', with an optional comment after it. The value is literal and may span lines. Blank lines and comments
// are skipped. NAME= followed by a blank has no value, as in a shell.
package envfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/playlet-dev/playlet/actors/internal/linux/safepath"
)

// MaxBytes limits the size of a file. It is the limit of an API object, which the file replaces.
const MaxBytes = 1 << 20

// Read returns the value of a key in the file at path, below a volume's folder. It follows links that stay in the volume. The
// value is empty if the file or the key is absent, or the key has no value. An error means that the file cannot be read or
// parsed up to that key. The error reveals nothing of the contents but a line number.
func Read(volume, path, key string) (string, error) {
	root, err := safepath.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()                                        //nolint:errcheck // read-only
	f, err := root.OpenFollowing(strings.TrimLeft(path, "/")) // the API server takes an absolute path, too, for one in the volume
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, unix.EXDEV):
		return "", errors.New("it leads out of the volume or into another mount")
	case err != nil:
		return "", err
	}
	defer f.Close() //nolint:errcheck // read-only
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return "", err
	}
	if len(data) > MaxBytes {
		return "", fmt.Errorf("it has more than %d bytes", MaxBytes)
	}
	return value(string(data), key)
}

// value returns the value of the first variable named key.
func value(text, key string) (string, error) {
	for line := 1; text != ""; {
		begun := line
		name, got, rest, err := variable(text)
		if err != nil {
			return "", fmt.Errorf("line %d: %w", begun, err)
		}
		if name == key {
			return got, nil
		}
		line += strings.Count(text[:len(text)-len(rest)], "\n")
		text = rest
	}
	return "", nil
}

// variable parses the variable that begins on the first line of text. The name is empty for a blank line or a comment.
func variable(text string) (name, value, rest string, err error) {
	line, rest, _ := strings.Cut(text, "\n")
	line = strings.TrimLeft(strings.TrimSuffix(line, "\r"), blanks)
	if line == "" || line[0] == '#' {
		return "", "", rest, nil
	}
	name, behind, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return "", "", "", errors.New("it has no =")
	case name == "":
		return "", "", "", errors.New("there is no name before =")
	case name != strings.TrimRight(name, blanks):
		return "", "", "", errors.New("there is a blank before =")
	case behind != strings.TrimLeft(behind, blanks):
		return name, "", rest, nil
	case behind == "" || behind[0] != '\'':
		return "", "", "", errors.New("the value is not in single quotes")
	}
	_, behind, _ = strings.Cut(text, "='")
	value, behind, ok = strings.Cut(behind, "'")
	if !ok {
		return "", "", "", errors.New("the quote is not closed")
	}
	last, rest, _ := strings.Cut(behind, "\n")
	if last = strings.Trim(strings.TrimSuffix(last, "\r"), blanks); last != "" && last[0] != '#' {
		return "", "", "", errors.New("there is more behind the closing quote than a comment")
	}
	return name, strings.ReplaceAll(value, "\r\n", "\n"), rest, nil
}

const blanks = " \t"
