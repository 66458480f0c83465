package persistent_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/volumes/csi/csitest"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
	"github.com/playlet-dev/playlet/messages"
)

// The annotation of a PersistentVolume gives its group to the pod. An invalid one is ignored, and reported once.
func TestGroup_Annotation(t *testing.T) {
	for text, c := range map[string]struct {
		groups []int64
		event  string
	}{
		"":                      {},
		"0":                     {groups: []int64{0}},
		"4000":                  {groups: []int64{4000}},
		"2147483647":            {groups: []int64{2147483647}},
		"2147483648":            {event: `annotation pv.beta.kubernetes.io/gid is "2147483648", and not a number from 0 to 2147483647`},
		"4294967296":            {event: `"4294967296"`},
		"-1":                    {event: `PersistentVolume pv-c: annotation pv.beta.kubernetes.io/gid is "-1"`},
		"staff":                 {event: `is "staff", and not a number`},
		"1e3":                   {event: `is "1e3"`},
		" 5":                    {event: `is " 5"`},
		"0x10":                  {event: `is "0x10"`},
		"999999999999999999999": {event: `is "999999999999999999999"`},
	} {
		objects := bound("c", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: t.TempDir()}})
		objects[1].(*v1.PersistentVolume).Annotations = map[string]string{"pv.beta.kubernetes.io/gid": text}
		n := storageNode(t, objects...)
		pod := volumestest.APIPodWith("a", claimVolume("v", "c"))
		var events []string
		for range 2 {
			n.Send(messages.PodAddress("a"), messages.MountVolumes{UID: "a", Pod: pod})
			n.Settle(false)
			for _, sent := range n.Take() {
				switch m := sent.Msg.(type) {
				case messages.VolumesMounted:
					if !slices.Equal(m.Groups, c.groups) {
						t.Errorf("%q: got the groups %v, want %v", text, m.Groups, c.groups)
					}
				case messages.RecordEvent:
					events = append(events, m.Reason+" "+m.Message)
				case messages.VolumesFailed:
					t.Errorf("%q: %+v", text, m)
				}
			}
			n.restart(t) // all volumes are mounted again
		}
		switch {
		case c.event == "" && len(events) > 0:
			t.Errorf("%q: got the Events %q, want none", text, events)
		case c.event != "" && (len(events) != 1 || !strings.HasPrefix(events[0], "InvalidVolumeGroup ") || !strings.Contains(events[0], c.event)):
			t.Errorf("%q: got the Events %q, want one with %q", text, events, c.event)
		}
		n.Unmounted("a")
	}
}

// The groups of all volumes are sent, each once. They stay while the API server fails.
func TestGroup_APIServerFails(t *testing.T) {
	var objects []runtime.Object
	var volumes []v1.Volume
	for name, group := range map[string]string{"c": "70", "d": "9", "e": "70"} {
		both := bound(name, csiSource(name))
		both[1].(*v1.PersistentVolume).Annotations = map[string]string{"pv.beta.kubernetes.io/gid": group}
		objects, volumes = append(objects, both...), append(volumes, claimVolume(name, name))
	}
	n := storageNode(t, append(objects, attachRequired(false))...)
	startDriver(t, n, &csitest.Driver{})
	pod := volumestest.APIPodWith("a", volumes...)
	client := n.storage.Client.(*fake.Clientset)
	for step, fails := range []bool{false, true} {
		if fails {
			client.PrependReactor("get", "persistentvolumeclaims", func(kubetesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("no API server")
			})
			n.restart(t)
		}
		got := n.Tell("a", messages.MountVolumes{UID: "a", Pod: pod})
		m, is := got[0].(messages.VolumesMounted)
		if !is || !slices.Equal(m.Groups, []int64{9, 70}) {
			t.Fatalf("step %d: got %+v, want the groups 9 and 70", step, got)
		}
		if want := n.Pod("a", "volumes/kubernetes.io~csi/pv-c/mount"); m.Paths["c"] != filepath.Clean(want) {
			t.Errorf("step %d: got the path %s", step, m.Paths["c"])
		}
	}
}
