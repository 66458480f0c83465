package objects

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
)

// That objects cannot be read is told when it lasts, and no longer when they are read; that the API server has forgotten what came since
// (410) lasts where it says so each time.
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
	a.c.want([]*v1.Pod{apiPod("u", ofConfigMap("settings"))})
	a.awaitHolds("a") // it can be got, and not be followed
	a.await("it is told, too", func() bool {
		return strings.HasPrefix(sent(), "ConfigMap ns/settings, RuntimeClasses, Services cannot")
	})
}

// After the restoration of a backup all is listed anew: a watch from the future would say nothing.
func TestObjectsOfAnAPIServerThatWentBack(t *testing.T) {
	a := newAPI(t, 0, settings("old"))
	now := make(chan string, 1)
	now <- "1000"
	version := func() string { v := <-now; now <- v; return v }
	services := func() runtime.Object {
		v := version()
		s := web("10.0.0." + v[:1])
		s.ResourceVersion = v
		return &v1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: v}, Items: []v1.Service{*s}}
	}
	configMaps := func() runtime.Object {
		v := version()
		s := settings(v)
		s.ResourceVersion = v
		return &v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: v}, Items: []v1.ConfigMap{*s}}
	}
	watches := make(chan *apiwatch.RaceFreeFakeWatcher, 100)
	for kind, list := range map[string]func() runtime.Object{"services": services, "configmaps": configMaps} {
		a.client.PrependReactor("list", kind, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, list(),
				nil
		})
		a.client.PrependWatchReactor(kind, func(clienttesting.Action) (bool, apiwatch.Interface, error) {
			w := apiwatch.NewRaceFreeFake()
			if version() == "1000" { // what was told has it go on from there
				if s := web("10.0.0.2"); kind == "services" {
					s.ResourceVersion = "1001"
					w.Modify(s)
				} else {
					m := settings("1001")
					m.ResourceVersion = "1001"
					w.Modify(m)
				}
			}
			watches <- w
			return true, w, nil
		})
	}
	a.c.followServices()
	a.c.want([]*v1.Pod{apiPod("u", ofConfigMap("settings"))})
	a.host("10.0.0.2")
	a.awaitHolds("1001")
	a.await("watches", func() bool { return len(watches) == 2 })
	<-now
	now <- "900"
	(<-watches).Stop()
	(<-watches).Stop()
	a.host("10.0.0.9")
	a.awaitHolds("900")
}
