package work

import (
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(5)),
			Containers: []v1.Container{{Name: "c0", Image: "image"}},
		},
	}
}

// of executes a piece of work, and returns its result.
func of[T any](t *testing.T, h *host.Host, p Piece) T {
	t.Helper()
	done, ok := Of(p, h, 0).Run(t.Context()).(T)
	if !ok {
		t.Fatalf("%T has a result of another piece of work", p)
	}
	return done
}
