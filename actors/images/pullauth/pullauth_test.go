package pullauth

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const word = "h/unter=2"

// ring returns a keyring with one credential for each key; its user is the key.
func ring(t *testing.T, keys ...string) *Keyring {
	t.Helper()
	auths := map[string]map[string]string{}
	for _, k := range keys {
		auths[k] = map[string]string{"username": k, "password": word}
	}
	text, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		t.Fatal(err)
	}
	r, err := OfSecret(secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func secret(kind v1.SecretType, key, text string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}, Type: kind,
		Data: map[string][]byte{key: []byte(text)}}
}

func users(found []*Credential) string {
	var out []string
	for _, c := range found {
		out = append(out, c.Auth().Username)
	}
	return strings.Join(out, " ")
}

// The cases are the examples of the Kubernetes documentation. Cases that it leaves open follow the kubelet.
func TestWhatAKeyIsFor(t *testing.T) {
	for _, c := range []struct{ key, repository, want string }{
		{"*.kubernetes.io", "abc.kubernetes.io/a", "yes"},
		{"*.kubernetes.io", "kubernetes.io/a", ""},
		{"*.kubernetes.io", "abc.def.kubernetes.io/a", ""},
		{"*.*.kubernetes.io", "abc.def.kubernetes.io/a", "yes"},
		{"*.*.kubernetes.io", "abc.kubernetes.io/a", ""},
		{"prefix.*.io", "prefix.kubernetes.io/a", "yes"},
		{"prefix.*.io", "kubernetes.io/a", ""},
		{"*-good.kubernetes.io", "prefix-good.kubernetes.io/a", "yes"},
		{"*-good.kubernetes.io", "kubernetes.io/a", ""},
		{"my-registry.io/images", "my-registry.io/images/app", "yes"},
		{"my-registry.io/images", "my-registry.io/other/app", ""},
		{"my-registry.io/images", "my-registry.io/app", ""},
		{"my-registry", "my-registry.io/app", ""},
		{"my-registry.io:5000", "my-registry.io:5000/app", "yes"},
		{"my-registry.io", "my-registry.io:5000/app", ""},
		{"my-registry.io:5000", "my-registry.io/app", ""},
		{"*.my-registry.io:5000", "eu.my-registry.io:5000/app", "yes"},
		{"https://my-registry.io", "my-registry.io/app", "yes"},
		{"http://my-registry.io/v2/", "my-registry.io/app", "yes"},
		{"my-registry.io/v1/team", "my-registry.io/team/app", "yes"},
		{"https://index.docker.io/v1/", "docker.io/library/busybox", "yes"},
		{"index.docker.io", "docker.io/team/app", "yes"},
		{"docker.io", "docker.io/team/app", "yes"},
		{"index.docker.io", "my-registry.io/app", ""},
		{"[", "my-registry.io/app", ""},
		{"*", "localhost/app", "yes"},
		{"127.0.0.1:5000", "127.0.0.1:5000/app", "yes"},
		{"[::1]:5000", "[::1]:5000/app", "yes"},
	} {
		want := ""
		if c.want != "" {
			want = c.key
		}
		if c.key == "[" {
			r := &Keyring{entries: []entry{{c.key, &Credential{}}}}
			if len(r.Lookup(c.repository)) > 0 {
				t.Error("a glob that is none matches")
			}
			continue
		}
		if got := users(ring(t, c.key).Lookup(c.repository)); got != want {
			t.Errorf("%s for %s: %q", c.key, c.repository, got)
		}
	}
}

