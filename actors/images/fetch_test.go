package images

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// fetched requests a fetch, or its progress.
func fetched(t *testing.T, k *supervisortest.Kit, id, image string) messages.ImageFetched {
	t.Helper()
	k.Replies = nil
	k.Send(messages.Server, messages.FetchImage{ID: id, Image: image})
	if len(k.Replies) != 1 {
		t.Fatalf("%v", k.Replies)
	}
	return k.Replies[0].(messages.ImageFetched)
}

// Repeated requests with the same ID are one fetch; another ID is another one. Pods get no messages about it.
func TestAPersonPullsAnImage(t *testing.T) {
	f := &fake{}
	k := start(t, f, nil)
	if got := fetched(t, k, "1", "web"); !strings.Contains(got.Waiting, "is being pulled from the registry docker.io") || got.ID != "" {
		t.Errorf("at first: %+v", got)
	}
	k.RunWork()
	for range 2 {
		if got := fetched(t, k, "1", "web"); got.ID != "id of web:latest" || got.Failed != "" {
			t.Errorf("at the end: %+v", got)
		}
	}
	k.RunWork()
	expect(t, "one question", f.take(), "pull web:latest")
	fetched(t, k, "2", "web")
	k.RunWork()
	expect(t, "another", f.take(), "pull web:latest")
	if got := fetched(t, k, "3", "Not/A:Name"); got.Failed == "" {
		t.Errorf("a name that is none: %+v", got)
	}
	if heard := k.Take(); len(heard) > 0 {
		t.Errorf("told %+v", heard)
	}
}

// A fetch ends with the first failure. It ends the back-off of a pod's pull, so both are tried at once.
func TestAPersonsPullFailsOnce(t *testing.T) {
	f := &fake{pullErr: errors.New("no such image")}
	k := start(t, f, nil)
	k.Send(messages.PodAddress("a"), puller("a", "web", v1.PullIfNotPresent))
	k.RunWork()
	f.take()
	fetched(t, k, "1", "web")
	k.RunWork()
	if got := fetched(t, k, "1", "web"); !strings.Contains(got.Failed, "image web cannot be pulled: no such image") {
		t.Errorf("%+v", got)
	}
	expect(t, "tried at once", f.take(), "look web:latest; pull web:latest")
	k.Take()
	f.pullErr = nil
	fetched(t, k, "2", "web")
	k.RunWork()
	if got := fetched(t, k, "2", "web"); got.ID == "" {
		t.Errorf("%+v", got)
	}
	if got := reported(k); !strings.HasPrefix(got, "pods/a: id of web:latest") {
		t.Errorf("the pod hears %q", got)
	}
	f.pullErr = errors.New("no such image")
	fetched(t, k, "3", "other")
	k.RunWork()
	f.take()
	k.Advance(time.Hour)
	k.RunWork()
	expect(t, "tried no more", f.take(), "")
}

// A client gets a share of the kept fetches, which leaves places for others. A completed fetch releases its place after a while.
func TestFetches_SharedByClient(t *testing.T) {
	k := start(t, &fake{}, nil)
	fetch := func(client, id string) messages.ImageFetched {
		k.Replies = nil
		k.Send(messages.Server, messages.FetchImage{ID: id, Image: "web", Client: client})
		return k.Replies[0].(messages.ImageFetched)
	}
	for i := range maxFetches / 2 {
		if got := fetch("uid 1000", strconv.Itoa(i)); got.Failed != "" {
			t.Fatalf("pull %d: %+v", i, got)
		}
	}
	if got := fetch("uid 1000", "more"); !strings.Contains(got.Failed, "uid 1000 has 32 pulls within the last minutes") {
		t.Errorf("a pull over the share: %+v", got)
	}
	if got := fetch("uid 0", "other"); got.Failed != "" {
		t.Errorf("a pull of the administrator: %+v", got)
	}
	k.RunWork()
	k.Advance(fetchKept + time.Second)
	if got := fetch("uid 1000", "more"); got.Failed != "" {
		t.Errorf("a pull after a while: %+v", got)
	}
}
