package cri

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

func TestNameConflicts(t *testing.T) {
	const id = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, tc := range []struct {
		name     string
		call     string
		code     codes.Code
		message  string
		conflict bool
	}{
		{"containerd sandbox", "RunPodSandbox", codes.Unknown,
			`failed to reserve sandbox name "web_default_u_0": name "web_default_u_0" is reserved for "` + id + `"`, true},
		{"containerd container in progress", "CreateContainer", codes.Unknown,
			`failed to reserve container name "c_web_default_u_0"; check if another CreateContainer request is in progress: name "c_web_default_u_0" is reserved for "` + id + `"`, true},
		{"cri-dockerd", "CreateContainer", codes.Unknown,
			`Conflict. The container name "/k8s_c_web_default_u_0" is already in use by container "` + id + `". You have to remove`, true},
		{"CRI-O", "RunPodSandbox", codes.Unknown,
			"error reserving pod name k8s_web_default_u_0 for id " + id + ": name is reserved", true},
		{"code alone", "CreateContainer", codes.AlreadyExists, "exists", true},
		{"another call", "StartContainer", codes.AlreadyExists, "exists", false},
		{"another error", "RunPodSandbox", codes.Unknown, "no network", false},
	} {
		err := newCallError(tc.call, "default/web", true, status.Error(tc.code, tc.message))
		if IsNameConflict(err) != tc.conflict {
			t.Errorf("%s: conflict %t", tc.name, IsNameConflict(err))
		}
	}
	if IsNameConflict(errors.New("x")) {
		t.Error("an error of another kind is a conflict")
	}
}

func TestErrorKinds(t *testing.T) {
	type kinds struct{ notFound, unavailable, timeout, permanent, unimplemented bool }
	for _, tc := range []struct {
		code     codes.Code
		answered bool
		want     kinds
		text     string
	}{
		{codes.NotFound, true, kinds{notFound: true}, "StartContainer web: m (NotFound)"},
		{codes.Unknown, true, kinds{}, "StartContainer web: m"},
		{codes.Unavailable, false, kinds{unavailable: true}, "StartContainer web: the container runtime cannot be reached: m"},
		{codes.Unavailable, true, kinds{unavailable: true}, "StartContainer web: m (Unavailable)"},
		{codes.DeadlineExceeded, false, kinds{timeout: true},
			"StartContainer web: the container runtime gave no answer in time: m"},
		{codes.DeadlineExceeded, true, kinds{timeout: true}, "StartContainer web: m (DeadlineExceeded)"},
		{codes.InvalidArgument, true, kinds{permanent: true}, "StartContainer web: m (InvalidArgument)"},
		{codes.Unimplemented, true, kinds{permanent: true, unimplemented: true}, "StartContainer web: m (Unimplemented)"},
		// A status invented by gRPC is no statement about the request.
		{codes.InvalidArgument, false, kinds{}, "StartContainer web: m (InvalidArgument)"},
	} {
		err := newCallError("StartContainer", "web", tc.answered, status.Error(tc.code, "m"))
		got := kinds{IsNotFound(err), IsUnavailable(err), IsTimeout(err), IsPermanent(err), IsUnimplemented(err)}
		if got != tc.want {
			t.Errorf("%s, answered %t: %+v", tc.code, tc.answered, got)
		}
		if err.Error() != tc.text {
			t.Errorf("text %q, want %q", err, tc.text)
		}
		if status.Code(err) != tc.code {
			t.Errorf("%s is hidden: %s", tc.code, status.Code(err))
		}
		if IsNotSent(err) {
			t.Errorf("%s counts as not sent", tc.code)
		}
	}
}

