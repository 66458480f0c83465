package pods

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// An unlisted pod is unwanted once its own source has reported, or all have.
func TestSources(t *testing.T) {
	of := func(marks ...string) (f messages.PodFacts) {
		for _, m := range marks {
			f.Sandboxes = append(f.Sandboxes, messages.SandboxFact{Source: m})
		}
		return f
	}
	pods := []messages.PodFacts{of("file"), of("api"), of("file", "api"), of("another's"), of()}
	for _, c := range []struct {
		all, reported []messages.Address
		unheard       []messages.Address
		unwanted      []bool
	}{
		{nil, nil, nil, []bool{false, false, false, false, false}},
		{[]messages.Address{messages.File, messages.APIServer}, []messages.Address{messages.File}, []messages.Address{messages.APIServer},
			[]bool{true, false, false, false, false}},
		{[]messages.Address{messages.File}, []messages.Address{messages.File}, nil, []bool{true, true, true, true, true}},
	} {
		s := sources{all: c.all, lists: map[messages.Address]messages.SourcePodsWanted{}}
		for _, source := range c.reported {
			s.lists[source] = messages.SourcePodsWanted{Source: source}
		}
		var unwanted []bool
		for i := range pods {
			unwanted = append(unwanted, s.unwanted(&pods[i]))
		}
		if !slices.Equal(s.missing(), c.unheard) || !slices.Equal(unwanted, c.unwanted) {
			t.Errorf("of %v %v have told: %v have not, unwanted are %v", c.all, c.reported, s.missing(), unwanted)
		}
	}
}

// A pod that a source no longer lists ends for a reason that names the removal.
func TestUnlisted_NamesTheRemoval(t *testing.T) {
	for _, c := range []struct {
		source messages.Address
		reason string
	}{
		{messages.Submit, "it was removed (playlet rm)"},
		{messages.File, "its manifest /m/web.yaml was removed or no longer contains it"},
		{messages.URL, "the manifests at --manifest-url no longer contain it"},
		{messages.APIServer, "its object is gone from the API server"},
	} {
		all := []messages.Address{messages.Submit, messages.File, messages.URL, messages.APIServer}
		k := supervisortest.New(t, messages.Pods, New(Options{Sources: all, Board: board.New(), Dir: t.TempDir()})("pods"))
		k.RunWork()
		for _, source := range all {
			wants(k, source)
		}
		web := messages.SourcePodsWanted{Source: c.source, Pods: []*v1.Pod{pod("web", "u1")}}
		if c.source == messages.File {
			web.Manifests = map[string]string{"default/web": "/m/web.yaml", "default/other": "/m/other.yaml"}
		}
		k.Send(c.source, web)
		audit(k)
		k.Take()
		wants(k, c.source)
		w := sent[messages.PodWanted](k)
		if len(w) != 1 || w[0].Ending == nil || w[0].Ending.Reason != c.reason {
			t.Errorf("of %s: %+v, want %q", c.source, w, c.reason)
		}
	}
}
