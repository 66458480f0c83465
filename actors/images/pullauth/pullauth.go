// Package pullauth finds the credentials for pulling an image: in pull Secrets, and in docker configuration files of the node. A
// printed credential never shows its contents.
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

// Credential is a credential for a registry, or for a part of one. It is immutable, and prints as its origin.
type Credential struct {
	// From is the origin for display: "Secret default/registry".
	From string
	// UID, Namespace and Name identify its Secret; empty if it is not from a Secret.
	UID, Namespace, Name string
	// Account is the service account for which a credential provider returned it; zero for none.
	Account Account

	auth struct{ username, password, identityToken, registryToken string }
}

// Account identifies a service account. Its UID distinguishes it from others of the same name.
type Account struct{ UID, Namespace, Name string }

// String implements fmt.Stringer.
func (c *Credential) String() string { return "credentials of " + c.From }

// GoString implements fmt.GoStringer.
func (c *Credential) GoString() string { return c.String() }

// Auth returns the credential in the CRI's form. Do not log it.
func (c *Credential) Auth() *runtimeapi.AuthConfig {
	return &runtimeapi.AuthConfig{
		Username: c.auth.username, Password: c.auth.password,
		IdentityToken: c.auth.identityToken, RegistryToken: c.auth.registryToken,
	}
}

// Same reports whether two credentials have the same contents, regardless of their origin.
func (c *Credential) Same(o *Credential) bool { return c.auth == o.auth }

// Secret reports whether it is from a Secret.
func (c *Credential) Secret() bool { return c.Name != "" }

// Node reports whether it belongs to the node, and so is valid for all pods of the node.
func (c *Credential) Node() bool { return !c.Secret() && c.Account == Account{} }

// Hash returns the kubelet's hash of the contents, which identifies it in pull records: SHA-256 of the JSON of its auth.
func (c *Credential) Hash() string {
	data, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
		RegistryToken string `json:"registrytoken,omitempty"`
	}{c.auth.username, c.auth.password, c.auth.identityToken, c.auth.registryToken})
	if err != nil {
		return "" // impossible: strings can always be encoded
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Hide removes the secret contents of the credentials from a text, such as an error of the runtime.
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
	// The longest go first, since one may be the prefix of another.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for _, form := range forms {
		text = strings.ReplaceAll(text, form, "(hidden)")
	}
	return text
}

// Fingerprint returns an identifier of a list of credentials. It reveals nothing of the contents without the key.
func Fingerprint(key []byte, creds []*Credential) string {
	if len(creds) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	for _, c := range creds {
		for _, part := range []string{c.auth.username, c.auth.password, c.auth.identityToken, c.auth.registryToken} {
			fmt.Fprintf(mac, "%d:%s", len(part), part) // a hash never returns an error
		}
	}
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// Keyring maps patterns of repositories to credentials. The nil keyring has none. A keyring is immutable.
type Keyring struct{ entries []entry }

type entry struct {
	key  string // host[:port][/path]; the host may have globs
	cred *Credential
}

// Errors of Secrets and files with credentials. They never quote the contents.
var (
	ErrType = errors.New("is neither of type kubernetes.io/dockerconfigjson nor kubernetes.io/dockercfg")
	ErrForm = errors.New("is not a docker configuration")
)

// OfSecret reads a Secret from a pod's imagePullSecrets.
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

// BasicAuth is the name and the password of a registry user.
type BasicAuth struct{ Username, Password string }

// Of returns a keyring of auths by pattern. from is their origin, and account the service account for which they were returned;
// zero for none.
func Of(from string, account Account, auths map[string]BasicAuth) *Keyring {
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
		return nil, ErrForm // the decoder's error would quote the contents
	}
	if len(config.Auths) == 0 {
		return &Keyring{}, nil
	}
	return parseAuths(from, config.Auths)
}

// parseAuths reads a .dockercfg, which is also the value of "auths" in config.json.
func parseAuths(from string, data []byte) (*Keyring, error) {
	var auths map[string]struct {
		Username      string `json:"username"`
		Password      string `json:"password"`
		Auth          string `json:"auth"` // username:password in base64; it overrides the two
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

// basic decodes username:password, with or without padding, and with the line ends that base64(1) adds.
func basic(text string) (user, password string, ok bool) {
	text = strings.TrimRight(text, "= \t\r\n") // the decoder ignores line ends only within the text
	data, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		if data, err = base64.RawURLEncoding.DecodeString(text); err != nil {
			return "", "", false
		}
	}
	user, password, ok = strings.Cut(string(data), ":")
	return user, password, ok && utf8.Valid(data)
}

// add adds a credential by host and path of where, without the scheme and the API version, as in "https://index.docker.io/v1/".
// It skips a credential if where cannot be parsed.
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

// sort puts the more specific keys first, which are the greater strings.
func (k *Keyring) sort() {
	slices.SortStableFunc(k.entries, func(x, y entry) int { return strings.Compare(y.key, x.key) })
}

// Join merges keyrings. For equal keys, the earlier keyring goes first.
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
