package pods

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// foundRunning returns a running pod of the API server that requests 600 thousandths of a processor and the host port 80.
func foundRunning(uid string) messages.PodFacts {
	return messages.PodFacts{
		UID: uid, Name: uid, Namespace: "default", Sandboxes: []messages.SandboxFact{{ID: "s", Ready: true, Source: "api"}},
		Containers: []messages.ContainerFact{
			{ID: "2", Name: "c", Attempt: 1, SandboxID: "s", State: messages.ContainerRunning, Annotations: map[string]string{
				cri.AnnotationResources: `{"requests":{"cpu":"600m"}}`, cri.AnnotationPorts: `[{"hostPort":80,"containerPort":80,"protocol":"TCP"}]`,
			}},
			{ID: "1", Name: "c", SandboxID: "s", State: messages.ContainerExited, Annotations: map[string]string{
				cri.AnnotationResources: `{"requests":{"cpu":"600m"}}`,
			}},
			{ID: "3", Name: "odd", SandboxID: "s", State: messages.ContainerRunning, Annotations: map[string]string{
				cri.AnnotationResources: `{"requests":7}`, cri.AnnotationPorts: `{`,
			}},
		},
	}
}

// A pod found running holds its claim, also before its source has reported, and while it ends as unlisted. It cannot be preempted
// before.
func TestWhatIsFoundHoldsRoom(t *testing.T) {
	n := beginCluster(t, small())
	n.Send(messages.Registration, messages.NodeObserved{Node: thisObject(nil)})
	n.Send(messages.Runtime, messages.RuntimeAudited{ReadAt: n.Now().Add(time.Second), Pods: []messages.PodFacts{
		foundRunning("a"), {UID: "dead", Name: "dead", Namespace: "default", Containers: foundRunning("dead").Containers[1:2]},
	}})
	large, port := static(asking("large", 700)), static(asking("port", 1))
	port.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80, ContainerPort: 8080}}
	wants(n.Kit, messages.File, large, port, static(asking("small", 350)))
	n.spawned("small")
	if why, other := n.waits("large"), n.waits("port"); why != "OutOfcpu" || other != "NodePorts" {
		t.Errorf("they wait for %q and %q", why, other)
	}
	wants(n.Kit, messages.APIServer) // unlisted: it is ended
	n.spawned("small", "a", "dead")
	if why, other := n.waits("large"), n.waits("port"); why != "OutOfcpu" || other != "NodePorts" {
		t.Errorf("while it ends they wait for %q and %q", why, other)
	}
	n.Send(messages.PodAddress("a"), messages.PodEnded{UID: "a", Gone: true})
	n.Send(messages.PodAddress("a"), messages.ChildStopped{Name: "a"})
	n.spawned("small", "a", "dead", "port")
}
