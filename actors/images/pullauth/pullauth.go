// Package pullauth finds the credentials with which an image is pulled: in Secrets, as the API has them for that, and in
// docker configuration files of the node. What a credential holds shows in no print of it.
//
// The rules are those documented for Kubernetes: https://kubernetes.io/docs/concepts/containers/images/#config-json
package pullauth

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Credential is what one registry, or a part of one, is to be shown. Immutable; it prints as where it is from.
type Credential struct {
	// From says where it was found, for people: "Secret default/registry".
	From string
	// UID, Namespace and Name are those of the Secret that it is of; empty where it is of no Secret.
	UID, Namespace, Name string
	// Account is the service account for whose token a credential provider gave it; zero where it was for none.
	Account Account

	auth struct{ username, password, identityToken, registryToken string }
}

// Account names a service account, and no other of its name.
type Account struct{ UID, Namespace, Name string }

// String implements fmt.Stringer.
func (c *Credential) String() string { return "credentials of " + c.From }

// GoString implements fmt.GoStringer.
func (c *Credential) GoString() string { return c.String() }

// Auth is the credential as the CRI takes it. It is not for logs.
func (c *Credential) Auth() *runtimeapi.AuthConfig {
	return &runtimeapi.AuthConfig{
		Username: c.auth.username, Password: c.auth.password,
		IdentityToken: c.auth.identityToken, RegistryToken: c.auth.registryToken,
	}
}

// Same says that two credentials hold the same, wherever they are from.
func (c *Credential) Same(o *Credential) bool { return c.auth == o.auth }

// Secret says that it is of a Secret.
func (c *Credential) Secret() bool { return c.Name != "" }

// Node says that it is of the node, and so for all its pods.
func (c *Credential) Node() bool { return !c.Secret() && c.Account == Account{} }

// Hash is the kubelet's hash of what it holds, by which records of pulls know it again: SHA-256 of the JSON of its auth.
func (c *Credential) Hash() string {
	data, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		RegistryToken string `json:"registrytoken,omitempty"`
	}{c.auth.username, c.auth.password, c.auth.identityToken, c.auth.registryToken})
	if err != nil {
		return "" // strings are always JSON
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Hide takes out of a text, an error of the runtime, all that the credentials hold and that is not to be told.
func Hide(text string, creds []*Credential) string {
	var forms []string
	for _, c := range creds {
		basic := base64.StdEncoding.EncodeToString([]byte(c.auth.username + ":" + c.auth.password))
		for _, secret := range []string{basic, c.auth.password, c.auth.identityToken, c.auth.registryToken} {
			if secret == "" || c.auth.password == "" && secret == basic {
				continue
			}
			forms = append(forms, secret, url.QueryEscape(secret), url.PathEscape(secret),
				strings.Trim(strconv.Quote(secret), `"`))
		}
	}
	// The longest first: one may be the beginning of another.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, "(hidden)")
	}
	return text
}

// Fingerprint tells lists of credentials apart, and nothing about what they hold to whoever lacks the key.
func Fingerprint(key []byte, creds []*Credential) string {
	if len(creds) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	for _, c := range creds {
		for _, part := range []string{c.auth.username, c.auth.password, c.auth.identityToken, c.auth.registryToken} {
			fmt.Fprintf(mac, "%d:%s", len(part), part) // a hash takes everything
		}
	}
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Keyring is credentials by what they are for. The nil keyring has none. Immutable.
type Keyring struct{ entries []entry }

type entry struct {
	key  string // host[:port][/path], in which host may have globs
	cred *Credential
}

// Errors of what was to hold credentials. None of them says what is in it.
var (
	ErrType = errors.New("is neither of type kubernetes.io/dockerconfigjson nor kubernetes.io/dockercfg")
	ErrForm = errors.New("is not a docker configuration")
)

// OfSecret reads a Secret that a pod names as one of its imagePullSecrets.
func OfSecret(s *v1.Secret) (*Keyring, error) {
	from := "Secret " + s.Namespace + "/" + s.Name
	ring, err := (*Keyring)(nil), ErrType
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		ring, err = parseConfig(from, s.Data[v1.DockerConfigJsonKey])
	case v1.SecretTypeDockercfg:
		ring, err = parseAuths(from, s.Data[v1.DockerConfigKey])
	}
	if err != nil {
		return nil, err
	}
	for _, e := range ring.entries {
		e.cred.UID, e.cred.Namespace, e.cred.Name = string(s.UID), s.Namespace, s.Name
	}
	return ring, nil
}

