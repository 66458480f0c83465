package objects

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// A failure to read is reported when it lasts, until the objects are read. Expired resource versions (410) last if they occur
// each time.
func TestKindsThatCannotBeReadAreReported(t *testing.T) {
	for _, c := range []struct {
		err   error
		words string
	}{
		{apierrors.NewInternalError(errors.New("etcd")), "the API server has a fault of its own (500): "},
		{apierrors.NewResourceExpired("too old"), "the API server no longer has what came after its last answer (410 Gone)"},
	} {
		t.Run(c.words, func(t *testing.T) { kindsThatCannotBeRead(t, c.err, c.words) })
	}
}

func kindsThatCannotBeRead(t *testing.T, err error, words string) {
	a := newAPI(t, 0, settings("a"))
	failing := make(chan bool, 1)
	failing <- true
	fails := func() bool { f := <-failing; failing <- f; return f }
	watches := make(chan *apiwatch.RaceFreeFakeWatcher, 100)
	for _, kind := range []string{"services", "runtimeclasses", "configmaps"} {
		a.client.PrependReactor("list", kind, func(clienttesting.Action) (bool, runtime.Object, error) {
			return fails(), nil,
				err
		})
		a.client.PrependWatchReactor(kind, func(clienttesting.Action) (bool, apiwatch.Interface, error) {
			if fails() {
				return true, nil, err
			}
			w := apiwatch.NewRaceFreeFake()
			watches <- w
			return true, w, nil
		})
	}
	sent := func() string {
		text := ""
		for _, p := range a.c.problemsAt(time.Now().Add(lastingAfter)) {
			text += fmt.Sprintf("%s, kept %v\n", p.Message, p.KeptLast)
		}
		return text
	}
	both := func(kept string) bool {
		return strings.HasPrefix(sent(), "RuntimeClasses, Services cannot be read: "+words) &&
			strings.Contains(sent(), "kept "+kept)
	}
	a.c.followServices()
	a.c.followRuntimeClasses()
	a.await("they are told", func() bool { return both("false") })
	if p := a.c.problemsAt(time.Time{}); len(p) > 0 {
		t.Errorf("at once: %+v", p)
	}
	<-failing
	failing <- false
	a.await("nothing is told", func() bool { return sent() == "" && len(watches) == 2 })
	<-failing
	failing <- true
	(<-watches).Stop()
	(<-watches).Stop()
	a.await("they are told again", func() bool { return both("true") })
	a.c.setPods([]*v1.Pod{apiPod("u", ofConfigMap("settings"))})
	a.awaitHolds("a") // it can be got, and not be followed
	a.await("it is told, too", func() bool {
		return strings.HasPrefix(sent(), "ConfigMap ns/settings, RuntimeClasses, Services cannot")
	})
}
