package pullrecord

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/playlet-dev/playlet/actors/images/pullauth"
	"github.com/playlet-dev/playlet/supervisors/supervisortest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// credential returns the credential for r.io/app from a Secret with this UID, name and password.
func credential(t *testing.T, uid, name, password string) *pullauth.Credential {
	t.Helper()
	ring, err := pullauth.OfSecret(&v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"r.io":{"username":"u","password":%q}}}`, password)},
	})
	must(t, err)
	return ring.Lookup("r.io/app")[0]
}

const (
	verifyAll = kubeletconfig.AlwaysVerify
	preloaded = kubeletconfig.NeverVerifyPreloadedImages
	listed    = kubeletconfig.NeverVerifyAllowlistedImages
)

func TestWhoMayUseAnImage(t *testing.T) {
	owner := credential(t, "1", "pull", "a")
	of := func(c kubeletconfig.ImagePullCredentials) Record {
		return Record{Ours: true, Credentials: map[string]kubeletconfig.ImagePullCredentials{"r.io/app": c}}
	}
	mine := of(kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{secretOf(owner)}})
	for name, c := range map[string]struct {
		policy     Policy
		record     Record
		repository string
		shown      *pullauth.Credential
		want       bool
	}{
		"nothing is verified":                  {Policy{}, mine, "", nil, true},
		"never":                                {Policy{Kind: kubeletconfig.NeverVerify}, mine, "", nil, true},
		"preloaded":                            {Policy{Kind: preloaded}, Record{}, "", nil, true},
		"preloaded, and all are verified":      {Policy{Kind: verifyAll}, Record{}, "", owner, false},
		"no credentials":                       {Policy{Kind: preloaded}, mine, "", nil, false},
		"the same Secret":                      {Policy{Kind: preloaded}, mine, "", owner, true},
		"the same Secret with another content": {Policy{Kind: preloaded}, mine, "", credential(t, "1", "pull", "b"), true},
		"another Secret of the same content":   {Policy{Kind: preloaded}, mine, "", credential(t, "2", "other", "a"), true},
		"another Secret":                       {Policy{Kind: preloaded}, mine, "", credential(t, "2", "pull", "b"), false},
		"a Secret of a folder, changed": {Policy{Kind: preloaded}, of(kubeletconfig.ImagePullCredentials{
			KubernetesSecrets: []kubeletconfig.ImagePullSecret{secretOf(credential(t, "", "pull", "a"))}}), "",
			credential(t, "", "pull", "b"), false},
		"another repository of the image": {Policy{Kind: preloaded}, mine, "r.io/twin", owner, false},
		"for all pods":                    {Policy{Kind: verifyAll}, of(kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}), "", nil, true},
		"a pull that was cut off":         {Policy{Kind: preloaded}, Record{Ours: true}, "", owner, false},
		"listed":                          {Policy{listed, []string{"r.io/app"}}, mine, "", nil, true},
		"listed by its beginning":         {Policy{listed, []string{"r.io/*"}}, mine, "", nil, true},
		"not listed":                      {Policy{listed, []string{"r.io/ap", "r.io/app/*"}}, mine, "", nil, false},
		"not listed, and preloaded":       {Policy{Kind: listed}, Record{}, "", nil, false},
	} {
		var shown []*pullauth.Credential
		if c.shown != nil {
			shown = append(shown, c.shown)
		}
		if c.repository == "" {
			c.repository = "r.io/app"
		}
		if got := c.policy.Allows(c.repository, c.record, shown); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestRecordsAreTheKubelets(t *testing.T) {
	dir := t.TempDir()
	r := New(dir)
	must(t, r.Begin("r.io/app:1"))
	names, err := filepath.Glob(filepath.Join(dir, "image_manager/pulling/*"))
	must(t, err)
	if len(names) != 1 || filepath.Base(names[0]) != "sha256-c012b89bff94cd3cc4e5e24c8d32831149af93e5ec960db0ce9a0f45eef9246a" {
		t.Fatalf("%v", names)
	}
	data, err := os.ReadFile(names[0])
	must(t, err)
	if got := strings.TrimSpace(string(data)); got != `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"r.io/app:1"}` {
		t.Errorf("intent %s", got)
	}
	if got := r.Read("r.io/app:1", "sha256:1"); !got.Ours || got.Credentials != nil {
		t.Errorf("while it is pulled: %+v", got)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	must(t, r.Pulled("r.io/app:1", "sha256:1", credential(t, "1", "pull", "a"), now))
	if _, err := os.Lstat(names[0]); err == nil {
		t.Error("the intent stayed")
	}
	names, err = filepath.Glob(filepath.Join(dir, "image_manager/pulled/*"))
	must(t, err)
	data, err = os.ReadFile(names[0])
	must(t, err)
	if strings.Contains(string(data), `"a"`) {
		t.Errorf("the record tells a password: %s", data)
	}
	// The hash is the SHA-256 of {"username":"u","password":"a"}, as in the kubelet.
	want := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-01-02T03:04:05Z",` +
		`"imageRef":"sha256:1","credentialMapping":{"r.io/app":{"kubernetesSecrets":[{"uid":"1","namespace":"default","name":"pull",` +
		`"credentialHash":"b16a570f128acc153cc2b44e3640a2f1b10a27c6fa07e12e314c487f466970dc"}]}}}`
	var got, like any
	must(t, json.Unmarshal(data, &got))
	must(t, json.Unmarshal([]byte(want), &like))
	if g, w := fmt.Sprint(got), fmt.Sprint(like); g != w {
		t.Errorf("record\n%s, want\n%s", g, w)
	}
}

