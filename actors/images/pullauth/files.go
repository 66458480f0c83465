package pullauth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
)

// maxFile limits the size of a configuration file in bytes. It is the API's limit for a Secret.
const maxFile = 1 << 20

// Files returns the possible paths of the node's docker configuration, in the kubelet's order: config.json, then the old
// .dockercfg, each in the root directory, the working directory, the home directory and the root of the file system.
func Files(rootDir string) []string {
	cwd, _ := os.Getwd() // skipped if there is none
	home, _ := os.UserHomeDir()
	var out []string
	add := func(dir string, parts ...string) {
		if dir != "" {
			out = append(out, filepath.Join(append([]string{dir}, parts...)...))
		}
	}
	add(rootDir, "config.json")
	add(cwd, "config.json")
	add(home, ".docker", "config.json")
	add("/", ".docker", "config.json")
	for _, dir := range []string{rootDir, cwd, home, "/"} {
		add(dir, ".dockercfg")
	}
	return out
}

// OfFiles reads the first of these files that exists and holds credentials. problems name files that could not be read, which
// are skipped.
func OfFiles(paths []string) (ring *Keyring, problems []error) {
	for _, path := range paths {
		data, err := atomicfile.ReadFile(path, maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			parse := parseConfig
			if filepath.Base(path) == ".dockercfg" {
				parse = parseAuths
			}
			if ring, err = parse(path, data); err == nil && len(ring.entries) > 0 {
				return ring, problems
			}
			if err == nil { // a config.json without credentials, perhaps of another program
				continue
			}
			err = fmt.Errorf("%s %w", path, err)
		}
		problems = append(problems, err)
	}
	return nil, problems
}
