package images

import (
	"strings"
	"testing"
)

func TestRuntimeName(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	tests := []struct {
		image, want string
		bad         bool
	}{
		{image: "busybox", want: "busybox:latest"},
		{image: "busybox:1.36", want: "busybox:1.36"},
		{image: "busybox:latest", want: "busybox:latest"},
		{image: "a/b", want: "a/b:latest"},
		{image: "localhost:5000/pause", want: "localhost:5000/pause:latest"},
		{image: "registry.k8s.io/pause:3.10", want: "registry.k8s.io/pause:3.10"},
		{image: "busybox" + digest, want: "busybox" + digest},
		{image: "busybox:1" + digest, want: "busybox:1" + digest},
		{image: "", bad: true},
		{image: "Busybox", bad: true},
		{image: "busybox:", bad: true},
		{image: "busybox@sha256:12", bad: true},
		{image: "https://example.com/x", bad: true},
		{image: "a b", bad: true},
		{image: strings.Repeat("0", 64), bad: true}, // an ID is not a name
		{image: strings.Repeat("a/", 130) + "a", bad: true},
	}
	for _, tc := range tests {
		got, err := runtimeName(tc.image)
		if got != tc.want || (err != nil) != tc.bad {
			t.Errorf("%q: %q, %v; want %q", tc.image, got, err, tc.want)
		}
	}
}

func FuzzRuntimeName(f *testing.F) {
	for _, s := range []string{"busybox", "a:b@sha256:c", "x/y:z", ":", "@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		name, err := runtimeName(image)
		if err != nil {
			return
		}
		again, err := runtimeName(name)
		if err != nil || again != name {
			t.Errorf("%q became %q, and that %q, %v", image, name, again, err)
		}
	})
}