func TestRecordsGrowAndKeepWhatTheyHad(t *testing.T) {
	dir := t.TempDir()
	r := New(dir)
	pull := func(c *pullauth.Credential) kubeletconfig.ImagePullCredentials {
		t.Helper()
		must(t, r.Begin("r.io/app:1"))
		must(t, r.Pulled("r.io/app:1", "sha256:1", c, time.Now()))
		return New(dir).Read("r.io/app:1", "sha256:1").Credentials["r.io/app"]
	}
	pull(credential(t, "1", "pull", "a"))
	if got := pull(credential(t, "2", "other", "b")).KubernetesSecrets; len(got) != 2 {
		t.Errorf("%v", got)
	}
	changed := credential(t, "1", "pull", "c")
	if got := pull(changed).KubernetesSecrets; len(got) != 2 || got[1] != secretOf(changed) {
		t.Errorf("%v", got)
	}
	if got := pull(nil); !got.NodePodsAccessible || got.KubernetesSecrets != nil {
		t.Errorf("%v", got)
	}
	if got := pull(changed); !got.NodePodsAccessible || got.KubernetesSecrets != nil {
		t.Errorf("%v", got)
	}
	// The record is from an older kubelet, and has a version and fields that this agent does not write.
	path := filepath.Join(r.pulled, fileName("sha256:2"))
	must(t, os.WriteFile(path, []byte(`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":null,`+
		`"imageRef":"sha256:2","credentialMapping":{"r.io/app":{"kubernetesServiceAccounts":[{"uid":"u","namespace":"n","name":"a"}]}}}`), 0o600))
	must(t, r.Begin("r.io/app:2"))
	must(t, r.Pulled("r.io/app:2", "sha256:2", changed, time.Now()))
	if got := r.Read("r.io/app:2", "sha256:2").Credentials["r.io/app"]; len(got.KubernetesServiceAccounts) != 1 || len(got.KubernetesSecrets) != 1 {
		t.Errorf("%v", got)
	}
}

