//go:build e2e

package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// behind is a node behind a proxy, with a frequent request.
type behind struct {
	*Node
	proxy *Proxy
	ns    string
}

func newBehind(t *testing.T) (*Cluster, *behind) {
	c := Shared(t)
	p := c.Proxy(t)
	return c, &behind{c.NodeBehind(t, p), p, c.Namespace(t)}
}

func (b *behind) list(ctx context.Context) error {
	_, err := b.Client.CoreV1().Pods("").List(ctx, b.own())
	return err
}

func (b *behind) own() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", b.Name).String()}
}

func (b *behind) watch(t *testing.T) watch.Interface {
	t.Helper()
	w, err := b.Client.CoreV1().Pods("").Watch(t.Context(), b.own())
	must(t, err)
	t.Cleanup(w.Stop)
	return w
}

func (b *behind) create(t *testing.T, c *Cluster, name string) {
	t.Helper()
	_, err := c.Admin.CoreV1().Pods(b.ns).Create(t.Context(), podOn(b.Name, name), metav1.CreateOptions{})
	must(t, err)
}

// added waits for the event of a pod's creation; every other event but a bookmark is a mistake.
func added(t *testing.T, w watch.Interface, name string) {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if pod, isPod := e.Object.(*corev1.Pod); !ok || !isPod || pod.Name != name {
			t.Errorf("the watch says %v %v, want pod %s", e.Type, e.Object, name)
		}
	case <-time.After(waitLimit):
		t.Errorf("no event of pod %s", name)
	}
}

func TestTheProxyPassesOnWhoAsks(t *testing.T) {
	c, b := newBehind(t)
	nodes := b.Client.CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.Name}}, metav1.CreateOptions{})
	must(t, err)
	_, err = nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Node(t).Name}}, metav1.CreateOptions{})
	refused(t, "another's Node", err)
	w := b.watch(t)
	b.create(t, c, "one")
	added(t, w, "one")
}

func TestTheProxyAnswers(t *testing.T) {
	c, b := newBehind(t)
	w := b.watch(t)
	for code, is := range map[int]func(error) bool{
		http.StatusUnauthorized: apierrors.IsUnauthorized, http.StatusForbidden: apierrors.IsForbidden,
		http.StatusGone: apierrors.IsResourceExpired, http.StatusInternalServerError: apierrors.IsInternalError,
		http.StatusConflict: apierrors.IsConflict,
	} {
		b.proxy.Answer(code)
		if err := b.list(t.Context()); !is(err) {
			t.Errorf("with %d a list gives %v", code, err)
		}
	}
	calls := 0
	b.proxy.AnswerWhere(func(r *http.Request) int {
		if r.URL.Query().Get("fieldSelector") == "" {
			return http.StatusNotFound
		}
		if calls++; calls == 1 {
			return http.StatusTooManyRequests // which the client waits for, and tries again
		}
		return 0
	})
	must(t, b.list(t.Context()))
	if calls != 2 {
		t.Errorf("%d lists came to the proxy, want 2", calls)
	}
	if _, err := b.Client.CoreV1().Nodes().Get(t.Context(), b.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a request that the function answers gives %v", err)
	}
	b.proxy.Answer(0)
	must(t, b.list(t.Context()))
	b.create(t, c, "one")
	added(t, w, "one") // the watch was not touched
}

func TestTheProxyCutsAndRefuses(t *testing.T) {
	_, b := newBehind(t)
	w := b.watch(t)
	b.proxy.Cut()
	if e, ok := <-w.ResultChan(); ok {
		t.Errorf("a watch that was cut says %v", e)
	}
	w = b.watch(t) // on a new connection
	b.proxy.Refuse()
	if e, ok := <-w.ResultChan(); ok {
		t.Errorf("a watch that was cut says %v", e)
	}
	blind := &tls.Config{InsecureSkipVerify: true} // so that no certificate causes the rejection
	if conn, err := tls.Dial("tcp", strings.TrimPrefix(b.proxy.URL, "https://"), blind); err == nil {
		t.Errorf("a connection that should be refused is there, %v", conn.Close())
	}
	b.proxy.Admit()
	must(t, b.list(t.Context()))
}

func TestTheProxyDelaysAndFreezes(t *testing.T) {
	c, b := newBehind(t)
	w := b.watch(t)
	b.proxy.Delay(time.Hour)
	unanswered(t, b)
	b.proxy.Delay(0)
	b.create(t, c, "one")
	added(t, w, "one")

	b.proxy.Freeze()
	b.create(t, c, "two")
	unanswered(t, b)
	if len(w.ResultChan()) > 0 {
		t.Error("a frozen watch has an event")
	}
	b.proxy.Thaw()
	added(t, w, "two")
	must(t, b.list(t.Context()))
}

// unanswered checks that a request is not answered while its client waits.
func unanswered(t *testing.T, b *behind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := b.list(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("there is an answer: %v", err)
	}
}

func TestTheProxyWithoutAServer(t *testing.T) {
	c := Start(t)
	p := c.Proxy(t)
	b := &behind{Node: c.NodeBehind(t, p), proxy: p}
	must(t, b.list(t.Context()))
	must(t, c.KillAPIServer())
	if err := b.list(t.Context()); err == nil || isStatus(err) {
		t.Errorf("without a server a list gives %v", err)
	}
	must(t, c.StartAPIServer())
	await(t, func() error { return b.list(t.Context()) })
	if passed, failed := p.Counts(); passed < 3 || failed != 0 {
		t.Errorf("%d requests passed on, %d answered otherwise", passed, failed)
	}
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
