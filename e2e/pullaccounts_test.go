//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tokenPlugin is a credential provider that reads the account in a token, like a registry's token server, and has a password for
// one service account alone. It records each run in its folder, and never the token.
const tokenPlugin = `package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	var asked struct {
		Image                     string
		ServiceAccountToken       string
		ServiceAccountAnnotations map[string]string
	}
	var claims struct {
		Subject  string   ` + "`json:\"sub\"`" + `
		Audience []string ` + "`json:\"aud\"`" + `
		Of       struct {
			Pod struct{ Name string }
		} ` + "`json:\"kubernetes.io\"`" + `
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fail(err)
	}
	parts := strings.Split(asked.ServiceAccountToken, ".")
	if len(parts) != 3 {
		fail("there is no token")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		fail(err)
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		fail(err)
	}
	self, err := os.Executable()
	if err != nil {
		fail(err)
	}
	notes, err := os.OpenFile(filepath.Join(filepath.Dir(self), "runs"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fail(err)
	}
	fmt.Fprintln(notes, claims.Subject, claims.Audience, claims.Of.Pod.Name, asked.ServiceAccountAnnotations["example.com/role"])
	if !strings.HasSuffix(claims.Subject, ":robot") {
		fail("it is not the robot")
	}
	registry, _, _ := strings.Cut(asked.Image, "/")
	fmt.Printf("{\"kind\":\"CredentialProviderResponse\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\","+
		"\"cacheKeyType\":\"Image\",\"cacheDuration\":\"0s\",\"auth\":{%q:{\"username\":\"robot\",\"password\":%q}}}", registry, os.Getenv("PASSWORD"))
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(7)
}
`

// withTokenPlugin builds the plugin, and has the agent ask it for images of a registry.
func withTokenPlugin(t *testing.T, registry string) (dir string, change func(*stack.Agent)) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(tokenPlugin), 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "tokens"), filepath.Join(dir, "main.go"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config := filepath.Join(dir, "config.yaml")
	must(t, os.WriteFile(config, []byte(`
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: tokens
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["`+registry+`"]
  defaultCacheDuration: 1h
  env: [{name: PASSWORD, value: `+hiddenWord+`}]
  tokenAttributes:
    serviceAccountTokenAudience: registry.example
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/role]
`), 0o600))
	return dir, func(a *stack.Agent) {
		quick(a)
		a.Args = append(a.Args, "--image-credential-provider-config="+config, "--image-credential-provider-bin-dir="+dir)
	}
}

// A credential provider is given a token of the pod's service account; the image that it pulls is for this account, over a
// restart of the agent, and for no other.
func TestPullsWithTokensOfServiceAccounts(t *testing.T) {
	c := cluster.Shared(t)
	n, ns := c.Node(t), c.Namespace(t)
	for _, name := range []string{"robot", "other", "plain"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name != "plain" {
			account.Annotations = map[string]string{"example.com/role": "puller"}
		}
		_, err := c.Admin.CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{})
		must(t, err)
	}
	// A node may ask for tokens for an audience that no volume of the pod names where it has this right.
	_, err := c.Admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: ns},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"registry.example"},
			Verbs: []string{"request-serviceaccounts-token-audience"}}}}, metav1.CreateOptions{})
	must(t, err)
	private := another(t, "team/app")
	private.Protect("robot", hiddenWord)
	dir, change := withTokenPlugin(t, private.Addr)
	_, a := inCluster(t, c, n, change)
	pod := func(name, account, policy string) {
		t.Helper()
		create(t, c, ns, n.Name, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  serviceAccountName: %s\n  automountServiceAccountToken: false\n"+
			"  terminationGracePeriodSeconds: 1\n  containers: [{name: c, image: %q, args: [sleep], imagePullPolicy: %s}]\n", name, account, private.Ref("team/app"), policy))
	}
	waits := func(name string, words ...string) {
		t.Helper()
		awaitAPIPod(t, c, ns, name, func(p *corev1.Pod) error {
			var errs []error
			for _, reason := range []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"} {
				err := saysWaiting(reason, words...)(p)
				if err == nil {
					return nil
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		})
	}
	pod("owner", "robot", "IfNotPresent")
	waits("owner", "credential provider tokens", `audience "registry.example" not found in pod spec volume`)
	_, err = c.Admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: ns},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ns},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:node:" + n.Name}}}, metav1.CreateOptions{})
	must(t, err)
	awaitAPIPod(t, c, ns, "owner", ready)

	refused := func(suffix string) {
		t.Helper()
		pod("thief"+suffix, "other", "IfNotPresent")
		waits("thief"+suffix, "credential provider tokens: exit status 7", "credentials that this pod does not have")
		pod("silent"+suffix, "other", "Never")
		waits("silent"+suffix, "credentials that this pod does not have")
		pod("plain"+suffix, "plain", "IfNotPresent")
		waits("plain"+suffix, "credential provider tokens is not asked: the service account "+ns+"/plain has no annotation example.com/role")
	}
	refused("")
	for _, name := range []string{"thief", "silent", "plain"} { // an interrupted sandbox start leaves the pod a cgroup until its end
		awaitAPIPod(t, c, ns, name, func(p *corev1.Pod) error {
			for _, is := range p.Status.Conditions {
				if is.Type == corev1.PodReadyToStartContainers && is.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return errors.New("it has no sandbox")
		})
	}
	must(t, a.Kill9())
	must(t, a.Start())
	pod("heir", "robot", "Never")
	awaitAPIPod(t, c, ns, "heir", ready)
	refused("-later")
	notes, err := os.ReadFile(filepath.Join(dir, "runs"))
	must(t, err)
	for _, want := range []string{"system:serviceaccount:" + ns + ":robot [registry.example] owner puller", ":robot [registry.example] heir puller", ":other [registry.example] thief puller"} {
		if !strings.Contains(string(notes), want) {
			t.Errorf("the plugin was not asked for %q: %s", want, notes)
		}
	}
	trace, _, _ := playlet(t, "explain", "pod/"+ns+"/thief", "-v", "--admin-socket="+a.AdminSocket)
	for what, text := range map[string]string{"log": a.Log(), "explanation": trace} {
		if strings.Contains(text, hiddenWord) || strings.Contains(text, "eyJ") {
			t.Errorf("the agent's %s tells a password or a token", what)
		}
	}
	if !strings.Contains(trace, "credential provider tokens: exit status 7") {
		t.Errorf("it is explained as %s", trace)
	}
}
