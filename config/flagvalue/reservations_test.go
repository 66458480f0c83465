package flagvalue

import (
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// The first use replaces the value of the file, and others add to it.
func TestReservations(t *testing.T) {
	value := []kubeletconfig.MemoryReservation{{NumaNode: 7}}
	r := &Reservations{To: &value}
	for _, text := range []string{"0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi", "2:memory=5"} {
		if err := r.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := r.String(), "0:hugepages-2Mi=4Mi,memory=1Gi;1:memory=2Gi;2:memory=5"; got != want || len(value) != 3 {
		t.Errorf("got %s, want %s", got, want)
	}
	for text, want := range map[string]string{
		"0": "must be node:type=quantity", "x:memory=1": "must be node:type=quantity", "0:memory": "must be type=quantity",
		"99999999999:memory=1": "must be node:type=quantity",
	} {
		if err := r.Set(text); err == nil || !strings.Contains(err.Error(), want) || len(value) != 3 {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
