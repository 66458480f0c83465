package malformed

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/playlet-dev/playlet/actors/internal/manifest"
)

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
	base := Base()
	if len(base) < 60 {
		t.Errorf("only %d manifests", len(base))
	}
	for name, data := range base {
		checkMalformed(t, name, data)
	}
}

func TestCorpusIsMalformedAndDistinct(t *testing.T) {
	const n = 700
	corpus := Corpus(n, 1)
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
	if !maps.EqualFunc(Corpus(n, 1), Corpus(n, 1), bytes.Equal) {
		t.Error("the same seed gives another corpus")
	}
	if maps.EqualFunc(Corpus(n, 1), Corpus(n, 2), bytes.Equal) {
		t.Error("another seed gives the same corpus")
	}
	if small := Corpus(3, 1); len(small) != 3 {
		t.Errorf("%d manifests, want 3", len(small))
	}
}
