package manifest_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
)

// base are the manifests made by hand, by file name. The name describes the fault.
func base(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/malformed/*")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, path := range paths {
		if out[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// corpusOf returns n different malformed manifests by file name: those made by hand first, then changed copies of them.
// The same n and seed give the same manifests. None of them has a pod that can run, each has a problem; a change that
// would repair its manifest is not taken.
func corpusOf(t testing.TB, n int, seed uint64) map[string][]byte {
	base := base(t)
	names := slices.Sorted(maps.Keys(base))
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
		extension := filepath.Ext(name)
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

func checkMalformed(t *testing.T, name string, data []byte) {
	t.Helper()
	options := manifest.Options{NodeName: "node", Source: manifest.FileSource, Now: time.Unix(0, 0)}
	pods, problems := manifest.Load(name, data, options)
	if len(pods) > 0 {
		t.Errorf("%s has the pod %s:\n%s", name, pods[0].Name, data)
	}
	if len(problems) == 0 {
		t.Errorf("%s has no problem:\n%s", name, data)
	}
	lines := 1 + bytes.Count(data, []byte("\n"))
	for _, problem := range problems {
		if problem.Path != name || problem.Line < 1 || problem.Line > lines || problem.Message == "" {
			t.Errorf("%s has %d lines and a problem that does not tell where: %+v", name, lines, problem)
		}
	}
}

func TestBaseIsMalformed(t *testing.T) {
	base := base(t)
	if len(base) < 60 {
		t.Errorf("only %d manifests", len(base))
	}
	for name, data := range base {
		checkMalformed(t, name, data)
	}
}

func TestCorpusIsMalformedAndDistinct(t *testing.T) {
	const n = 700
	corpus := corpusOf(t, n, 1)
	distinct := map[string]bool{}
	for name, data := range corpus {
		checkMalformed(t, name, data)
		distinct[string(data)] = true
	}
	if len(corpus) != n || len(distinct) != n {
		t.Errorf("%d manifests, %d distinct, want %d", len(corpus), len(distinct), n)
	}
}

func TestCorpusDependsOnItsSeedOnly(t *testing.T) {
	const n = 200
	if !maps.EqualFunc(corpusOf(t, n, 1), corpusOf(t, n, 1), bytes.Equal) {
		t.Error("the same seed gives another corpus")
	}
	if maps.EqualFunc(corpusOf(t, n, 1), corpusOf(t, n, 2), bytes.Equal) {
		t.Error("another seed gives the same corpus")
	}
	if small := corpusOf(t, 3, 1); len(small) != 3 {
		t.Errorf("%d manifests, want 3", len(small))
	}
}

// The tests of the whole agent have the corpus written into a folder.
func TestWriteMalformedManifests(t *testing.T) {
	dir := os.Getenv("MALFORMED_DIR")
	if dir == "" {
		t.Skip("MALFORMED_DIR names no folder")
	}
	n, err := strconv.Atoi(os.Getenv("MALFORMED_COUNT"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range corpusOf(t, n, 7) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// mutation changes data, which it may overwrite, and may take from other.
type mutation func(random *rand.Rand, data, other []byte) []byte

// mutations are accidents of files: edits, interrupted editors and copies, damaged disks, merges.
var mutations = []mutation{
	renamePod, cutOff, flipBit, dropByte, pasteFrom, dropLine, repeatLine, swapLines, indentLine, addMark,
}

func renamePod(random *rand.Rand, data, _ []byte) []byte {
	return bytes.Replace(data, []byte("web"), fmt.Appendf(nil, "web-%d", random.IntN(1000)), 1)
}

func cutOff(random *rand.Rand, data, _ []byte) []byte { return data[:random.IntN(len(data)+1)] }

func flipBit(random *rand.Rand, data, _ []byte) []byte {
	if len(data) > 0 {
		data[random.IntN(len(data))] ^= 1 << random.IntN(8)
	}
	return data
}

func dropByte(random *rand.Rand, data, _ []byte) []byte {
	if len(data) == 0 {
		return data
	}
	at := random.IntN(len(data))
	return slices.Delete(data, at, at+1)
}

func pasteFrom(random *rand.Rand, data, other []byte) []byte {
	begin := random.IntN(len(other) + 1)
	end := begin + random.IntN(len(other)-begin+1)
	return slices.Insert(data, random.IntN(len(data)+1), other[begin:end]...)
}

func addMark(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		return slices.Insert(lines, random.IntN(len(lines)+1), []byte("---\n"))
	})
}

func dropLine(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		at := random.IntN(len(lines))
		return slices.Delete(lines, at, at+1)
	})
}

func repeatLine(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		return slices.Insert(lines, random.IntN(len(lines)), lines[random.IntN(len(lines))])
	})
}

func swapLines(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		a, b := random.IntN(len(lines)), random.IntN(len(lines))
		lines[a], lines[b] = lines[b], lines[a]
		return lines
	})
}

func indentLine(random *rand.Rand, data, _ []byte) []byte {
	return onLines(data, func(lines [][]byte) [][]byte {
		at := random.IntN(len(lines))
		lines[at] = slices.Concat([]byte([]string{" ", "  ", "\t"}[random.IntN(3)]), lines[at])
		return lines
	})
}

// onLines changes the lines of data, which has at least one.
func onLines(data []byte, change func(lines [][]byte) [][]byte) []byte {
	return bytes.Join(change(bytes.SplitAfter(data, []byte("\n"))), nil)
}
