package translate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLogPaths(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u-1"}}
	if got := ContainerLogDir("/var/log/pods", pod, "app"); got != "/var/log/pods/default_web_u-1/app" {
		t.Error(got)
	}
	if got := ContainerLogPath("app", 7); got != "app/7.log" {
		t.Error(got)
	}
}
