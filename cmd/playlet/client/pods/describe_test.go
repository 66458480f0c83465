package pods

import (
	"strings"
	"testing"
	"text/tabwriter"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

// An exit code is followed by its meaning, a probe by the message of its last failure.
func TestDescription(t *testing.T) {
	p := fake.Pod("a", v1.PodRunning, fake.Runs(false))
	c := &p.Pod.Spec.Containers[0]
	c.Image, c.Command = "hello:1", []string{"sh", "-c"}
	c.ReadinessProbe = &v1.Probe{PeriodSeconds: 10, ProbeHandler: v1.ProbeHandler{
		HTTPGet: &v1.HTTPGetAction{Scheme: "HTTP", Path: "/ok", Port: intstr.FromInt32(80)}}}
	c.VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/data", ReadOnly: true}}
	p.Pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}}
	p.Pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{
		ExitCode: 137, Reason: "OOMKilled", FinishedAt: fake.Ago(0)}
	p.CPUs = map[string]string{"a": "1,3"}
	var out strings.Builder
	d := &description{w: tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0), pod: p, now: fake.Noon, events: []v1.Event{{
		InvolvedObject: v1.ObjectReference{FieldPath: "spec.containers{a}"}, LastTimestamp: metav1.NewTime(fake.Noon),
		Message: "Readiness probe failed: HTTP probe failed with statuscode: 500"}}}
	d.print()
	if err := d.w.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"exit code 137 (OOMKilled): killed for using more memory than its limit allows",
		"http :80/ok every 10s; has not succeeded; last failure 0s ago: HTTP probe failed with statuscode: 500",
		"/data from v, read-only", "configMap settings", "sh -c", "runs since",
		"Own CPUs:",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
	for code, want := range map[int32]string{0: "exit code 0", 127: "a command was not found", 139: "ended by SIGSEGV",
		143: "ended by SIGTERM, as when it is stopped"} {
		if got := exitMeaning(&v1.ContainerStateTerminated{ExitCode: code}); !strings.HasSuffix(got, want) {
			t.Errorf("%d: %s", code, got)
		}
	}
}
