package agentmetrics

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/board"
)

// The values of the families are tested in actors/stats, which serves them.

func TestLabelsOfProbesAreBounded(t *testing.T) {
	m := New(Options{Board: board.New()})
	for i := range 3 * maxProbed { // without a reader
		m.Probed(Probe{"Liveness", "failed", types.UID("u" + strings.Repeat("x", i%7) + time.Duration(i).String()), "n", "p", "c", 0})
	}
	if n := len(m.probed); n > maxProbed+1 {
		t.Errorf("labels of %d pods are kept", n)
	}
}

func TestContainerTypes(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid-web"}}
	p.Spec.Containers = []v1.Container{{Name: "c1"}}
	p.Spec.InitContainers = []v1.Container{{Name: "i"}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}}
	b := board.New()
	b.Publish(board.Snapshot{Pods: []board.Pod{{Pod: p}}})
	m := New(Options{Board: b})
	for name, want := range map[string]string{"i": "init_container", "e": "ephemeral_container", "c1": "container", "other": "container"} {
		if got := m.containerType("uid-web", name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for call, want := range map[string]string{
		"ListPodSandbox": "list_podsandbox", "UpdateContainerResources": "update_container", "ImageFsInfo": "image_fs_info",
		"ExecSync": "exec_sync", "PodSandboxStatus": "podsandbox_status",
	} {
		if got := operation(call); got != want {
			t.Errorf("%s: %s", call, got)
		}
	}
}
