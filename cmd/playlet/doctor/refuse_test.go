package doctor

import (
	"os"
	"strings"
	"testing"
)

// Problems that would stop the agent are rejected; conditions that may be met later, such as the runtime's start, are not.
func TestWhatCannotWorkIsRefused(t *testing.T) {
	r := newRig(t)
	r.runtime.err = os.ErrDeadlineExceeded
	if err := refusal(t.Context(), r.Machine); err != nil {
		t.Errorf("a machine whose runtime is not started yet: %v", err)
	}
	r.manifest("b", "hostname: 1")
	if err := refusal(t.Context(), r.Machine); err != nil {
		t.Errorf("a bad manifest among others: %v", err)
	}
	file := t.TempDir() + "/f"
	r.write(file, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhealthzPrt: 1\n")
	if err := Refuse(t.Context(), []string{"--config=" + file}); err == nil || !strings.Contains(err.Error(), `unknown field "healthzPrt", line 3: did you mean healthzPort?`) {
		t.Errorf("%v", err)
	}
}
