package kinds

import (
	"context"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/actors/volumes/satoken"
	"github.com/playlet-dev/playlet/actors/volumes/volumestest"
)

// mint provides one token.
type mint struct{}

func (mint) Forget(types.UID) {}

func (mint) Token(context.Context, *v1.Pod, string, *int64) (satoken.Token, error) {
	return satoken.Token{Text: "token", Renew: time.Now().Add(time.Hour)}, nil
}

func tokenPod(uid string) *v1.Pod {
	life := int64(600)
	pod := volumestest.InNamespace(volumestest.PodWith(uid, volumestest.ProjectedVolume("v", v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
		Audience: "vault", ExpirationSeconds: &life, Path: "token",
	}})))
	pod.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	pod.Spec.ServiceAccountName = "web"
	return pod
}

// The pod's users and groups decide the mode and the owner of a token.
func TestTheModeOfAToken(t *testing.T) {
	volumestest.NeedMounts(t)
	one, two := int64(1234), int64(4321)
	for name, c := range map[string]struct {
		how  func(*v1.Pod)
		mode fs.FileMode
		user int
	}{
		"anybody": {func(*v1.Pod) {}, 0o644, 0},
		"a user":  {func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &one} }, 0o600, 1234},
		"a group": {func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &one} }, 0o640, 0},
		"both": {func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &two, FSGroup: &one} }, 0o640,
			4321},
		"two of them": {func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: &one}
			p.Spec.InitContainers = []v1.Container{{SecurityContext: &v1.SecurityContext{RunAsUser: &two}}}
		}, 0o644, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			d.node.Objects, d.node.Tokens = objectset.NewBoard(false), mint{}
			pod := tokenPod("u")
			c.how(pod)
			for range 2 { // the second time the token exists
				link := filepath.Join(mountedAt(t, d, pod), "token")
				real, err := filepath.EvalSymlinks(link)
				must(t, err)
				if m, u, l := mode(t, real), ownerOf(t, real), ownerOf(t, link); m != c.mode || u != c.user || l != c.user {
					t.Errorf("mode %s of user %d, the link of user %d", m, u, l)
				}
			}
			d.unmount(t, pod)
		})
	}
	static := tokenPod("s")
	static.Annotations = nil
	d := newDisk(t)
	d.node.Tokens = mint{}
	if _, err := d.mount(t, static); !IsPermanent(err) {
		t.Errorf("a static pod: %v", err)
	}
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Lstat(path, &stat))
	return int(stat.Uid)
}
