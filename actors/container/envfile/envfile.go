// Package envfile reads a variable out of a file that a container has written for the others of its pod (KEP-3721). What it reads
// is never trusted: neither its path, nor what is there, nor what it says.
//
// A line is NAME='value', with any comment behind it. The value is taken literally, and may go over several lines; blank ones and
// comments are passed over. NAME= with nothing but blanks and more behind it has no value, as in a shell.
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

// MaxBytes is the size above which a file is not read: that of an object of the API, which a file takes the place of.
const MaxBytes = 1 << 20

// Read gives what the file at path, below a volume's folder, says of a key. Links are followed where they stay in the volume.
// Empty is a key that is not there or has no value, and a file that is not there. An error is about a file that cannot be read as
// a whole up to that key; it tells nothing of what the file says but the number of a line.
func Read(volume, path, key string) (string, error) {
	root, err := safepath.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()                                        //nolint:errcheck // only looked at
	f, err := root.OpenFollowing(strings.TrimLeft(path, "/")) // the API server takes an absolute path, too, for one in the volume
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, unix.EXDEV):
		return "", errors.New("it leads out of the volume, or to what is mounted in it")
	case err != nil:
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return "", err
	}
	if len(data) > MaxBytes {
		return "", fmt.Errorf("it has more than %d bytes", MaxBytes)
	}
	return value(string(data), key)
}

// value reads lines until the key has come.
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

// variable reads what begins with the first line of a text; the name is empty where there is none.
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
