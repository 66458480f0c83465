package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/images"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/actors/pods"
	"github.com/playlet-dev/playlet/cri/sim"
	"github.com/playlet-dev/playlet/messages"
)

// Each failure to get an image has its own reason in the container's status. containerd cannot be made to fail an inspection, to
// report an unavailable registry by its name, or to reject a signature; the simulated runtime can.
func TestReasonsOfImagesInTheStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Images: map[string]sim.Image{
		"missing:1": {Err: status.Error(codes.NotFound, "failed to resolve reference: not found")},
		"away:1":    {Err: status.Error(codes.Unavailable, "the registry answers 503")},
		"said:1":    {Err: status.Error(codes.Unknown, "RegistryUnavailable: the registry answers 503")},
		"forged:1":  {Err: status.Error(codes.Unknown, "SignatureValidationFailed: no key")},
	}})
	r.runtime.Inject(sim.Fault{Call: "ImageStatus", Kind: sim.Error, Times: -1, Match: func(_ sim.Target, request any) bool {
		asked, ok := request.(*runtimeapi.ImageStatusRequest)
		return ok && asked.Image.GetImage() == "broken:1"
	}})
	wants := map[string]string{
		"missing": "ErrImagePull", "away": "ErrImagePull", "said": "RegistryUnavailable", "forged": "SignatureValidationFailed",
		"broken": "ImageInspectError", "never": "ErrImageNeverPull", "bad": "InvalidImageName",
	}
	for name := range wants {
		image := name + ":1"
		if name == "bad" {
			image = "Not/A:Name"
		}
		m := manifest(name, "Always", nil, []string{"main " + image})
		if name == "never" {
			m += "    imagePullPolicy: Never\n"
		}
		r.write(name+".yaml", m)
	}
	r.start(nil)
	said := map[string][]string{}
	seen := func() bool {
		for _, p := range r.agent.observatory.board.Now().Pods {
			if p.Status == nil || len(p.Status.ContainerStatuses) == 0 {
				continue
			}
			name := strings.TrimSuffix(p.Pod.Name, "-node")
			if w := p.Status.ContainerStatuses[0].State.Waiting; w != nil && w.Message != "" &&
				!slices.Contains(said[name], w.Reason) {
				said[name] = append(said[name], w.Reason)
			}
		}
		for name, want := range wants {
			if !slices.Contains(said[name], want) {
				return false
			}
		}
		return slices.Contains(said["missing"], "ImagePullBackOff")
	}
	for deadline := time.Now().Add(waitLimit); !seen(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("said %v", said)
		}
	}
	if n := len(r.runtime.Snapshot().Containers); n > 0 {
		t.Errorf("%d containers were made", n)
	}
}

// The pull settings of the configuration and of old kubelets' flags reach the actors that pull.
func TestConfigurationOfPulls(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  images.Options
	}{
		{nil, images.Options{Serialize: true, MaxParallel: 1, QPS: 5, Burst: 10}},
		{[]string{"--serialize-image-pulls=false", "--registry-qps=3", "--registry-burst=4"}, images.Options{QPS: 3, Burst: 4}},
		{[]string{"--registry-qps=0"}, images.Options{Serialize: true, MaxParallel: 1, Burst: 10}},
	} {
		r := newRig(t, sim.Options{}, c.flags...)
		node := r.node()
		got := pullOptions(node)
		if got.AuthFiles[0] != filepath.Join(node.RootDir, "config.json") {
			t.Errorf("the node's docker configuration is looked for in %v", got.AuthFiles)
		}
		if got.Policy.Kind != "NeverVerifyPreloadedImages" {
			t.Errorf("credentials are verified by %q", got.Policy.Kind)
		}
		got.AuthFiles, got.Policy = nil, pullrecord.Policy{}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v", c.flags, got)
		}
	}
}