func TestWhatIsNotKnownForSureIsOurs(t *testing.T) {
	dir := t.TempDir()
	r := New(dir)
	ours := func(what string, want bool) {
		t.Helper()
		if got := New(dir).Read("i:1", "sha256:1"); got.Ours != want || got.Credentials != nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
	ours("nothing was pulled", false)
	must(t, r.Begin("i:1"))
	must(t, r.Begin("i:1"))
	must(t, r.Failed("i:1", true))
	ours("another pull goes on", true)
	must(t, r.Failed("i:1", true))
	ours("both failed", false)
	must(t, r.Begin("i:1"))
	r = New(dir) // the agent died
	ours("a pull was cut off", true)
	must(t, r.Begin("i:1"))
	must(t, r.Failed("i:1", true))
	ours("and the next one failed", true)
	must(t, r.Prune(func(string) bool { return true }, time.Now()))
	ours("it may be here", true)
	must(t, r.Prune(func(string) bool { return false }, time.Now()))
	ours("it is not here", false)
	must(t, r.Begin("i:1"))
	must(t, r.Failed("i:1", false))
	ours("the runtime was cut off", true)
	must(t, os.MkdirAll(r.pulled, 0o700))
	must(t, os.WriteFile(filepath.Join(r.pulled, fileName("sha256:1")), []byte("{"), 0o600))
	if got := r.Read("i:1", "sha256:1"); !got.Ours || got.Problem == nil {
		t.Errorf("%+v", got)
	}
	must(t, os.Truncate(filepath.Join(r.pulled, fileName("sha256:1")), maxRecord+1))
	if got := r.Read("i:1", "sha256:1"); !got.Ours || !strings.Contains(fmt.Sprint(got.Problem), "larger than 4194304 bytes") {
		t.Errorf("%+v", got)
	}
	must(t, r.Begin("i:1"))
	must(t, r.Pulled("i:1", "sha256:1", nil, time.Now()))
	if got := r.Read("i:1", "sha256:1"); got.Problem != nil || len(got.Credentials) != 1 {
		t.Errorf("a record that cannot be read is not written anew: %+v", got)
	}
}

func TestPruneForgetsWhatIsGone(t *testing.T) {
	r := New(t.TempDir())
	must(t, r.Prune(func(string) bool { return false }, time.Now())) // the folder does not exist yet
	start := time.Now().Truncate(time.Second)
	for i, at := range []time.Time{start.Add(-time.Second), start.Add(-time.Second), start} {
		must(t, r.Begin("i:1"))
		must(t, r.Pulled("i:1", fmt.Sprint(i), nil, at))
	}
	must(t, r.Prune(func(name string) bool { return name == "1" }, start.Add(time.Millisecond)))
	for i, want := range []bool{false, true, true} {
		if got := r.Read("i:1", fmt.Sprint(i)).Ours; got != want {
			t.Errorf("%d: %t", i, got)
		}
	}
}

func TestNoRecords(t *testing.T) {
	var r *Records
	must(t, r.Begin("i"))
	must(t, r.Pulled("i", "ref", nil, time.Now()))
	must(t, r.Failed("i", true))
	must(t, r.Prune(nil, time.Now()))
	if r.Read("i", "ref").Ours {
		t.Error("it knows of an image")
	}
}

// Records and the allowlist use the names in pods.
func TestNamesAreThoseOfThePods(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]string{
		"alpine": "alpine", "alpine:3": "alpine", "acme/app:latest": "acme/app", "acme/app:1" + digest: "acme/app",
		"r.io:5000/a/b": "r.io:5000/a/b", "r.io:5000/a/b:1": "r.io:5000/a/b", "localhost:5000/a" + digest: "localhost:5000/a",
	} {
		if got := repositoryOf(image); got != want {
			t.Errorf("%s is %s, want %s", image, got, want)
		}
	}
	app := "acme/app:1"
	for _, c := range []struct {
		entry string
		want  bool
	}{
		{"acme/app", true}, {"acme/*", true}, {"acme/a", false}, {"app", false},
		{"docker.io/acme/app", false}, {"docker.io/*", false}, // the runtime may resolve a short name to another registry
	} {
		if got := (Policy{listed, []string{c.entry}}).Allows(app, Record{Ours: true}, nil); got != c.want {
			t.Errorf("an allowlist of %s: %t", c.entry, got)
		}
	}
	owner := credential(t, "1", "pull", "a")
	key := "acme/app"
	r := New(t.TempDir())
	must(t, os.MkdirAll(r.pulled, 0o700))
	data, err := json.Marshal(kubeletconfig.ImagePulledRecord{TypeMeta: typeMeta("ImagePulledRecord"), ImageRef: "sha256:1",
		CredentialMapping: map[string]kubeletconfig.ImagePullCredentials{
			key: {KubernetesSecrets: []kubeletconfig.ImagePullSecret{secretOf(owner)}}}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(r.pulled, fileName("sha256:1")), data, 0o600))
	if !(Policy{Kind: preloaded}).Allows(app, r.Read("acme/app:1", "sha256:1"), []*pullauth.Credential{owner}) {
		t.Errorf("a record by %s is not found", key)
	}
	if (Policy{Kind: preloaded}).Allows(app, r.Read("acme/app:1", "sha256:1"), nil) {
		t.Errorf("a record by %s lets anybody in", key)
	}
	must(t, r.Begin("acme/app:1"))
	must(t, r.Pulled("acme/app:1", "sha256:1", nil, time.Now()))
	if got := r.Read("acme/app:1", "sha256:1").Credentials; !got["acme/app"].NodePodsAccessible {
		t.Errorf("written as %v", got)
	}
}

