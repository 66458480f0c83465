//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/playlet-dev/playlet/e2e/cluster"
	"github.com/playlet-dev/playlet/e2e/stack"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The agent reads the objects referenced by the API server's pods as the node and not as an administrator: ConfigMaps and Secrets
// in files and environments, Services in environments, their changes, an object that is missing at first, and a token of the
// pod's service account that the API server accepts.
func TestWhatPodsOfTheAPIServerName(t *testing.T) {
	c := cluster.Shared(t)
	n := c.Node(t)
	ns := c.Namespace(t)
	s, _ := inCluster(t, c, n, nil)
	configMaps := c.Admin.CoreV1().ConfigMaps(ns)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "red"}}
	_, err := configMaps.Create(t.Context(), settings, metav1.CreateOptions{})
	must(t, err)
	p := create(t, c, ns, n.Name, manifest(s, "p", `
terminationGracePeriodSeconds: 5
containers:
- name: c
  image: HELLO
  args: [cat, /all/color, --, args, "", $(WORD) $(COLOR) $(KUBERNETES_SERVICE_PORT), --, wait-file, /all/taste, --, cat, /all/color, --, args, "", --, sleep]
  env: [{name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}]
  envFrom: [{configMapRef: {name: upper, optional: true}}]
  volumeMounts: [{name: all, mountPath: /all}]
imagePullSecrets: [{name: none}]
volumes:
- name: all
  projected:
    sources:
    - secret: {name: password, items: [{key: word, path: in/word}]}
    - configMap: {name: settings}`))
	token := create(t, c, ns, n.Name, manifest(s, "token", `
restartPolicy: Never
containers: [{name: c, image: HELLO, args: [cat, /access/token], volumeMounts: [{name: access, mountPath: /access}]}]
volumes: [{name: access, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 600}}]}}]`))

	// The token is the pod's, and good for the API server.
	awaitAPIPod(t, c, ns, "token", inPhase(corev1.PodSucceeded))
	review, err := c.Admin.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authv1.TokenReview{Spec: authv1.TokenReviewSpec{Token: strings.TrimSpace(logOf(t, s, token))}}, metav1.CreateOptions{})
	must(t, err)
	user := review.Status.User
	if want := "system:serviceaccount:" + ns + ":default"; !review.Status.Authenticated || user.Username != want ||
		fmt.Sprint(user.Extra["authentication.kubernetes.io/pod-uid"]) != "["+string(token.UID)+"]" {
		t.Errorf("the token is of %+v: %s", user, review.Status.Error)
	}

	// One waits for the Secret, and has a change of the ConfigMap.
	_, err = c.Admin.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"word": hiddenWord},
	}, metav1.CreateOptions{})
	must(t, err)
	awaitAPIPod(t, c, ns, "p", ready)
	settings.Data = map[string]string{"color": "blue", "taste": "sweet"}
	_, err = configMaps.Update(t.Context(), settings, metav1.UpdateOptions{})
	must(t, err)
	awaitLogs(t, s, containerOf(t, s, p), "red\n"+hiddenWord+" $(COLOR) 443\nblue\n")
	for _, name := range []string{"p", "token"} {
		remove(t, c, ns, name)
		awaitNoAPIPod(t, c, ns, name)
	}
}

// containerOf is the ID of the one container of a pod of the API server.
func containerOf(t *testing.T, s *stack.Stack, pod *corev1.Pod) (id string) {
	t.Helper()
	await(t, func() error {
		all, err := s.Containers(t.Context())
		for _, c := range all {
			if c.Labels[stack.UIDLabel] == string(pod.UID) {
				id = c.Id
				return nil
			}
		}
		return fmt.Errorf("pod %s has no container: %w", pod.Name, err)
	})
	return id
}

// logOf returns the output of that container.
func logOf(t *testing.T, s *stack.Stack, pod *corev1.Pod) string {
	t.Helper()
	text, err := s.Logs(t.Context(), containerOf(t, s, pod))
	must(t, err)
	return text
}
