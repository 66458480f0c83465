package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestImageUser(t *testing.T) {
	for _, tc := range []struct {
		image *runtimeapi.Image
		uid   int64
		named bool
		name  string
	}{
		{nil, 0, false, ""},
		{&runtimeapi.Image{}, 0, false, ""},
		{&runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 7}, Username: "x"}, 7, false, ""},
		{&runtimeapi.Image{Username: "x"}, 0, true, "x"},
	} {
		uid, name := ImageUser(tc.image)
		if name != tc.name || (uid == nil) != tc.named || uid != nil && *uid != tc.uid {
			t.Errorf("%v: %v, %q", tc.image, uid, name)
		}
	}
}