// Messages of containerd 1.6 and 2 about an unreachable registry, and about other failures.
func TestWordsOfARegistryThatIsAway(t *testing.T) {
	const pull = `failed to pull and unpack image "r/x:1": `
	for text, away := range map[string]bool{
		`failed to resolve image: failed to do request: Head "https://r/v2/x/manifests/1": dial tcp 127.0.0.1:1: connect: connection refused`:   true,
		`failed to resolve reference "r/x:1": failed to do request: Head "http://r/v2/x/manifests/1": EOF`:                                      true,
		`failed to resolve image: failed to do request: Head "https://r/v2/x/manifests/1": dial tcp: lookup r on 10.0.0.10:53: no such host`:    true,
		`failed to copy: httpReadSeeker: failed open: failed to do request: Get "http://r/v2/x/blobs/sha256:5": read: connection reset by peer`: true,
		`failed to resolve image: unexpected status from HEAD request to http://r/v2/x/manifests/1: 503 Service Unavailable`:                    true,
		`failed to resolve reference "r/x:1": pulling from host r failed with status code [manifests 1]: 502 Bad Gateway`:                       true,
		`failed to copy: httpReadSeeker: failed open: unexpected status code http://r/v2/x/blobs/sha256:5: 504 Gateway Timeout`:                 true,
		`failed to resolve image: unexpected status from HEAD request to http://r/v2/x/manifests/1: 500 Internal Server Error`:                  false,
		`failed to resolve image: unexpected status from HEAD request to http://r/v2/x/manifests/1: 429 Too Many Requests`:                      false,
		`failed to resolve image: unexpected status from HEAD request to http://r/v2/503/manifests/1: 401 Unauthorized`:                         false,
		`failed to resolve image: r/x:1: not found`: false,
		`failed to resolve image: failed to do request: Head "https://r/v2/x/manifests/1": tls: failed to verify certificate: x509: certificate signed by unknown authority`: false,
		`failed to resolve image: failed to do request: Head "https://r/v2/x/manifests/1": http: server gave HTTP response to HTTPS client`:                                  false,
	} {
		err := newCallError("PullImage", "r/x:1", true, status.Error(codes.Unknown, pull+text))
		if got := errors.Is(err, crierrors.ErrRegistryUnavailable); got != away || IsUnavailable(err) {
			t.Errorf("%s: %t", text, got)
		}
	}
	late := status.Error(codes.DeadlineExceeded, pull+`failed to resolve image: failed to do request: Head "https://r/v2/x/manifests/1": net/http: timeout awaiting response headers`)
	for answered, away := range map[bool]bool{true: true,
		false: false} { // a call that timed out on our side is no statement about the registry
		if got := errors.Is(newCallError("PullImage", "r/x:1", answered, late), crierrors.ErrRegistryUnavailable); got != away {
			t.Errorf("a registry that does not answer, answered %t: %t", answered, got)
		}
	}
	other := newCallError("RunPodSandbox", "x", true, status.Error(codes.Unknown, "failed to do request: connection refused"))
	if errors.Is(other, crierrors.ErrRegistryUnavailable) {
		t.Error("a sandbox has a registry")
	}
}

// TestQueuedCallsEndWithTheirContext covers a call that never got a slot.
func TestQueuedCallsEndWithTheirContext(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fakeRuntime{runSandbox: func(context.Context, *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse,
		error) {
		entered <- struct{}{}
		<-leave
		return &runtimeapi.RunPodSandboxResponse{PodSandboxId: "s"}, nil
	}}
	c := fakeClient(t, f, Options{Limits: Limits{ClassStart: 1}})
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "web"}}
	first := make(chan error, 1)
	go func() {
		_, err := c.RunPodSandbox(t.Context(), config, "")
		first <- err
	}()
	<-entered

	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := c.RunPodSandbox(ctx, config, "")
		second <- err
	}()
	waitFor(t, func() bool { return c.budget[ClassStart].waiting() == 1 })
	cancel()
	err := <-second
	if !IsNotSent(err) || !errors.Is(err, context.Canceled) || IsUnavailable(err) || IsNameConflict(err) ||
		!strings.HasPrefix(err.Error(), "RunPodSandbox default/web: not sent") {
		t.Fatalf("%v", err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	c.budget[ClassStart].idle(t)
}
