package objects

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

func web(ip string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP}}},
	}
}

// host waits until the environment of pods has this address of the Service; empty for none.
func (a *api) host(want string) {
	a.t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		env, err := a.board.ServiceEnv(apiPod("u"))
		if err == nil && env["WEB_SERVICE_HOST"] == want {
			return
		}
		if time.Now().After(deadline) {
			a.t.Fatalf("%v, %v, want the host %q", env, err, want)
		}
	}
}

func TestServicesAreFollowed(t *testing.T) {
	a := newAPI(t, 0, web("10.0.0.1"))
	a.c.followServices()
	a.host("10.0.0.1")
	for deadline := time.Now().Add(timeout); a.count("watch services") == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	services := a.client.CoreV1().Services("ns")
	if _, err := services.Update(t.Context(), web("10.0.0.2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.host("10.0.0.2")
	if err := services.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.host("")
}

// A container that waits for Services gets the reason.
func TestServicesThatMayNotBeRead(t *testing.T) {
	a := newAPI(t, 0)
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil)
	a.client.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, no })
	a.client.PrependWatchReactor("services", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
		return true, nil,
			no
	})
	a.c.followServices()
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		_, err := a.board.ServiceEnv(apiPod("u"))
		if objectset.IsUnread(err) && strings.Contains(err.Error(), "forbidden") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
