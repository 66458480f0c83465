package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/images/pullauth"
)

// accounts is an API server with service accounts by name.
type accounts struct {
	all    map[string]*v1.ServiceAccount
	refuse error // of AccountToken
	asked  []string
	round  int // of tokens
}

func (a *accounts) Account(_ context.Context, pod *v1.Pod) (*v1.ServiceAccount, error) {
	name := pod.Spec.ServiceAccountName
	if a.all[name] == nil {
		return nil, errors.New("there is none")
	}
	return a.all[name], nil
}

func (a *accounts) AccountToken(_ context.Context, pod *v1.Pod, account types.UID, audience string) (string, error) {
	a.asked = append(a.asked, fmt.Sprint(pod.Spec.ServiceAccountName, " ", account, " for ", audience, " and ", pod.UID))
	return fmt.Sprint("hunter2-", pod.UID, "-", a.round), a.refuse
}

func (a *accounts) put(name, uid string, annotations ...string) {
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		account.Annotations[annotations[i]] = annotations[i+1]
	}
	if a.all == nil {
		a.all = map[string]*v1.ServiceAccount{}
	}
	a.all[name] = account
}

// of returns a question for credentials of r.io/app for a pod.
func (a *accounts) of(uid, account string) Question {
	return Question{Repository: "r.io/app", Accounts: a, Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{ServiceAccountName: account}}}
}

// withTokens returns the configuration of a provider p with tokenAttributes and more fields in them.
func withTokens(cacheType, more string) string {
	return head + entry("p", ", tokenAttributes: {serviceAccountTokenAudience: registry, requireServiceAccount: true, cacheType: "+cacheType+more+"}")
}

func TestProvider_GetsAServiceAccountToken(t *testing.T) {
	r := newRig(t, map[string]string{"p": answer("Image", "")})
	p, err := r.load(t, withTokens("ServiceAccount", ", requiredServiceAccountAnnotationKeys: [example.com/role], optionalServiceAccountAnnotationKeys: [a, b]"))
	must(t, err)
	if !p.ByAccount("r.io/app") || p.ByAccount("other.example/app") || (*Providers)(nil).ByAccount("r.io/app") {
		t.Error("the plugin is for r.io, and wants to know service accounts")
	}
	a := &accounts{}
	a.put("robot", "7", "example.com/role", "puller", "b", "2", "c", "3")
	found, problems := p.Credentials(t.Context(), a.of("u", "robot"))
	if len(found) != 1 || problems != nil || found[0].Account != (pullauth.Account{UID: "7", Namespace: "ns", Name: "robot"}) || found[0].Node() ||
		found[0].From != "credential provider p for the service account ns/robot" {
		t.Fatalf("%+v, %v", found, problems)
	}
	request, err := os.ReadFile(filepath.Join(r.dir, "request"))
	must(t, err)
	if want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"r.io/app",` +
		`"serviceAccountToken":"hunter2-u-0","serviceAccountAnnotations":{"b":"2","example.com/role":"puller"}}`; string(request) != want {
		t.Errorf("asked with %s", request)
	}
	if got := fmt.Sprint(a.asked); got != "[robot 7 for registry and u]" {
		t.Errorf("tokens are asked for as %s", got)
	}

	for name, c := range map[string]struct {
		change func(*Question)
		want   string
	}{
		"no account":    {func(q *Question) { q.Pod = nil }, "credential provider p is not asked: it is for pods with a service account"},
		"none there":    {func(q *Question) { q.Pod.Spec.ServiceAccountName = "x" }, "credential provider p: could not read the service account ns/x: there is none"},
		"no annotation": {func(*Question) { a.put("robot", "7", "b", "2") }, "credential provider p is not asked: the service account ns/robot has no annotation example.com/role"},
		"no token": {func(*Question) { a.refuse = errors.New("forbidden") },
			`credential provider p: could not get a token of the service account ns/robot for the audience "registry": forbidden`},
	} {
		a.refuse = nil
		a.put("robot", "7", "example.com/role", "puller")
		q := a.of("u", "robot")
		c.change(&q)
		found, problems := p.Credentials(t.Context(), q)
		if said := fmt.Sprint(problems); found != nil || !strings.Contains(said, c.want) || strings.Contains(said, "hunter2") {
			t.Errorf("%s: %v, %s", name, found, said)
		}
	}
	if r.runs(t) != 1 {
		t.Errorf("run %d times", r.runs(t))
	}
}

// A plugin that does not require a service account is asked without a token for pods that have none. Its answer is valid for
// the node.
func TestAPluginThatDoesWithoutAToken(t *testing.T) {
	r := newRig(t, map[string]string{"p": answer("Global", "")})
	p, err := r.load(t, strings.Replace(withTokens("Token", ""), "requireServiceAccount: true", "requireServiceAccount: false", 1))
	must(t, err)
	found, problems := p.Credentials(t.Context(), Question{Repository: "r.io/app"})
	if len(found) != 1 || problems != nil || !found[0].Node() {
		t.Fatalf("%v, %v", found, problems)
	}
	a := &accounts{}
	a.put("robot", "7")
	if found, problems := p.Credentials(t.Context(), a.of("u", "robot")); len(found) != 1 || problems != nil || found[0].Node() || r.runs(t) != 2 {
		t.Errorf("%v, %v: what is for the node is for an account", found, problems)
	}
}

// An answer is cached for its service account with the current annotations or, with cache type Token, for the token.
func TestAnswersAreKeptByServiceAccount(t *testing.T) {
	for cacheType, want := range map[string]int{"ServiceAccount": 4, "Token": 6} {
		r := newRig(t, map[string]string{"p": answer("Registry", "")})
		p, err := r.load(t, withTokens(cacheType, ", optionalServiceAccountAnnotationKeys: [role]"))
		must(t, err)
		a := &accounts{}
		ask := func(uid, account string) {
			t.Helper()
			q := a.of(uid, account)
			found, problems := p.Credentials(t.Context(), q)
			if len(found) != 1 || problems != nil {
				t.Fatalf("%v, %v", found, problems)
			}
			if got := found[0].Account; got.Name != account || got.UID != string(a.all[account].UID) {
				t.Errorf("%s is given what is for %v", account, got)
			}
		}
		a.put("a", "1", "role", "x", "other", "1")
		a.put("b", "2", "role", "x")
		ask("u", "a") // 1
		ask("u", "a")
		a.put("a", "1", "role", "x", "other", "2")
		ask("u", "a")
		ask("v", "a") // another token
		a.round++
		ask("u", "a") // another token
		ask("w", "b") // 2
		a.put("a", "1", "role", "y")
		ask("u", "a") // 3
		a.put("a", "3", "role", "y")
		ask("u", "a") // 4
		if got := r.runs(t); got != want {
			t.Errorf("%s: run %d times, want %d", cacheType, got, want)
		}
	}
}

// A plugin may return the token as the password only if answers are cached by token. The token appears in no output.
func TestATokenThatIsHandedOn(t *testing.T) {
	script := `token=$(sed 's/.*"serviceAccountToken":"\([^"]*\)".*/\1/')` + "\n" +
		`echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image",` +
		`"auth":{"r.io":{"username":"u","password":"'$token'"}}}'` + "\n"
	for cacheType, want := range map[string]string{"Token": "", "ServiceAccount": "it answers with the token itself"} {
		r := newRig(t, map[string]string{"p": script})
		p, err := r.load(t, withTokens(cacheType, ""))
		must(t, err)
		a := &accounts{}
		a.put("robot", "7")
		found, problems := p.Credentials(t.Context(), a.of("u", "robot"))
		if said := fmt.Sprintf("%v %+v %#v", problems, found, found) + r.log.String(); strings.Contains(said, "hunter2") || !strings.Contains(said, want) {
			t.Errorf("%s: it tells %s", cacheType, said)
		}
		if want == "" && (len(found) != 1 || found[0].Auth().Password != "hunter2-u-0") || want != "" && (found != nil || len(problems) != 1) {
			t.Errorf("%s: %v, %v", cacheType, found, problems)
		}
	}
}

