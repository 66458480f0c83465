package systemd

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// unitDirs are systemd's folders of units, the one that wins first (systemd.unit(5)).
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
	"/lib/systemd/system"}

// Installed returns the arguments with which the installed service starts the agent, and the file that has them: its unit with
// the unit's drop-ins and environment files or, without a unit, the configuration file of the package. A kubelet's service that
// runs this program takes precedence once its configuration is there. root is "/" but for tests. Without any of them it returns
// nothing, and no error.
func Installed(root string) (args []string, file string, err error) {
	u, err := load(root, KubeletUnit)
	if err == nil && !(u.ours(root) && configured(root, u.args())) {
		u, err = load(root, UnitName)
	}
	if err != nil || u.path != "" {
		return u.args(), u.path, err
	}
	_, err = os.Stat(filepath.Join(root, ConfigPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	return []string{"--config=" + ConfigPath}, ConfigPath, err
}

// configured reports whether the configuration file that args name exists.
func configured(root string, args []string) bool {
	for _, a := range args {
		if file, ok := strings.CutPrefix(a, "--config="); ok {
			_, err := os.Stat(filepath.Join(root, file))
			return err == nil
		}
	}
	return true
}

// service is an installed service: the file of its unit, which is empty without one, ExecStart, and the environment.
type service struct {
	path, start string
	environment map[string]string
}

// load reads the unit of a name with its drop-ins and environment files, except these drop-ins.
func load(root, name string, without ...string) (service, error) {
	s := service{environment: map[string]string{}}
	for _, dir := range unitDirs {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(filepath.Join(root, path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s.path = path
		if err == nil {
			err = s.read(root, name, string(text), without)
		}
		return s, err
	}
	return s, nil
}

// read reads a unit's text, and then its drop-ins.
func (s *service) read(root, name, text string, without []string) error {
	texts := []string{text}
	dropins := map[string]string{} // by the name of the file: the folder that wins has it
	for _, dir := range slices.Backward(unitDirs) {
		found, _ := filepath.Glob(filepath.Join(root, dir, name+".d", "*.conf")) // the pattern is right
		for _, file := range found {
			dropins[filepath.Base(file)] = file
		}
	}
	for _, base := range slices.Sorted(maps.Keys(dropins)) {
		if slices.ContainsFunc(without, func(path string) bool { return filepath.Join(root, path) == dropins[base] }) {
			continue
		}
		text, err := os.ReadFile(dropins[base])
		if err != nil {
			return err
		}
		texts = append(texts, string(text))
	}
	var files []string // which take precedence over Environment=, systemd.exec(5)
	for _, text := range texts {
		options, err := unit.DeserializeOptions(strings.NewReader(joinLines(text)))
		if err != nil {
			return &fs.PathError{Op: "parse", Path: s.path, Err: err}
		}
		for _, o := range options {
			switch {
			case o.Section != "Service":
			case o.Name == "ExecStart":
				s.start = o.Value
			case o.Name == "Environment" && o.Value == "":
				clear(s.environment)
			case o.Name == "Environment":
				for _, word := range words(o.Value) {
					name, value, _ := strings.Cut(word, "=")
					s.environment[name] = value
				}
			case o.Name == "EnvironmentFile" && o.Value == "":
				files = nil
			case o.Name == "EnvironmentFile":
				files = append(files, o.Value)
			}
		}
	}
	for _, file := range files {
		if err := readEnvironment(root, file, s.environment); err != nil {
			return err
		}
	}
	return nil
}

// ours reports whether the service starts this program, by its own name or as /usr/bin/kubelet.
func (s *service) ours(root string) bool {
	all := words(s.start)
	if s.path == "" || len(all) == 0 {
		return false
	}
	program := all[0]
	for range 8 { // links
		if filepath.Base(program) == "playlet" {
			return true
		}
		target, err := os.Readlink(filepath.Join(root, program))
		if err != nil {
			return false
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(program), target)
		}
		program = target
	}
	return false
}

// args are the arguments of ExecStart.
func (s *service) args() []string {
	var args []string
	for i, word := range words(s.start) {
		name, variable := strings.CutPrefix(word, "$")
		switch {
		case i == 0: // the program
		case variable && !strings.HasPrefix(name, "$") && !strings.HasPrefix(name, "{"):
			args = append(args, words(s.environment[name])...)
		default:
			args = append(args, s.expand(word))
		}
	}
	return args
}

// references are the specifiers and variables in a word of a command line.
var references = regexp.MustCompile(`%%|%H|\$\$|\$\{\w+\}`)

// expand replaces references as systemd does. Other specifiers stay as they are.
func (s *service) expand(word string) string {
	return references.ReplaceAllStringFunc(word, func(found string) string {
		switch found {
		case "%%", "$$":
			return found[:1]
		case "%H":
			host, err := os.Hostname()
			if err != nil {
				return found
			}
			return host
		default:
			return s.environment[strings.Trim(found, "${}")]
		}
	})
}

// joinLines joins lines that are continued with a backslash, and leaves comments out, also those in between.
func joinLines(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, ";") {
			continue
		}
		if start, continued := strings.CutSuffix(strings.TrimRight(line, "\r\n"), `\`); continued {
			line = start + " "
		}
		out.WriteString(line)
	}
	return out.String()
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
