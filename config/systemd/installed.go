package systemd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// unitDirs are systemd's folders of units, the one that wins first (systemd.unit(5)).
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system"}

// Installed returns the arguments with which the installed service starts the agent, and the file that has them: its unit with
// the unit's drop-ins and environment files or, without a unit, the configuration file of the package. root is "/" but for tests.
// Without either it returns nothing, and no error.
func Installed(root string) (args []string, file string, err error) {
	for _, dir := range unitDirs {
		path := filepath.Join(dir, UnitName)
		text, err := os.ReadFile(filepath.Join(root, path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, path, err
		}
		args, err := commandLine(root, path, string(text))
		return args, path, err
	}
	_, err = os.Stat(filepath.Join(root, ConfigPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	return []string{"--config=" + ConfigPath}, ConfigPath, err
}

// commandLine returns the arguments of ExecStart in a unit and its drop-ins.
func commandLine(root, path, text string) ([]string, error) {
	texts := []string{text}
	var dropins []string
	for _, dir := range unitDirs {
		found, _ := filepath.Glob(filepath.Join(root, dir, UnitName+".d", "*.conf")) // the pattern is right
		dropins = append(dropins, found...)
	}
	slices.SortStableFunc(dropins, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	for _, file := range dropins {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(text))
	}
	var start string
	environment := map[string]string{}
	for _, text := range texts {
		options, err := unit.DeserializeOptions(strings.NewReader(text))
		if err != nil {
			return nil, &fs.PathError{Op: "parse", Path: path, Err: err}
		}
		for _, o := range options {
			switch {
			case o.Section != "Service":
			case o.Name == "ExecStart":
				start = o.Value
			case o.Name == "Environment":
				for _, word := range words(o.Value) {
					name, value, _ := strings.Cut(word, "=")
					environment[name] = value
				}
			case o.Name == "EnvironmentFile":
				if err := readEnvironment(root, o.Value, environment); err != nil {
					return nil, err
				}
			}
		}
	}
	var args []string
	for i, word := range words(start) {
		name, variable := strings.CutPrefix(word, "$")
		switch {
		case i == 0: // the program
		case variable && !strings.HasPrefix(name, "$"):
			args = append(args, strings.Fields(environment[strings.Trim(name, "{}")])...)
		default:
			args = append(args, strings.NewReplacer("%%", "%", "$$", "$").Replace(word))
		}
	}
	return args, nil
}

// readEnvironment reads the lines NAME=VALUE of an environment file; one with a dash before its name may be missing.
func readEnvironment(root, path string, into map[string]string) error {
	path, optional := strings.CutPrefix(path, "-")
	text, err := os.ReadFile(filepath.Join(root, path))
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		name, value, set := strings.Cut(strings.TrimSpace(line), "=")
		if set && !strings.ContainsAny(name[:min(1, len(name))], "#;") {
			into[name] = strings.Join(words(value), " ")
		}
	}
	return err
}

// words splits a line as systemd does, at white space outside quotes; a backslash quotes the next character.
func words(line string) []string {
	var out []string
	var word strings.Builder
	var quote rune
	open, escaped := false, false
	for _, c := range line + " " {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\':
			open, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			open, quote = true, c
		case quote == 0 && (c == ' ' || c == '\t'):
			if open {
				out = append(out, word.String())
				word.Reset()
				open = false
			}
		default:
			open = true
			word.WriteRune(c)
		}
	}
	return out
}
