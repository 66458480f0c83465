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
		got, err := parseName(tc.image)
		if got.runtime != tc.want || (err != nil) != tc.bad {
			t.Errorf("%q: %+v, %v; want %q", tc.image, got, err, tc.want)
		}
	}
}

func TestWhereAnImageIs(t *testing.T) {
	for image, want := range map[string]string{
		"busybox":    "docker.io docker.io/library/busybox",
		"team/app:1": "docker.io docker.io/team/app",
		"r.io:5000/a/b@sha256:" + strings.Repeat("0", 64): "r.io:5000 r.io:5000/a/b",
		"localhost/a":                "localhost localhost/a",
		"index.docker.io/team/app:1": "docker.io docker.io/team/app",
	} {
		n, err := parseName(image)
		if got := n.registry + " " + n.repository; err != nil || got != want {
			t.Errorf("%s: %s, %v", image, got, err)
		}
	}
}

func FuzzImageName(f *testing.F) {
	for _, s := range []string{"busybox", "a:b@sha256:c", "x/y:z", ":", "@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		name, err := parseName(image)
		if err != nil {
			return
		}
		again, err := parseName(name.runtime)
		if err != nil || again != name {
			t.Errorf("%q became %+v, and that %+v, %v", image, name, again, err)
		}
	})
}
