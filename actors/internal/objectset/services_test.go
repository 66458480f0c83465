package objectset

import (
	"errors"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

// Kubernetes' documented example, and the Services that pods do not see.
func TestTheVariablesOfServices(t *testing.T) {
	named := func(k Key, s *v1.Service) (Key, *v1.Service) { s.Namespace, s.Name = k.Namespace, k.Name; return k, s }
	all := map[Key]*v1.Service{}
	add := func(k Key, s *v1.Service) { k, s = named(k, s); all[k] = s }
	add(Key{"default", "kubernetes"}, service("10.0.0.1", v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}))
	add(Key{"app", "redis-primary"}, service("10.0.0.11", v1.ServicePort{Port: 6379},
		v1.ServicePort{Name: "metrics-a", Port: 9121, Protocol: v1.ProtocolUDP}))
	add(Key{"app", "headless"}, service(v1.ClusterIPNone, v1.ServicePort{Port: 1}))
	add(Key{"app", "six"}, service("fd00::1", v1.ServicePort{Port: 80, Protocol: v1.ProtocolTCP}))
	add(Key{"other", "web"}, service("10.0.0.12", v1.ServicePort{Port: 80}))
	kubernetes := map[string]string{
		"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
		"KUBERNETES_PORT": "tcp://10.0.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.0.0.1:443",
		"KUBERNETES_PORT_443_TCP_PROTO": "tcp",
		"KUBERNETES_PORT_443_TCP_PORT":  "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.0.0.1",
	}
	app := map[string]string{
		"REDIS_PRIMARY_SERVICE_HOST": "10.0.0.11", "REDIS_PRIMARY_SERVICE_PORT": "6379",
		"REDIS_PRIMARY_SERVICE_PORT_METRICS_A": "9121",
		"REDIS_PRIMARY_PORT":                   "tcp://10.0.0.11:6379", "REDIS_PRIMARY_PORT_6379_TCP": "tcp://10.0.0.11:6379",
		"REDIS_PRIMARY_PORT_6379_TCP_PROTO": "tcp", "REDIS_PRIMARY_PORT_6379_TCP_PORT": "6379",
		"REDIS_PRIMARY_PORT_6379_TCP_ADDR": "10.0.0.11",
		"REDIS_PRIMARY_PORT_9121_UDP":      "udp://10.0.0.11:9121", "REDIS_PRIMARY_PORT_9121_UDP_PROTO": "udp",
		"REDIS_PRIMARY_PORT_9121_UDP_PORT": "9121", "REDIS_PRIMARY_PORT_9121_UDP_ADDR": "10.0.0.11",
		"SIX_SERVICE_HOST": "fd00::1", "SIX_SERVICE_PORT": "80", "SIX_PORT": "tcp://[fd00::1]:80",
		"SIX_PORT_80_TCP":       "tcp://[fd00::1]:80",
		"SIX_PORT_80_TCP_PROTO": "tcp", "SIX_PORT_80_TCP_PORT": "80", "SIX_PORT_80_TCP_ADDR": "fd00::1",
	}
	maps.Copy(app, kubernetes)
	b := NewBoard(false)
	b.PutServices(all)
	no := false
	for what, c := range map[string]struct {
		pod  *v1.Pod
		want map[string]string
	}{
		"linked":   {podOf("app", nil), app},
		"unlinked": {podOf("app", &no), kubernetes},
		"alone":    {podOf("empty", nil), kubernetes},
	} {
		if got, err := b.ServiceEnv(c.pod); err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}

func podOf(namespace string, links *bool) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Annotations: map[string]string{"kubernetes.io/config.source": "api"}},
		Spec:       v1.PodSpec{EnableServiceLinks: links},
	}
}

// A pod of the API server waits for the first list, however the API server answers; a static pod and a standalone node do not.
func TestServicesThatWereNotRead(t *testing.T) {
	b := NewBoard(false)
	b.FailServices(errors.New("forbidden"))
	if _, err := b.ServiceEnv(podOf("app", nil)); !IsUnread(err) || !strings.Contains(err.Error(), "Services") ||
		!strings.Contains(err.Error(), "forbidden") {
		t.Errorf("%v", err)
	}
	static := podOf("app", nil)
	static.Annotations = nil
	if env, err := b.ServiceEnv(static); err != nil || len(env) > 0 {
		t.Errorf("%v, %v", env, err)
	}
	if env, err := (*Board)(nil).ServiceEnv(static); err != nil || len(env) > 0 {
		t.Errorf("%v, %v", env, err)
	}
	next := b.next()
	b.PutServices(nil)
	select {
	case <-next:
	default:
		t.Error("who waits is not woken")
	}
	if env, err := b.ServiceEnv(podOf("app", nil)); err != nil || len(env) > 0 {
		t.Errorf("a cluster without Services: %v, %v", env, err)
	}
}
