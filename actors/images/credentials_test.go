package images

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/images/provider"
	"github.com/playlet-dev/playlet/actors/images/pullrecord"
	"github.com/playlet-dev/playlet/actors/internal/objectset"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

const hiddenWord = "hunter2"

// registrySecret returns a pull secret for r.io with its own name as the user.
func registrySecret(name string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"r.io":{"username":%q,"password":%q}}}`, name, hiddenWord)},
	}
}

func boardOf(secrets ...*v1.Secret) *objectset.Set {
	set := &objectset.Set{Secrets: map[objectset.Key]*v1.Secret{}}
	for _, s := range secrets {
		set.Secrets[objectset.Key{Namespace: s.Namespace, Name: s.Name}] = s
	}
	return set
}

// private returns a request for an image of r.io with these pull secrets.
func private(uid string, secrets ...string) messages.PullImage {
	m := puller(uid, "r.io/app:1", v1.PullAlways)
	m.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid}}
	for _, s := range secrets {
		m.Pod.Spec.ImagePullSecrets = append(m.Pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
	}
	return m
}

func denied(code codes.Code, why string) error {
	return &cri.CallError{Call: "PullImage", Object: "r.io/app:1", Answered: true, Err: status.Error(code, why)}
}

type authCase struct {
	secrets  []string
	accepts  string // the user that the registry accepts
	refusal  error
	node     string // the node's own docker configuration
	wantAuth string // the users tried
	want     string // a part of the report
}

func TestCredentialsAreTriedInTurn(t *testing.T) {
	plain := denied(codes.Unknown, "pull access denied with "+hiddenWord)
	unknowing := denied(codes.Unknown, "pull access denied") // a runtime without the credential cannot reveal it
	away := denied(codes.Unknown, "RegistryUnavailable: nobody answers")
	away.(*cri.CallError).Reason = crierrors.ErrRegistryUnavailable
	file := `{"auths":{"*.io":{"username":"node","password":"x"}}}`
	for name, c := range map[string]authCase{
		"the first": {secrets: []string{"a", "b"}, accepts: "a", refusal: plain, wantAuth: "a",
			want: "id of r.io/app:1"},
		"the second":   {secrets: []string{"a", "b"}, accepts: "b", refusal: plain, wantAuth: "a b", want: "id of"},
		"none of them": {secrets: []string{"a"}, accepts: "", refusal: plain, wantAuth: "a -", want: "id of"},
		"no secrets":   {accepts: "", wantAuth: "-", want: "id of"},
		"the node's own": {secrets: []string{"a"}, accepts: "node", refusal: plain, node: file, wantAuth: "a node",
			want: "id of"},
		"nobody": {secrets: []string{"a", "b"}, accepts: "x", refusal: plain, node: file,
			wantAuth: "a b node -", want: "ErrImagePull"},
		"a registry that is away": {secrets: []string{"a", "b"}, accepts: "x", refusal: away, wantAuth: "a",
			want: "RegistryUnavailable"},
		"a secret that is missing": {secrets: []string{"gone", "a"}, accepts: "a", refusal: plain, wantAuth: "a",
			want: "id of"},
		"only one that is missing": {secrets: []string{"gone"}, accepts: "x", refusal: unknowing, wantAuth: "-",
			want: "Secret default/gone does not exist"},
		"one of another type": {secrets: []string{"opaque", ""}, accepts: "x", refusal: unknowing, wantAuth: "-",
			want: "Secret default/opaque is neither"},
		"a configuration unreadable": {accepts: "x", refusal: unknowing, node: hiddenWord, wantAuth: "-",
			want: "is not a docker configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			opaque := registrySecret("opaque")
			opaque.Type = v1.SecretTypeOpaque
			board := &objectset.Board{}
			board.Publish(boardOf(registrySecret("a"), registrySecret("b"), opaque))
			f := &fake{there: map[string]string{}, accepts: &c.accepts, pullErr: c.refusal}
			opts := Options{Service: f, Operations: cri.NewOperations(), Serialize: true, Objects: board}
			if c.node != "" {
				opts.AuthFiles = []string{filepath.Join(t.TempDir(), "config.json")}
				if err := os.WriteFile(opts.AuthFiles[0], []byte(c.node), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			k := supervisortest.New(t, messages.Images, New(opts)("images"))
			k.Send("pods/u", private("u", c.secrets...))
			k.RunWork()
			if got := strings.Join(f.users, " "); got != c.wantAuth {
				t.Errorf("tried %q, want %q", got, c.wantAuth)
			}
			said := fmt.Sprintf("%+v", k.Take())
			if !strings.Contains(said, c.want) || strings.Contains(said, hiddenWord) {
				t.Errorf("told %s", said)
			}
		})
	}
}

// A new or changed Secret is tried at once. A repeated ObjectsChanged has no effect.
func TestAChangedSecretEndsTheBackOff(t *testing.T) {
	board := &objectset.Board{}
	board.Publish(boardOf())
	accepts := "a"
	f := &fake{there: map[string]string{}, accepts: &accepts, pullErr: denied(codes.Unknown, "pull access denied")}
	k := supervisortest.New(t, messages.Images, New(Options{Service: f, Operations: cri.NewOperations(), Serialize: true,
		Objects: board})("images"))
	k.Send("pods/u", private("u", "a"))
	k.RunWork()
	expect(t, "told", reported(k), "pods/u: ErrImagePull permanent=false")
	k.Send(messages.Objects, messages.ObjectsChanged{Version: 1})
	if len(k.Work) != 0 {
		t.Fatal("pulled again though nothing changed")
	}
	board.Publish(boardOf(registrySecret("a")))
	k.Send(messages.Objects, messages.ObjectsChanged{Version: 2})
	k.RunWork()
	expect(t, "told", reported(k), "pods/u: id of r.io/app:1 pulled=true")
	expect(t, "tried", strings.Join(f.users, " "), "- a")
}

// A restarted actor joins a pull with the same credentials. The key of the operation does not reveal them.
func TestAPullWithCredentialsIsJoined(t *testing.T) {
	board := &objectset.Board{}
	board.Publish(boardOf(registrySecret("a")))
	ops := cri.NewOperations()
	f := &fake{there: map[string]string{}, hold: make(chan struct{}), pullBegan: make(chan struct{})}
	constructor := New(Options{Service: f, Operations: ops, Serialize: true, Objects: board})
	first := supervisortest.New(t, messages.Images, constructor("images"))
	first.Send("pods/u", private("u", "a"))
	ended := make(chan any)
	go func() { ended <- first.Work[0].Run(t.Context()) }()
	<-f.pullBegan
	if under := fmt.Sprint(ops.InFlight("")); !strings.Contains(under, "r.io/app:1") || strings.Contains(under, hiddenWord) {
		t.Errorf("under way: %s", under)
	}
	second := supervisortest.New(t, messages.Images, constructor("images"))
	second.Send("pods/u", private("u", "a"))
	second.Send("pods/v", private("v")) // has no credentials, and waits for its own turn
	if len(second.Work) != 1 {
		t.Fatalf("%d pulls", len(second.Work))
	}
	close(f.hold)
	<-ended
	f.pullBegan = nil
	second.Work = nil
	second.Send(messages.Images, pullResult{pullKey{constructor("images").(*images).credentialsOf(private("u", "a").Pod, "r.io/app").id,
		"r.io/app:1"}, outcome{ref: "joined"}})
	second.RunWork()
	expect(t, "told", reported(second), "pods/u: joined pulled=true; pods/v: id of r.io/app:1 pulled=true")
}

func TestWhetherOtherCredentialsMayHelp(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{denied(codes.Unknown, "401"), true},
		{denied(codes.NotFound, "not found"), true}, // many registries return it for repositories without access
		{denied(codes.DeadlineExceeded, "late"), false},
		{&cri.CallError{Call: "PullImage", Err: status.Error(codes.Unavailable, "gone")}, false},
		{errors.New("x"), false},
	} {
		if got := authorizes(t.Context(), c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}

// A need waits for a limited time for a pull secret that is being read, since the pull would fail without it.
func TestPull_WaitsForAnUnreadSecret(t *testing.T) {
	ask := private("u", "a")
	ask.Pod.Annotations = map[string]string{objectset.SourceAnnotation: objectset.APISource}
	ref := objectset.Ref{Kind: objectset.Secret, Namespace: ask.Pod.Namespace, Name: "a"}
	for name, comes := range map[string]bool{"it comes": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			board := objectset.NewBoard(false)
			accepts := "a"
			f := &fake{there: map[string]string{}, accepts: &accepts, pullErr: denied(codes.Unknown, "pull access denied")}
			k := supervisortest.New(t, messages.Images, New(Options{Service: f, Operations: cri.NewOperations(), Serialize: true,
				Objects: board})("images"))
			k.Send("pods/u", ask)
			k.Send("pods/u", ask) // a repeated question changes nothing
			k.Send(messages.Objects, messages.ObjectsChanged{Version: 1})
			if len(k.Work) > 0 {
				t.Fatal("it is pulled without what is not read yet")
			}
			if comes {
				board.Put(ref, registrySecret("a"))
				k.Send(messages.Objects, messages.ObjectsChanged{Version: 2})
				k.RunWork()
				expect(t, "told", reported(k), "pods/u: id of r.io/app:1 pulled=true")
				expect(t, "tried", strings.Join(f.users, " "), "a")
				return
			}
			k.Advance(unreadTimeout)
			k.RunWork()
			if said := fmt.Sprintf("%+v", k.Take()); !strings.Contains(said,
				"Secret default/a it has not been read from the API server yet") {
				t.Errorf("told %s", said)
			}
		})
	}
}

// A missing pull secret is recorded in an Event once, and again when the set of missing ones changes.
func TestPullSecret_MissingIsAnEvent(t *testing.T) {
	f := &fake{there: map[string]string{}}
	board := objectset.NewBoard(true)
	board.Publish(boardOf())
	k := supervisortest.New(t, messages.Images, New(Options{Service: f, Operations: cri.NewOperations(), Serialize: true,
		Objects: board})("images"))
	events := func() string {
		var out []string
		for _, m := range k.Take() {
			if e, ok := m.Msg.(messages.RecordEvent); ok && m.To == messages.Events {
				out = append(out, fmt.Sprintf("%s %s %s%s: %s", e.Object.Name, e.Type, e.Reason, e.Object.FieldPath, e.Message))
			}
		}
		return strings.Join(out, "; ")
	}
	event := func(names string) string {
		return "u Warning FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets (" + names +
			"); attempting to pull the image may not succeed."
	}
	ask := private("u", "b", "a", "a")
	ask.Pod.UID = "u"
	k.Send("pods/u", ask)
	expect(t, "asked", events(), event("a, b"))
	k.Send("pods/u", ask)
	k.Send(messages.Objects, messages.ObjectsChanged{Version: 1})
	expect(t, "asked again", events(), "")
	board.Publish(boardOf(registrySecret("a")))
	k.Send(messages.Objects, messages.ObjectsChanged{Version: 2})
	expect(t, "one has come", events(), event("b"))
	board.Publish(boardOf(registrySecret("a"), registrySecret("b")))
	k.Send(messages.Objects, messages.ObjectsChanged{Version: 3})
	expect(t, "both have come", events(), "")
	board.Publish(boardOf(registrySecret("a")))
	k.Send(messages.Objects, messages.ObjectsChanged{Version: 4})
	expect(t, "one has gone", events(), event("b"))
	k.Send("pods/u", messages.ForgetImages{UID: "u"})
	k.Send("pods/u", ask)
	expect(t, "another life of the pod", events(), event("b"))
}

// The credentials of a pull are known after a restart. A pull without a recorded end admits no pod.
func TestImage_BoundToCredentialsOfPull(t *testing.T) {
	mine := "mine"
	f := &fake{there: map[string]string{}, accepts: &mine, pullErr: denied(codes.Unknown, "denied")}
	dir := t.TempDir()
	begin := func() *supervisortest.Kit {
		o := Options{Service: f, Operations: cri.NewOperations(), Objects: &objectset.Board{}, Records: pullrecord.New(dir),
			Policy: pullrecord.Policy{Kind: kubeletconfig.NeverVerifyPreloadedImages}}
		o.Objects.Publish(boardOf(registrySecret("mine"), registrySecret("other")))
		return supervisortest.New(t, messages.Images, New(o)("images"))
	}
	asks := func(k *supervisortest.Kit, uid string, policy v1.PullPolicy, secrets ...string) {
		m := private(uid, secrets...)
		m.Policy = policy
		k.Send(messages.PodAddress(uid), m)
		k.RunWork()
	}
	k := begin()
	asks(k, "owner", v1.PullIfNotPresent, "mine")
	expect(t, "the owner", reported(k), "pods/owner: id of r.io/app:1 pulled=true")
	k = begin()
	asks(k, "guest", v1.PullNever, "mine")
	asks(k, "thief", v1.PullIfNotPresent, "other")
	asks(k, "nobody", v1.PullIfNotPresent)
	asks(k, "silent", v1.PullNever)
	expect(t, "after a restart", reported(k), "pods/guest: id of r.io/app:1 pulled=false; pods/thief: ErrImagePull permanent=false; "+
		"pods/nobody: ErrImagePull permanent=false; pods/silent: ErrImageNeverPull permanent=false")
	expect(t, "who was shown", strings.Join(f.users, " "), "mine other - -")

	// The runtime dies during a pull, and has the image afterwards.
	f.there["r.io/app:1"] = "sha256:new"
	f.accepts, f.pullErr = nil, &cri.CallError{Call: "PullImage", Object: "r.io/app:1", Err: status.Error(codes.Unavailable, "gone")}
	asks(k, "late", v1.PullAlways, "mine")
	k = begin()
	asks(k, "nobody", v1.PullNever)
	expect(t, "after a pull that was cut off", reported(k), "pods/nobody: ErrImageNeverPull permanent=false")
}

// Credential providers are tried after the credentials of the pod and of the node. The error names one that fails, and the pull
// is still tried without credentials.
func TestCredentialProvidersArePartOfAPull(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ -e " + dir + "/broken ] && exit 4\n" + `echo '{"kind":"CredentialProviderResponse",` +
		`"apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","cacheDuration":"0s",` +
		`"auth":{"r.io":{"username":"plugin","password":"hunter2"}}}'` + "\n"
	config := `{"kind":"CredentialProviderConfig","apiVersion":"kubelet.config.k8s.io/v1","providers":[{"name":"plugin",` +
		`"apiVersion":"credentialprovider.kubelet.k8s.io/v1","matchImages":["r.io"],"defaultCacheDuration":"1m"}]}`
	for name, text := range map[string]string{"plugin": script, "config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	providers, err := provider.Load(filepath.Join(dir, "config.json"), dir, true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	user := "plugin"
	f := &fake{there: map[string]string{}, accepts: &user, pullErr: denied(codes.Unknown, "denied")}
	o := Options{Service: f, Operations: cri.NewOperations(), Objects: &objectset.Board{}, Providers: providers,
		Records: pullrecord.New(dir), Policy: pullrecord.Policy{Kind: kubeletconfig.NeverVerifyPreloadedImages}}
	o.Objects.Publish(boardOf(registrySecret("mine")))
	k := supervisortest.New(t, messages.Images, New(o)("images"))
	k.Send("pods/a", private("a", "mine"))
	k.RunWork()
	expect(t, "reported", reported(k), "pods/a: id of r.io/app:1 pulled=true")
	expect(t, "who was shown", strings.Join(f.users, " "), "mine plugin")
	m := private("b")
	m.Policy = v1.PullNever
	k.Send("pods/b", m)
	k.RunWork()
	expect(t, "what the node may have, all pods may", reported(k), "pods/b: id of r.io/app:1 pulled=false")

	if err := os.WriteFile(filepath.Join(dir, "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.users = nil
	k.Send("pods/c", private("c"))
	k.RunWork()
	expect(t, "who was shown", strings.Join(f.users, " "), "-")
	failure, _ := k.Take()[1].Msg.(messages.ImageFailed)
	if text := failure.Reason.Message; !strings.Contains(text, "credential provider plugin: exit status 4") || strings.Contains(text, hiddenWord) {
		t.Errorf("%+v", failure)
	}
}

// The record of an image that a pod names without a registry uses that name, as in the kubelet.
func TestAShortNameIsKnownByIt(t *testing.T) {
	for policy, want := range map[kubeletconfig.ImagePullCredentialsVerificationPolicy]string{
		kubeletconfig.NeverVerifyAllowlistedImages: "pods/u: id of acme/app:latest pulled=false",
		kubeletconfig.AlwaysVerify:                 "pods/u: ErrImageNeverPull permanent=false",
	} {
		f := &fake{there: map[string]string{"acme/app:latest": "id of acme/app:latest"}}
		k := supervisortest.New(t, messages.Images, New(Options{Service: f, Operations: cri.NewOperations(), Objects: &objectset.Board{},
			Records: pullrecord.New(t.TempDir()), Policy: pullrecord.Policy{Kind: policy, Allowlist: []string{"acme/*"}}})("images"))
		k.Send("pods/u", puller("u", "acme/app", v1.PullNever))
		k.RunWork()
		expect(t, string(policy), reported(k), want)
	}
}