func TestTheOrderOfCredentials(t *testing.T) {
	all := ring(t, "r.io", "r.io/images/sub", "r.io/images", "*.io", "x.io", "index.docker.io", "docker.io/team")
	for repository, want := range map[string]string{
		"r.io/images/sub/app": "r.io/images/sub r.io/images r.io *.io",
		"r.io/app":            "r.io *.io",
		"docker.io/team/app":  "docker.io/team *.io",
		"docker.io/other/app": "*.io",
	} {
		if got := users(all.Lookup(repository)); got != want {
			t.Errorf("%s: %q, want %q", repository, got, want)
		}
	}
	// For equal keys the earlier keyring goes first. Equal credentials are tried once.
	first, second := ring(t, "r.io"), ring(t, "r.io", "r.io/a")
	second.entries[1].cred.auth.username = "second"
	if got := users(Join(first, nil, second, ring(t, "r.io")).Lookup("r.io/a/b")); got != "r.io/a r.io second" {
		t.Errorf("got %q", got)
	}
	if (*Keyring)(nil).Lookup("r.io/a") != nil || len(Join().Lookup("r.io/a")) != 0 {
		t.Error("no keyring has credentials")
	}
}

func TestSecrets(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("meme:" + word)) // padded
	for name, c := range map[string]struct {
		secret *v1.Secret
		want   string
		err    error
	}{
		"config.json":        {secret(v1.SecretTypeDockerConfigJson, ".dockerconfigjson", `{"auths":{"r.io":{"username":"me","password":"`+word+`","email":"x"}},"credsStore":"x"}`), "me " + word, nil},
		"auth":               {secret(v1.SecretTypeDockerConfigJson, ".dockerconfigjson", `{"auths":{"r.io":{"username":"other","auth":"`+encoded+`"}}}`), "meme " + word, nil},
		"auth unpadded":      {secret(v1.SecretTypeDockerConfigJson, ".dockerconfigjson", `{"auths":{"r.io":{"auth":"`+strings.TrimRight(encoded, "=")+`"}}}`), "meme " + word, nil},
		"auth of base64(1)":  {secret(v1.SecretTypeDockerConfigJson, ".dockerconfigjson", `{"auths":{"r.io":{"auth":"`+encoded[:4]+`\n`+encoded[4:]+`\n"}}}`), "meme " + word, nil},
		"dockercfg":          {secret(v1.SecretTypeDockercfg, ".dockercfg", `{"r.io":{"auth":"`+encoded+`"}}`), "meme " + word, nil},
		"tokens":             {secret(v1.SecretTypeDockercfg, ".dockercfg", `{"r.io":{"identitytoken":"i","registrytoken":"r"}}`), " i r", nil},
		"another type":       {secret(v1.SecretTypeOpaque, ".dockerconfigjson", `{}`), "", ErrType},
		"the wrong key":      {secret(v1.SecretTypeDockerConfigJson, ".dockercfg", `{}`), "", ErrForm},
		"no JSON":            {secret(v1.SecretTypeDockerConfigJson, ".dockerconfigjson", word), "", ErrForm},
		"nothing in it":      {secret(v1.SecretTypeDockerConfigJson, ".dockerconfigjson", `{"auths":{}}`), "", nil},
		"auth of no user":    {secret(v1.SecretTypeDockercfg, ".dockercfg", `{"r.io":{"auth":"`+base64.StdEncoding.EncodeToString([]byte("x"))+`"}}`), "", ErrForm},
		"auth not in base64": {secret(v1.SecretTypeDockercfg, ".dockercfg", `{"r.io":{"auth":"`+word+`!"}}`), "", ErrForm},
		"a key that is none": {secret(v1.SecretTypeDockercfg, ".dockercfg", `{"r io:%":{"username":"other"},"r.io":{"auth":"`+encoded+`"}}`), "meme " + word, nil},
	} {
		r, err := OfSecret(c.secret)
		got := ""
		for _, f := range r.Lookup("r.io/a") {
			a := f.Auth()
			got = strings.TrimRight(strings.Join([]string{a.Username + " " + a.Password + a.IdentityToken, a.RegistryToken}, " "),
				" ")
			if f.From != "Secret default/s" {
				t.Errorf("%s: it is from %q", name, f.From)
			}
		}
		if err != c.err || got != c.want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), word) {
			t.Errorf("%s: the error tells what it read: %v", name, err)
		}
	}
}