func TestTokenAttributesThatAreRefused(t *testing.T) {
	good := "serviceAccountTokenAudience: a, requireServiceAccount: true, cacheType: Token"
	for attributes, want := range map[string]string{
		strings.Replace(good, "serviceAccountTokenAudience: a, ", "", 1):                                                  ".serviceAccountTokenAudience must be set",
		strings.Replace(good, "requireServiceAccount: true, ", "", 1):                                                     ".requireServiceAccount must be set",
		strings.Replace(good, ", cacheType: Token", "", 1):                                                                ".cacheType is \"\"",
		strings.Replace(good, "Token", "Pod", -1):                                                                         "unknown field",
		strings.Replace(good, "cacheType: Token", "cacheType: Pod", 1):                                                    ".cacheType is \"Pod\"",
		strings.Replace(good, "true", "false", 1) + ", requiredServiceAccountAnnotationKeys: [a]":                         ".requiredServiceAccountAnnotationKeys needs requireServiceAccount",
		good + ", requiredServiceAccountAnnotationKeys: [a, 'b c']":                                                       ".requiredServiceAccountAnnotationKeys[1]: \"b c\" is no key",
		good + ", optionalServiceAccountAnnotationKeys: [a, b, a]":                                                        ".optionalServiceAccountAnnotationKeys[2]: \"a\" is there twice",
		good + ", requiredServiceAccountAnnotationKeys: [x, Example.com/a], optionalServiceAccountAnnotationKeys: [b, x]": ".optionalServiceAccountAnnotationKeys[1]: \"x\" is among the required",
	} {
		r := newRig(t, map[string]string{"p": "exit 1\n"})
		_, err := r.load(t, head+entry("p", ", tokenAttributes: {"+attributes+"}"))
		if err == nil || !strings.Contains(err.Error(), want) || want[0] == '.' && !strings.Contains(err.Error(), "providers[0] (p): tokenAttributes"+want) {
			t.Errorf("%s: %v", attributes, err)
		}
	}
	r := newRig(t, map[string]string{"p": "exit 1\n"})
	_, err := r.load(t, withTokens("Token", ""))
	must(t, err)
	if _, err := Load(filepath.Join(r.dir, "config.yaml"), r.dir, false, slog.Default()); err == nil ||
		!strings.Contains(err.Error(), "providers[0] (p): tokenAttributes needs the feature gate "+TokensGate) {
		t.Errorf("without the feature gate: %v", err)
	}
}

// Like the kubelet, Load accepts entries of matchImages that can match no image. It logs a warning.
func TestPatternsThatMatchNothing(t *testing.T) {
	for pattern, warns := range map[string]bool{
		"r.io:5000/*": true, "https://r.io": true, "*.*.io/team": false, "r.io:5000": false, "r.io/a*/b": true,
	} {
		r := newRig(t, map[string]string{"p": answer("Image", "")})
		p, err := r.load(t, head+strings.Replace(entry("p", ""), "r.io:5000/team", pattern, 1))
		must(t, err)
		if got := strings.Contains(r.log.String(), pattern); got != warns {
			t.Errorf("%s: told %t", pattern, got)
		}
		if found, problems := p.Credentials(t.Context(), Question{Repository: "s.io/app"}); len(found) != 1 || problems != nil {
			t.Errorf("%s: %v, %v", pattern, found, problems)
		}
	}
}