// The kubelet records a pull by the image's name in the pod, with the tag or without.
func TestPullRecord_NamesOfPods(t *testing.T) {
	r := New(t.TempDir())
	must(t, write(filepath.Join(r.pulling, fileName("acme/app")),
		kubeletconfig.ImagePullIntent{TypeMeta: typeMeta("ImagePullIntent"), Image: "acme/app"}))
	if !r.Read("acme/app:latest", "sha256:1").Ours {
		t.Error("a pull of the kubelet that was cut off is not found")
	}
	must(t, r.Begin("acme/app:latest"))
	must(t, r.Failed("acme/app:latest", true))
	if !r.Read("acme/app:latest", "sha256:1").Ours {
		t.Error("a pull that failed has taken the note of the one before away")
	}
	must(t, r.Begin("acme/app:latest"))
	must(t, r.Pulled("acme/app:latest", "sha256:1", nil, time.Now()))
	must(t, r.Begin("acme/other:latest"))
	var noted []string
	entries, err := os.ReadDir(r.pulling)
	must(t, err)
	for _, e := range entries {
		var intent kubeletconfig.ImagePullIntent
		must(t, read(filepath.Join(r.pulling, e.Name()), "ImagePullIntent", &intent))
		noted = append(noted, intent.Image)
	}
	slices.Sort(noted)
	if fmt.Sprint(noted) != "[acme/other acme/other:latest]" {
		t.Errorf("noted are %v", noted)
	}
	must(t, r.Prune(func(string) bool { return false }, time.Now()))
	if entries, err := os.ReadDir(r.pulling); err != nil || len(entries) != 2 {
		t.Errorf("the notes of a pull under way are %v, %v", entries, err)
	}
}

// An image pulled for a service account is for this account, and not for another of the same name. The record has the kubelet's
// format.
func TestRecordsOfServiceAccounts(t *testing.T) {
	of := func(uid, name string) *pullauth.Credential {
		return pullauth.Of("plugin", pullauth.Account{UID: uid, Namespace: "ns", Name: name},
			map[string]pullauth.BasicAuth{"r.io": {Username: "u", Password: "p"}}).Lookup("r.io/app")[0]
	}
	r := New(t.TempDir())
	name := "r.io/app"
	pull := func(c *pullauth.Credential, want string) {
		t.Helper()
		must(t, r.Begin("r.io/app:1"))
		must(t, r.Pulled("r.io/app:1", "sha256:1", c, time.Now()))
		got, err := json.Marshal(r.Read("r.io/app:1", "sha256:1").Credentials["r.io/app"])
		must(t, err)
		if string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	robot := `{"kubernetesServiceAccounts":[{"uid":"1","namespace":"ns","name":"robot"}`
	pull(of("1", "robot"), robot+"]}")
	pull(of("1", "robot"), robot+"]}")
	pull(of("2", "other"), robot+`,{"uid":"2","namespace":"ns","name":"other"}]}`)
	record := r.Read("r.io/app:1", "sha256:1")
	for who, c := range map[string]struct {
		shown *pullauth.Credential
		want  bool
	}{
		"the account": {of("1", "robot"), true}, "the other": {of("2", "other"), true}, "another of its name": {of("3", "robot"), false},
		"a Secret": {credential(t, "1", "robot", "p"), false},
		"the node": {pullauth.Of("x", pullauth.Account{}, map[string]pullauth.BasicAuth{"r.io": {}}).Lookup("r.io/app")[0], false},
	} {
		if got := (Policy{Kind: preloaded}).Allows(name, record, []*pullauth.Credential{c.shown}); got != c.want {
			t.Errorf("%s: %t", who, got)
		}
	}
	if !record.Account(name, "ns", "robot") || record.Account(name, "other", "robot") || record.Account("r.io/b", "ns", "robot") {
		t.Error("who may be asked about is not told")
	}
	pull(nil, `{"nodePodsAccessible":true}`)
	pull(of("1", "robot"), `{"nodePodsAccessible":true}`)
}

// A pull that ends after the list of images keeps its record, even if the clock was set back in between. Without a record, the
// image would count as preloaded, and each pod could use it.
func TestPrune_ClockSetBack(t *testing.T) {
	r := New(t.TempDir())
	listed := supervisortest.Monotonic(time.Now())
	must(t, r.Begin("r.io/app"))
	must(t, r.Pulled("r.io/app", "id", nil, supervisortest.SetClock(listed.Add(time.Second), -time.Hour)))
	none := func(string) bool { return false }
	must(t, r.Prune(none, listed))
	if !r.Read("r.io/app", "id").Ours {
		t.Error("the record of a later pull was removed")
	}
	must(t, r.Prune(none, listed.Add(time.Minute)))
	if r.Read("r.io/app", "id").Ours {
		t.Error("the record of an image that is gone stays")
	}
}
