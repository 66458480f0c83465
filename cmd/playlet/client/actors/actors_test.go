package actors

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestActorsDrawsTheTree(t *testing.T) {
	f := fake.Start(t, newActorsCommand)
	f.HasActors()
	out, notes, code := f.Command(t, "actors")
	want := `ACTOR               STATE                       WAITING   OLDEST   RESTARTS   UPTIME   LAST FAILURE
node                running                     0         <none>   0          60m      <none>
├─ images           running                     0         <none>   0          60m      <none>
├─ pods             running                     0         <none>   0          60m      <none>
│  ├─ default/web   running                     4         9s       2          60m      nil map  [31m (60s ago)
│  │  └─ c          running                     0         <none>   0          60m      <none>
│  └─ other/web     quarantined, starts in 4m   0         <none>   0          <none>   out of range (60s ago)
└─ sources          running                     0         <none>   0          60m      <none>
   └─ file          running                     0         <none>   0          60m      <none>
`
	if out != want || code != 0 || notes != "" {
		t.Errorf("%d %s\n%s\nwant\n%s", code, notes, out, want)
	}
	out, _, _ = f.Command(t, "actors", "pods/default/web", "-o", "wide")
	want = `ACTOR              STATE     WAITING   OLDEST   RESTARTS   UPTIME   KIND        PATH        BUSY WITH                   DESIRED                    LAST FAILURE
pods/default/web   running   4         9s       2          60m      pod         pods/u1     ImagePulled of images, 8s   <none>                     nil map  [31m (60s ago)
└─ c               running   0         <none>   0          60m      container   pods/u1/c   <none>                      RunContainer container=c   <none>
`
	if out != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	for path, want := range map[string]string{
		"pods/u2": "pods/other/web", "pod/default/web/c": "pods/default/web/c", "pods/web/c": "pods/default/web/c",
		"sources/": "sources", "node": "node",
	} {
		if out, notes, _ := f.Command(t, "actors", path); !strings.HasPrefix(strings.SplitAfter(out+"\n", "\n")[1], want+" ") {
			t.Errorf("%s: %s%s", path, out, notes)
		}
	}
	for path, want := range map[string]string{
		"pods/web": `"pods/web" is the name of pods/default/web and of pods/other/web`,
		"nope":     `there is no actor "nope"`, "pods/u": `there is no actor "pods/u"`,
	} {
		if _, notes, code := f.Command(t, "actors", path); code != 1 || !strings.Contains(notes, want) {
			t.Errorf("%s: %d %s", path, code, notes)
		}
	}
	f.Mu.Lock()
	f.Actors.Actors[4].Handling = &supervisors.HandledMessage{Message: "RunContainer", From: "pods/u1", Sent: fake.Noon, Began: fake.Noon}
	f.Mu.Unlock()
	if out, _, _ = f.Command(t, "actors", "pods/default/web/c", "-o", "wide"); !strings.Contains(out, "RunContainer of pods/default/web, 0s") {
		t.Errorf("the sender is not named by its pod:\n%s", out)
	}
	out, _, _ = f.Command(t, "actors", "pods/u1", "-o", "json")
	var got api.Actors
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Actors) != 2 || got.Actors[0].Handling.Message != "ImagePulled" {
		t.Errorf("%v %s", err, out)
	}
}

// A watch prints changes only.
func TestActorsAreWatched(t *testing.T) {
	f := fake.Start(t, newActorsCommand)
	f.HasActors()
	var out bytes.Buffer
	c := &actorsCommand{every: time.Millisecond}
	c.Client, c.Output = api.NewClient(f.Socket), "table"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	step := 0
	c.Out = writer(func(p []byte) {
		out.Write(p)
		f.Mu.Lock()
		defer f.Mu.Unlock()
		switch step++; {
		case bytes.Contains(p, []byte("gone")):
			cancel()
		case bytes.Contains(p, []byte("pods/default/web ")) && step > 1:
			f.Actors.Actors = append(f.Actors.Actors[:4:4], f.Actors.Actors[5:]...) // the container is gone
		default:
			f.Actors.Actors[3].Restarts = 3
		}
	})
	if err := c.watch(ctx, ""); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || !strings.HasPrefix(lines[9], "pods/default/web ") || !strings.HasPrefix(lines[10], "pods/default/web/c ") {
		t.Errorf("%s", out.String())
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// A static pod may be named as its manifest names it, unless another pod has that name.
func TestStaticPodActors_FoundByManifestName(t *testing.T) {
	pod := func(uid messages.Address, name, manifest string) api.Actor {
		return api.Actor{Vitals: supervisors.Vitals{Path: uid}, Pod: name, Manifest: manifest}
	}
	all := []api.Actor{
		pod("pods/u1", "default/web-node1", "web"), pod("pods/u1/c", "default/web-node1", "web"),
		pod("pods/u2", "default/db-node1", "db"), pod("pods/u3", "shop/db", ""), pod("pods/u4", "shop/two-node1", "two"),
		pod("pods/u5", "default/two-node1", "two"),
	}
	for path, want := range map[string]string{
		"pods/web": "pods/u1", "pods/default/web": "pods/u1", "pod/web/c": "pods/u1/c", "pods/web-node1": "pods/u1",
		"pods/db": "pods/u3", "pods/default/db": "pods/u2", "pods/shop/two": "pods/u4", "pods/shop/web": "", "pods/two": "",
	} {
		got, err := below(all, path)
		if (err == nil) != (want != "") || err == nil && got[0].Path.String() != want {
			t.Errorf("%s: %+v, %v, want %s", path, got, err, want)
		}
	}
}
