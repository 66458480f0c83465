package pods

import (
	"slices"
	"testing"

	"github.com/playlet-dev/playlet/messages"
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
