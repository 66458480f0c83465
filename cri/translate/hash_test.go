package translate

import (
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/playlet-dev/playlet/cri"
)

// The expected values were computed by the kubelet 1.36.3.
func TestKubeletHash(t *testing.T) {
	for _, tc := range []struct {
		name, image string
		want        uint64
	}{
		{"test_container", "foo/image:v1", 0x8e45cbd0},
		{"foo", "bar", 0x11a6d6d6},
	} {
		c := &v1.Container{Name: tc.name, Image: tc.image, Args: []string{"x"}}
		if got := KubeletHash(c); got != tc.want {
			t.Errorf("%s %s: %x, want %x", tc.name, tc.image, got, tc.want)
		}
	}
}

// TestSpecHashIsStable fails when the hash of a given container changes, which
// would restart every container on the upgrade of an agent: raise
// specHashVersion then.
func TestSpecHashIsStable(t *testing.T) {
	got, err := SpecHash(&v1.Container{Name: "a", Image: "b", Env: []v1.EnvVar{{Name: "K", Value: "V"}}})
	if err != nil || got != "1-a0fc014d13b7d984940b88488a703d4a" {
		t.Errorf("%s, %v", got, err)
	}
}

func TestChanged(t *testing.T) {
	base := func() *v1.Container {
		return &v1.Container{
			Name: "a", Image: "example.org/a:1", Command: []string{"run"},
			Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
		}
	}
	spec, err := SpecHash(base())
	if err != nil {
		t.Fatal(err)
	}
	kubelet := strconv.FormatUint(KubeletHash(base()), 16)
	ours := map[string]string{cri.AnnotationHash: kubelet, cri.AnnotationSpecHash: spec}
	theirs := map[string]string{cri.AnnotationHash: kubelet}
	otherRelease := map[string]string{cri.AnnotationHash: kubelet, cri.AnnotationSpecHash: "0-whatever"}
	for _, tc := range []struct {
		name   string
		change func(*v1.Container)
		ours   bool // expected result of each function
		theirs bool
	}{
		{"nothing", func(*v1.Container) {}, false, false},
		{"resources", func(c *v1.Container) { c.Resources = v1.ResourceRequirements{} }, false, false},
		{"resize policy", func(c *v1.Container) { c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: "cpu"}} }, false,
			false},
		{"command", func(c *v1.Container) { c.Command = []string{"other"} }, true, false},
		{"environment", func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "A"}} }, true, false},
		{"image", func(c *v1.Container) { c.Image = "example.org/a:2" }, true, true},
		{"name", func(c *v1.Container) { c.Name = "b" }, true, true},
	} {
		c := base()
		tc.change(c)
		if got := Changed(c, ours); got != tc.ours {
			t.Errorf("%s, created here: %t", tc.name, got)
		}
		if got := Changed(c, theirs); got != tc.theirs {
			t.Errorf("%s, created by a kubelet: %t", tc.name, got)
		}
		if got := Changed(c, otherRelease); got != tc.theirs {
			t.Errorf("%s, created by another release: %t", tc.name, got)
		}
	}
	for _, unreadable := range []map[string]string{nil, {cri.AnnotationHash: "not hexadecimal"}} {
		if !Changed(base(), unreadable) {
			t.Errorf("%v counts as unchanged", unreadable)
		}
	}
}
