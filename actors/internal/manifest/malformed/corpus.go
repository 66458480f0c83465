// Package malformed makes manifests that are wrong, for tests of whatever reads manifests.
package malformed

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
)

// files are made by hand, each wrong in a way of its own, which its name tells.
//
//go:embed testdata
var files embed.FS

// Base returns the manifests made by hand, by file name.
func Base() map[string][]byte {
	base := map[string][]byte{}
	for _, name := range baseNames() {
		data, err := files.ReadFile(path.Join("testdata", name))
		if err != nil {
			panic(err) // it is part of the program
		}
		base[name] = data
	}
	return base
}

// baseNames returns the file names in alphabetical order.
func baseNames() []string {
	entries, err := fs.ReadDir(files, "testdata")
	if err != nil {
		panic(err) // it is part of the program
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// Corpus returns n different malformed manifests by file name: those made by hand first, then changed copies of them.
// The same n and seed give the same manifests. None of them has a pod that can run, each has a problem; a change that
// would repair its manifest is not taken. It panics if n is negative.
func Corpus(n int, seed uint64) map[string][]byte {
	base, names := Base(), baseNames()
	corpus := make(map[string][]byte, n)
	taken := map[string]bool{}
	for i := 0; len(corpus) < n; i++ {
		name := names[i%len(names)]
		data := base[name]
		if i >= len(names) {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			data = mutate(random, data, base[names[random.IntN(len(names))]])
		}
		if taken[string(data)] || !isMalformed(data) {
			continue
		}
		taken[string(data)] = true
		extension := path.Ext(name)
		corpus[fmt.Sprintf("%s-%04d%s", strings.TrimSuffix(name, extension), i, extension)] = data
	}
	return corpus
}

func isMalformed(data []byte) bool {
	options := manifest.Options{NodeName: "node", Source: manifest.FileSource, Now: time.Unix(0, 0)}
	pods, problems := manifest.Load("malformed.yaml", data, options)
	return len(pods) == 0 && len(problems) > 0
}

// mutate returns a copy of data that was changed in one to three places.
func mutate(random *rand.Rand, data, other []byte) []byte {
	changed := bytes.Clone(data)
	for range 1 + random.IntN(3) {
		changed = mutations[random.IntN(len(mutations))](random, changed, other)
	}
	return changed
}
