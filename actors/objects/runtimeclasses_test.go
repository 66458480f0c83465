package objects

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
)

func class(name, handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
}

// handler is the board's word on the class "second", for a pod of the API server.
func (a *api) handler() (string, error) {
	p := apiPod("u")
	p.Spec.RuntimeClassName = new("second")
	return a.board.RuntimeHandler(p)
}

func TestRuntimeClassesAreFollowed(t *testing.T) {
	a := newAPI(t, 0, class("first", "runc"))
	is := func(want string) func() bool {
		return func() bool {
			handler, err := a.handler()
			return handler == want && (want != "" || err != nil && !objectset.IsUnread(err))
		}
	}
	a.c.followRuntimeClasses()
	a.await("it is not there", is(""))
	a.await("a watch", func() bool { return a.count("watch runtimeclasses") > 0 })
	classes := a.client.NodeV1().RuntimeClasses()
	_, err := classes.Create(t.Context(), class("second", "kata"), metav1.CreateOptions{})
	must(t, err)
	a.await("it comes", is("kata"))
	_, err = classes.Update(t.Context(), class("second", "gvisor"), metav1.UpdateOptions{})
	must(t, err)
	a.await("it changes", is("gvisor"))
	must(t, classes.Delete(t.Context(), "second", metav1.DeleteOptions{}))
	a.await("it goes", is(""))
}

// A pod that waits for a RuntimeClass gets the reason. When the server answers again, the class is found.
func TestRuntimeClasses_ForbiddenAtFirst(t *testing.T) {
	for name, no := range map[string]error{
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "runtimeclasses"}, "", nil),
		"Too Many":  apierrors.NewTooManyRequestsError("busy"),
		"gone":      errors.New("the connection is gone"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t, 0, class("second", "kata"))
			allowed := make(chan struct{})
			refused := func() bool {
				select {
				case <-allowed:
					return false
				default:
					return true
				}
			}
			a.client.PrependReactor("list", "runtimeclasses",
				func(clienttesting.Action) (bool, runtime.Object, error) { return refused(), nil, no })
			a.client.PrependWatchReactor("runtimeclasses",
				func(clienttesting.Action) (bool, apiwatch.Interface, error) { return refused(), nil, no })
			a.c.followRuntimeClasses()
			a.await(name, func() bool {
				_, err := a.handler()
				return objectset.IsUnread(err) && strings.Contains(err.Error(), name)
			})
			close(allowed)
			a.await("then it is read", func() bool {
				handler, err := a.handler()
				return handler == "kata" && err == nil
			})
		})
	}
}

// The folder's classes are published with its other objects; of two of one name the first file's counts.
func TestRuntimeClassesOfTheFolder(t *testing.T) {
	f := newFolder(t)
	text := func(handler string) string {
		return "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: second}\nhandler: " + handler + "\n"
	}
	f.write("b.yaml", text("gvisor"))
	f.write("a.yaml", configMap("one", "1")+"---\n"+text("kata"))
	r := f.m.read(f.w)
	if has(r) != "default/one=1" || len(r.set.RuntimeClasses) != 1 || r.set.RuntimeClasses["second"] != "kata" {
		t.Errorf("read %+v", r.set)
	}
	if len(r.problems) != 1 || !strings.Contains(r.problems[0].Message, "RuntimeClass second is in ") {
		t.Errorf("problems %+v", r.problems)
	}
	f.write("a.yaml", text("Not a name"))
	if r := f.m.read(f.w); r.set.RuntimeClasses["second"] != "kata" || len(r.problems) != 2 || !r.problems[0].KeptLast {
		t.Errorf("read %+v, problems %+v", r.set, r.problems)
	}
	board := NewBoard(true)
	board.Publish(r.set)
	if handler, err := board.RuntimeHandler(&v1.Pod{Spec: v1.PodSpec{RuntimeClassName: new("second")}}); handler != "kata" ||
		err != nil {
		t.Errorf("published %q, %v", handler, err)
	}
}
