package chaos

import (
	"testing"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// A suggestion names the pod, not a container of the same name in another pod.
func TestKill_SuggestsThePod(t *testing.T) {
	f := fake.Start(t, NewCommand)
	f.Chaos = func(chaos.Rule, bool) (*api.ChaosRule, *api.Error) { return &api.ChaosRule{}, nil }
	for path, pod := range map[messages.Address]string{"pods/u1": "default/a-vm", "pods/u2": "default/hello-vm"} {
		a := api.Actor{Pod: pod, Manifest: map[string]string{"pods/u1": "a", "pods/u2": "hello"}[path.String()]}
		a.Path = path
		c := api.Actor{Pod: pod}
		c.Path = path + "/hello"
		f.Actors.Actors = append(f.Actors.Actors, a, c)
	}
	for target, meant := range map[string]string{
		"hello": "pods/hello", "hello-vm": "pods/hello-vm", "hallo": "pods/hello", "pods/helo": "pods/hello", "a": "pods/a",
	} {
		want := `playlet: no actor matches "` + target + `"; did you mean ` + meant + "? (playlet actors lists them)\n"
		if _, notes, code := f.Command(t, "chaos", "kill", target); code != 1 || notes != want {
			t.Errorf("%s: %d %q, want %q", target, code, notes, want)
		}
	}
}
