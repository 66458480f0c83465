package base

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/messages"
)

func set(uids ...string) map[string]bool {
	out := map[string]bool{}
	for _, uid := range uids {
		out[uid] = true
	}
	return out
}

func TestDepartures_Update(t *testing.T) {
	var d Departures
	now := time.Unix(0, 0)
	for i, c := range []struct {
		before, named []string
		changed       bool
		want          string
	}{
		{nil, []string{"a", "b"}, false, ""},
		{[]string{"a", "b"}, []string{"b"}, true, "a"},
		{[]string{"a", "b"}, []string{"b"}, false, "a"},
		{[]string{"b"}, nil, true, "a b"},
		{nil, []string{"a"}, true, "b"},
	} {
		changed := d.Update(now, set(c.before...), set(c.named...))
		if got := strings.Join(slices.Sorted(maps.Keys(d.UIDs())), " "); got != c.want || changed != c.changed {
			t.Errorf("step %d: departed %q, changed %v; want %q, %v", i, got, changed, c.want, c.changed)
		}
	}
}

// A departed pod is dropped once a complete board lacks it and the pods actor has had time to process the source's lists.
func TestDepartures_Prune(t *testing.T) {
	pod := func(uid string, source messages.Address) board.Pod {
		return board.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}, Source: source}
	}
	whole := board.Snapshot{Audited: true}
	with := func(pods ...board.Pod) board.Snapshot { s := whole; s.Pods = pods; return s }
	for name, c := range map[string]struct {
		board board.Snapshot
		after time.Duration
		kept  bool
	}{
		"over":                        {with(pod("other", messages.File)), processing, false},
		"here":                        {with(pod("u", messages.File)), processing, true},
		"here, of an unknown source":  {with(pod("u", "")), processing, true},
		"another source has the UID":  {with(pod("u", messages.Submit)), processing, false},
		"before the lists are known":  {whole, processing - 1, true},
		"before the audit":            {board.Snapshot{}, processing, true},
		"a source is not heard":       {board.Snapshot{Audited: true, Unheard: []messages.Address{messages.URL}}, processing, true},
		"a pod runs without an actor": {board.Snapshot{Audited: true, Unclaimed: 1}, processing, true},
	} {
		var d Departures
		d.Add(time.Unix(0, 0), "u")
		b := board.New()
		b.Publish(c.board)
		if changed := d.Prune(time.Unix(0, 0).Add(c.after), b, messages.File); changed == c.kept || d.UIDs()["u"] != c.kept {
			t.Errorf("%s: changed %v, kept %v, want kept %v", name, changed, d.UIDs()["u"], c.kept)
		}
	}
	var d Departures
	d.Add(time.Unix(0, 0), "u")
	if d.Prune(time.Unix(0, 0).Add(time.Hour), nil, messages.File) || d.Prune(time.Unix(0, 0).Add(time.Hour), board.New(), messages.File) {
		t.Error("a pod was forgotten without a board, or before it was first published")
	}
}
