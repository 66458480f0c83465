package cri

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

func TestNextRestartCount(t *testing.T) {
	for _, tc := range []struct {
		names []string
		want  uint32
	}{
		{nil, 0},
		{[]string{"0.log"}, 1},
		{[]string{"0.log", "3.log.20250101-000000.gz", "2.log"}, 4},
		{[]string{"x.log", "5", "5.logs", "-1.log", ".log"}, 0},
		{[]string{"99999999999999999999.log", "2147483648.log", "1.log"}, 2},
	} {
		if got := NextRestartCount(tc.names); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.names, got, tc.want)
		}
	}
}