func TestNothingPrintsACredential(t *testing.T) {
	found := ring(t, "r.io").Lookup("r.io/a")
	c := found[0]
	holder := struct {
		any  any
		ring *Keyring
		list []*Credential
	}{c, ring(t, "r.io"), found}
	text, err := json.Marshal([]any{c, holder, ring(t, "r.io")})
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{
		fmt.Sprintf("%v %+v %#v %s", c, c, c, c), fmt.Sprintf("%v %+v %#v", found, found, found),
		fmt.Sprintf("%v %+v %#v", holder, holder, holder), string(text),
		Hide("failed with "+word+" and "+base64.StdEncoding.EncodeToString([]byte("r.io:"+word))+" at https://x/?password=h%2Funter%3D2&p=h%2Funter=2", found),
	} {
		if strings.Contains(said, "unter") || strings.Contains(said, base64.StdEncoding.EncodeToString([]byte(word))) {
			t.Errorf("it tells: %s", said)
		}
	}
	if got := Hide("nothing", []*Credential{{}}); got != "nothing" {
		t.Errorf("got %q", got)
	}
	short, long := &Credential{}, &Credential{}
	short.auth.password, long.auth.password = "team", `team-7"hq`
	for _, list := range [][]*Credential{{short, long}, {long, short}} {
		if got := Hide(`with team-7"hq, "team-7\"hq", team`, list); got != `with (hidden), "(hidden)", (hidden)` {
			t.Errorf("got %s", got)
		}
	}
}

func TestFingerprints(t *testing.T) {
	key := []byte("key")
	a, b := ring(t, "a.io").Lookup("a.io/x"), ring(t, "b.io").Lookup("b.io/x")
	if Fingerprint(key, a) != Fingerprint(key, ring(t, "a.io").Lookup("a.io/y")) {
		t.Error("the same credentials have two fingerprints")
	}
	if Fingerprint(key, a) == Fingerprint(key, b) || Fingerprint(key, a) == Fingerprint([]byte("other"), a) ||
		Fingerprint(key, nil) != "" {
		t.Error("different credentials have one fingerprint")
	}
}

func TestFilesOfTheNode(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("config.json", `{"auths":{"r.io":{"username":"node","password":"`+word+`"}}}`)
	others := write("others.json", `{"name":"a program","version":"1"}`)
	old := write(".dockercfg", `{"r.io":{"username":"old"}}`)
	broken := write("broken.json", word)
	missing := filepath.Join(dir, "missing")
	for name, c := range map[string]struct {
		paths    []string
		want     string
		problems int
	}{
		"none":                     {[]string{missing}, "", 0},
		"the first that is there":  {[]string{missing, good, old}, "node", 0},
		"another program's":        {[]string{others, old}, "old", 0},
		"a broken one is named":    {[]string{broken, good}, "node", 1},
		"one that is a folder too": {[]string{dir, broken, old}, "old", 2},
	} {
		r, problems := OfFiles(c.paths)
		if got := users(r.Lookup("r.io/a")); got != c.want || len(problems) != c.problems ||
			strings.Contains(fmt.Sprint(problems), word) {
			t.Errorf("%s: %q, %v", name, got, problems)
		}
	}
	if f := Files("/root-dir"); f[0] != "/root-dir/config.json" || f[len(f)-1] != "/.dockercfg" {
		t.Errorf("got %v", f)
	}
}

func FuzzDockerConfig(f *testing.F) {
	f.Add(`{"auths":{"r.io":{"auth":"bWU6eA=="}}}`, "r.io/a")
	f.Add(`{"auths":{"*.r.io:5000/x":{"username":"a","password":"b"}}}`, "a.r.io:5000/x/y")
	f.Fuzz(func(t *testing.T, text, repository string) {
		for kind, key := range map[v1.SecretType]string{v1.SecretTypeDockerConfigJson: ".dockerconfigjson",
			v1.SecretTypeDockercfg: ".dockercfg"} {
			r, err := OfSecret(secret(kind, key, text))
			if (r == nil) == (err == nil) {
				t.Fatalf("%v and %v", r, err)
			}
			for _, c := range r.Lookup(repository) {
				if c.Auth() == nil || Hide(repository, []*Credential{c}) == "" && repository != "" {
					t.Fatal("no credential")
				}
			}
		}
	})
}
