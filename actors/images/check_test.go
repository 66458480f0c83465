package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/images/provider"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

// accounts has the UIDs of service accounts by name. A token contains the name and the hidden word.
type accounts map[string]types.UID

func (a accounts) Account(_ context.Context, pod *v1.Pod) (*v1.ServiceAccount, error) {
	namespace, name := pod.Namespace, pod.Spec.ServiceAccountName
	if a[name] == "" {
		return nil, errors.New("the API server is away")
	}
	return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: a[name]}}, nil
}

func (a accounts) AccountToken(_ context.Context, pod *v1.Pod, _ types.UID, _ string) (string, error) {
	return hiddenWord + " of " + pod.Spec.ServiceAccountName, nil
}

// accountRig has a registry that accepts only the user "plugin", and a credential provider that returns this user for the
// service account robot.
type accountRig struct {
	*fake
	dir      string
	accounts accounts
	log      bytes.Buffer
	kit      *supervisortest.Kit
}

func newAccountRig(t *testing.T) *accountRig {
	t.Helper()
	user := "plugin"
	r := &accountRig{dir: t.TempDir(), accounts: accounts{"robot": "1", "other": "2"},
		fake: &fake{there: map[string]string{}, accepts: &user, pullErr: denied(codes.Unknown, "denied")}}
	script := "#!/bin/sh\necho >> " + r.dir + "/runs\n[ -e " + r.dir + "/broken ] && exit 4\ngrep -q ' of robot' || exit 3\n" +
		`echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image",` +
		`"cacheDuration":"0s","auth":{"r.io":{"username":"plugin","password":"` + hiddenWord + `"}}}'` + "\n"
	config := `{"kind":"CredentialProviderConfig","apiVersion":"kubelet.config.k8s.io/v1","providers":[{"name":"plugin",` +
		`"apiVersion":"credentialprovider.kubelet.k8s.io/v1","matchImages":["r.io"],"defaultCacheDuration":"1m","tokenAttributes":` +
		`{"serviceAccountTokenAudience":"registry","requireServiceAccount":true,"cacheType":"ServiceAccount"}}]}`
	for name, text := range map[string]string{"plugin": script, "config.json": config} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// start restarts the agent.
func (r *accountRig) start(t *testing.T) {
	t.Helper()
	providers, err := provider.Load(filepath.Join(r.dir, "config.json"), r.dir, true, slog.New(slog.NewTextHandler(&r.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r.kit = supervisortest.New(t, messages.Images, New(Options{Service: r.fake, Operations: cri.NewOperations(), Objects: &objectset.Board{},
		Providers: providers, Accounts: r.accounts, Records: pullrecord.New(r.dir),
		Policy: pullrecord.Policy{Kind: kubeletconfig.NeverVerifyPreloadedImages}})("images"))
}

// of returns the request of a pod from the API server with this service account.
func (r *accountRig) of(uid, account string, policy v1.PullPolicy) messages.PullImage {
	m := private(uid)
	m.Policy, m.Pod.UID, m.Pod.Spec.ServiceAccountName = policy, types.UID(uid), account
	m.Pod.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	return m
}

func (r *accountRig) asks(uid, account string, policy v1.PullPolicy) {
	r.kit.Send(messages.PodAddress(uid), r.of(uid, account, policy))
	r.kit.RunWork()
}

func (r *accountRig) runs(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

// An image pulled for a service account is for its pods, as long as a credential provider has credentials for them.
func TestImageAccess_ByServiceAccount(t *testing.T) {
	r := newAccountRig(t)
	r.start(t)
	r.asks("owner", "robot", v1.PullIfNotPresent)
	expect(t, "the owner", reported(r.kit), "pods/owner: id of r.io/app:1 pulled=true")
	r.start(t)
	r.asks("heir", "robot", v1.PullNever)
	expect(t, "after a restart", reported(r.kit), "pods/heir: id of r.io/app:1 pulled=false")
	r.asks("sibling", "robot", v1.PullIfNotPresent)
	r.asks("guest", "robot", v1.PullAlways)
	expect(t, "others of the account", reported(r.kit), "pods/sibling: id of r.io/app:1 pulled=false; pods/guest: id of r.io/app:1 pulled=true")
	runs := r.runs(t)
	r.asks("thief", "other", v1.PullIfNotPresent)
	r.asks("silent", "other", v1.PullNever)
	expect(t, "of another account", reported(r.kit), "pods/thief: ErrImagePull permanent=false; pods/silent: ErrImageNeverPull permanent=false")
	if got := r.runs(t); got != runs+1 {
		t.Errorf("the plugin ran %d times for who pulls and who must not, and has no right to the image", got-runs)
	}
	r.asks("nobody", "", v1.PullNever)
	static := r.of("static", "robot", v1.PullNever)
	static.Pod.Annotations = nil
	r.kit.Send(messages.PodAddress("static"), static)
	r.kit.RunWork()
	heard := reported(r.kit)
	if !strings.Contains(heard, "pods/nobody: ErrImageNeverPull") || !strings.Contains(heard, "pods/static: ErrImageNeverPull") ||
		strings.Contains(heard, "id of") {
		t.Errorf("those without an account are told %s", heard)
	}
	expect(t, "who was shown", strings.Join(r.users, " "), "plugin plugin -")
	if said := fmt.Sprint(r.kit.Take()) + r.log.String(); strings.Contains(said, hiddenWord) {
		t.Errorf("told %s", said)
	}
}

// A service account's credentials are checked for each need, and the failure is reported.
func TestAServiceAccountThatIsRefusedToday(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *accountRig)
		want   string
	}{
		"another of its name": {func(_ *testing.T, r *accountRig) { r.accounts["robot"] = "3" }, "credentials that this pod does not have, and the pull policy is Never"},
		"no API server": {func(_ *testing.T, r *accountRig) { r.accounts["robot"] = "" },
			"; credential provider plugin: could not read the service account default/robot: the API server is away"},
		"a plugin that fails": {func(t *testing.T, r *accountRig) {
			if err := os.WriteFile(filepath.Join(r.dir, "broken"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "; credential provider plugin: exit status 4"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAccountRig(t)
			r.start(t)
			r.asks("owner", "robot", v1.PullIfNotPresent)
			r.kit.Take()
			c.change(t, r)
			r.asks("heir", "robot", v1.PullNever)
			heard := r.kit.Take()
			if said := fmt.Sprintf("%+v", heard); !strings.Contains(said, c.want) || strings.Contains(said, hiddenWord) {
				t.Errorf("told %s", said)
			}
			r.users = nil
			r.asks("sibling", "robot", v1.PullIfNotPresent)
			if len(r.users) == 0 {
				t.Error("who may not use the image is not sent to the registry")
			}
			if name != "another of its name" {
				return
			}
			r.asks("late", "robot", v1.PullNever)
			said := reported(r.kit)
			for _, want := range []string{"pods/heir: id of r.io/app:1 pulled=false", "pods/sibling: id of r.io/app:1 pulled=true",
				"pods/late: id of r.io/app:1 pulled=false"} {
				if !strings.Contains(said, want) {
					t.Errorf("told %s, want %s", said, want)
				}
			}
		})
	}
}

// The result of a check is ignored if its pod has been forgotten, or has asked again since then.
func TestACheckThatIsOvertaken(t *testing.T) {
	r := newAccountRig(t)
	r.start(t)
	r.asks("owner", "robot", v1.PullIfNotPresent)
	r.kit.Take()
	ask := r.of("u", "robot", v1.PullNever)
	r.kit.Send("pods/u", ask)
	look := r.kit.Work[0].Run(t.Context())
	r.kit.Work = nil
	r.kit.Send(messages.Images, look)
	if len(r.kit.Work) != 1 || r.kit.Work[0].Pod != "u" {
		t.Fatalf("the check is %+v", r.kit.Work)
	}
	check := r.kit.Work[0].Run(t.Context())
	r.kit.Work = nil
	r.kit.Send("pods/u", ask) // a repeated question changes nothing
	if len(r.kit.Work) != 0 {
		t.Fatal("it is looked at again")
	}
	r.kit.Send("pods/u", messages.ForgetImages{UID: "u"})
	r.kit.Send(messages.Images, check)
	expect(t, "a pod that is gone", reported(r.kit), "")
	r.kit.Send("pods/u", ask)
	r.kit.Send(messages.Images, check)
	expect(t, "asked anew", reported(r.kit), "")
	r.kit.RunWork()
	expect(t, "asked anew", reported(r.kit), "pods/u: id of r.io/app:1 pulled=false")
}