// Basic is what a registry is shown of a user.
type Basic struct{ Username, Password string }

// Of is a keyring of these, by what each is for. from says where they are from, account for which service account they were
// given; zero: for none.
func Of(from string, account Account, auths map[string]Basic) *Keyring {
	ring := &Keyring{}
	for where, a := range auths {
		c := &Credential{From: from, Account: account}
		c.auth.username, c.auth.password = a.Username, a.Password
		ring.add(where, c)
	}
	ring.sort()
	return ring
}

// parseConfig reads a config.json.
func parseConfig(from string, data []byte) (*Keyring, error) {
	var config struct {
		Auths json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, ErrForm // the decoder's error quotes what it read
	}
	if len(config.Auths) == 0 {
		return &Keyring{}, nil
	}
	return parseAuths(from, config.Auths)
}

// parseAuths reads a .dockercfg, which is also what config.json has below "auths".
func parseAuths(from string, data []byte) (*Keyring, error) {
	var auths map[string]struct {
		Username      string `json:"username"`
		Password      string `json:"password"`
		Auth          string `json:"auth"` // username:password in base64; it has the last word
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	}
	if err := json.Unmarshal(data, &auths); err != nil {
		return nil, ErrForm
	}
	ring := &Keyring{}
	for _, where := range slices.Sorted(maps.Keys(auths)) {
		a, c := auths[where], &Credential{From: from}
		c.auth.username, c.auth.password = a.Username, a.Password
		c.auth.identityToken, c.auth.registryToken = a.IdentityToken, a.RegistryToken
		if a.Auth != "" {
			user, password, ok := basic(a.Auth)
			if !ok {
				return nil, ErrForm
			}
			c.auth.username, c.auth.password = user, password
		}
		ring.add(where, c)
	}
	ring.sort()
	return ring, nil
}

// basic decodes username:password, with or without the padding.
func basic(text string) (user, password string, ok bool) {
	text = strings.TrimRight(text, "=")
	data, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		if data, err = base64.RawURLEncoding.DecodeString(text); err != nil {
			return "", "", false
		}
	}
	user, password, ok = strings.Cut(string(data), ":")
	return user, password, ok && utf8.Valid(data)
}

// add adds a credential by what images are compared with, which is made of "https://index.docker.io/v1/" and the like. What names
// no registry is for none; the others are good.
func (k *Keyring) add(where string, c *Credential) {
	if !strings.HasPrefix(where, "https://") && !strings.HasPrefix(where, "http://") {
		where = "https://" + where
	}
	u, err := url.Parse(where)
	if err != nil {
		return
	}
	path := u.Path
	if strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/v2/") {
		path = path[len("/v1"):]
	}
	if path == "/" {
		path = ""
	}
	k.entries = append(k.entries, entry{u.Host + path, c})
}

// sort puts the more special first, which is the greater text.
func (k *Keyring) sort() {
	slices.SortStableFunc(k.entries, func(x, y entry) int { return strings.Compare(y.key, x.key) })
}

// Join is one keyring of several; where they have one key, the earlier goes first.
func Join(rings ...*Keyring) *Keyring {
	all := &Keyring{}
	for _, r := range rings {
		if r != nil {
			all.entries = append(all.entries, r.entries...)
		}
	}
	all.sort()
	return all
}