// A private image that one pod pulled is not available to another: not after a restart of the agent, not with Never, and not
// after two collections, one of which keeps it and one of which removes it.
func TestPrivateImagesStayPrivate(t *testing.T) {
	r := newRig(t, sim.Options{Images: map[string]sim.Image{"r.io/app:1": {Username: "a", Password: "hunter2"}}},
		"--minimum-image-ttl-duration=0s")
	r.file("objects/secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: pull, namespace: default}\n"+
		"type: kubernetes.io/dockerconfigjson\nstringData:\n"+
		`  .dockerconfigjson: '{"auths":{"r.io":{"username":"a","password":"hunter2"}}}'`+"\n")
	pod := func(name, policy, secret string) {
		m := manifest(name, "Always", nil, []string{"main r.io/app:1"}) + "    imagePullPolicy: " + policy + "\n"
		if secret != "" {
			m += "  imagePullSecrets: [{name: " + secret + "}]\n"
		}
		r.write(name+".yaml", m)
	}
	waits := func(name, reasons string) {
		t.Helper()
		r.awaitPod(name+"-node", func(p *pods.PublishedPod) bool {
			if p.Status == nil || len(p.Status.ContainerStatuses) == 0 {
				return false
			}
			w := p.Status.ContainerStatuses[0].State.Waiting
			return w != nil && strings.Contains(reasons, w.Reason) && strings.Contains(w.Message, "credentials that this pod does not have")
		})
	}
	runs := func(name string) {
		t.Helper()
		r.awaitPod(name+"-node", func(p *pods.PublishedPod) bool {
			return p.Status != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
		})
	}
	r.start(nil)
	pod("owner", "IfNotPresent", "pull")
	runs("owner")
	pulls := len(r.runtime.Calls("PullImage"))
	pod("guest", "IfNotPresent", "pull")
	runs("guest")
	if n := len(r.runtime.Calls("PullImage")); n != pulls {
		t.Errorf("%d more pulls for a pod of the same Secret", n-pulls)
	}
	pod("thief", "IfNotPresent", "")
	waits("thief", "ErrImagePull ImagePullBackOff")
	r.stop()
	pod("silent", "Never", "")
	r.start(nil)
	waits("silent", "ErrImageNeverPull ImagePullBackOff")
	waits("thief", "ErrImagePull ImagePullBackOff")
	pod("heir", "Never", "pull")
	runs("heir")
	if n := len(r.runtime.Snapshot().Containers); n != 3 {
		t.Errorf("%d containers, want those of owner, guest and heir", n)
	}
	there := func(image string) bool { return slices.Contains(r.runtime.Snapshot().Images, image) }
	collected := func(what string, ok func() bool) {
		t.Helper()
		said := ""
		for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: collections do not lead to it: %s", what, said)
			}
			r.agent.system.Tell(messages.Images, messages.ReclaimImages{}) // its survey drops removed images
			out, notes, _ := r.playlet("images", "prune")
			said = out + notes
		}
	}
	r.write("spare.yaml", manifest("spare", "Always", nil, []string{"main r.io/spare:1"}))
	runs("spare")
	r.stop()
	r.remove("spare.yaml")
	r.start(nil)
	collected("an image that nobody uses goes", func() bool { return !there("r.io/spare:1") })
	if !there("r.io/app:1") {
		t.Fatal("an image in use was collected")
	}
	r.stop()
	r.start(nil)
	pod("after", "Never", "")
	waits("after", "ErrImageNeverPull ImagePullBackOff")
	waits("thief", "ErrImagePull ImagePullBackOff")

	for _, name := range []string{"owner", "guest", "heir", "thief", "silent", "after"} {
		r.remove(name + ".yaml")
	}
	r.write("keeper.yaml", manifest("keeper", "Always", nil, []string{"main r.io/keeper:1"})) // a list without images is not believed
	runs("keeper")
	r.stop()
	r.start(nil)
	collected("the private image goes, and its record", func() bool {
		records, err := filepath.Glob(filepath.Join(r.node().RootDir, "image_manager", "pulled", "*"))
		return err == nil && !there("r.io/app:1") && !slices.ContainsFunc(records, func(path string) bool {
			data, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(data), "r.io/app")
		})
	})
	pod("second", "IfNotPresent", "pull")
	runs("second")
	r.stop()
	pod("late", "Never", "")
	pod("latest", "IfNotPresent", "")
	r.start(nil)
	waits("late", "ErrImageNeverPull ImagePullBackOff")
	waits("latest", "ErrImagePull ImagePullBackOff")
	if n := len(r.runtime.Snapshot().Containers); n != 2 {
		t.Errorf("%d containers, want those of second and keeper", n)
	}
	if log := r.log.String(); strings.Contains(log, "hunter2") {
		t.Error("the log tells a password")
	}
}
