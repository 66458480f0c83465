package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playlet-dev/playlet/messages"
)

const (
	pulling = `failed to pull and unpack image "reg.example:5000/x:y": failed to resolve reference "reg.example:5000/x:y": `
	atHead  = pulling + `failed to do request: Head "https://reg.example:5000/v2/x/manifests/y": `
	network = `failed to setup network for sandbox "4f5a": `
	starts  = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: " +
		"unable to start container process: error during container init: "
)

func TestCallError_Cause(t *testing.T) {
	for _, c := range []struct {
		call         string
		code         codes.Code
		text         string
		want         messages.CauseCode
		name, detail string
	}{
		{call: "PullImage", code: codes.NotFound, text: pulling + "reg.example:5000/x:y: not found", want: messages.CauseImageNotFound},
		{call: "PullImage", code: codes.Unknown, text: pulling + "manifest unknown", want: messages.CauseImageNotFound},
		{call: "PullImage", code: codes.NotFound, text: `failed to resolve reference "127.0.0.1:42999/x:y": not found`, want: messages.CauseImageNotFound},
		{call: "PullImage", code: codes.NotFound, text: "no match for platform in manifest: not found", want: messages.CauseWrongPlatform},
		{call: "PullImage", code: codes.Unknown, text: atHead + "dial tcp 127.0.0.1:5000: connect: connection refused", want: messages.CauseRegistryUnreachable},
		{call: "PullImage", code: codes.DeadlineExceeded, text: "context deadline exceeded", want: messages.CauseRegistryUnreachable},
		{call: "PullImage", code: codes.Unknown, text: "RegistryUnavailable: it is closed", want: messages.CauseRegistryUnreachable},
		{call: "PullImage", code: codes.Unknown, text: atHead + "dial tcp: lookup reg.example: no such host", want: messages.CauseRegistryUnresolved},
		{call: "PullImage", code: codes.Unknown, want: messages.CauseRegistryUnresolved,
			text: "dial tcp: lookup a.b on 10.0.0.1:53: read udp 10.0.0.2:4->10.0.0.1:53: read: connection refused"},
		{call: "PullImage", code: codes.Unknown, text: atHead + "http: server gave HTTP response to HTTPS client", want: messages.CausePlainHTTP},
		{call: "PullImage", code: codes.Unknown, want: messages.CauseUntrustedCertificate,
			text: atHead + "tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{call: "PullImage", code: codes.Unknown, text: "unexpected status from HEAD request to https://r/v2/x: 429 Too Many Requests", want: messages.CauseTooManyRequests},
		{call: "PullImage", code: codes.Unknown, text: "unexpected status from HEAD request to https://r/v2/x: 401 Unauthorized", want: messages.CauseUnauthorized},
		{call: "PullImage", code: codes.Unknown, want: messages.CauseUnauthorized,
			text: `failed to resolve image "r/x509-exporter:1": unexpected status from HEAD request to https://r/v2/x509-exporter: 401 Unauthorized`},
		{call: "PullImage", code: codes.Unknown, want: messages.CauseImageNotFound,
			text: `failed to resolve image "r/x509:1": r/x509: manifest unknown`},
		{call: "PullImage", code: codes.Unknown, want: messages.CauseUnauthorized,
			text: `failed to resolve image "r/certificate-manager:1": denied: 403 Forbidden`},
		{call: "PullImage", code: codes.Unknown, text: atHead + "remote error: tls: bad certificate", want: messages.CauseUntrustedCertificate},
		{call: "PullImage", code: codes.PermissionDenied, text: "no", want: messages.CauseUnauthorized},
		{call: "PullImage", code: codes.Unauthenticated, text: "no", want: messages.CauseUnauthorized},
		{call: "PullImage", code: codes.Unknown, want: messages.CauseUnauthorized,
			text: pulling + "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope"},
		{call: "PullImage", code: codes.Unknown, text: "failed to extract layer: write /var/x: no space left on device: unknown", want: messages.CauseDiskFull},
		{call: "PullImage", code: codes.Unknown, text: "the moon is full"},

		{call: "RunPodSandbox", code: codes.Unknown, want: messages.CausePluginAbsent, name: "bridge", detail: "/opt/cni/bin",
			text: network + `plugin type="bridge" failed (add): failed to find plugin "bridge" in path [/opt/cni/bin]`},
		{call: "RunPodSandbox", code: codes.Unknown, want: messages.CauseNoAddress,
			text: network + `plugin type="bridge" failed (add): failed to allocate for range 0: no IP addresses available in range set: 10.88.0.1-10.88.0.6`},
		{call: "RunPodSandbox", code: codes.Unknown, text: network + "cni plugin not initialized", want: messages.CauseNoNetwork},
		{call: "RunPodSandbox", code: codes.Unknown, want: messages.CauseHandlerAbsent, name: "gvisor",
			text: `failed to get sandbox runtime: no runtime for "gvisor" is configured`},
		{call: "RunPodSandbox", code: codes.NotFound, text: `failed to start sandbox "4f": failed to get sandbox image "registry.k8s.io/pause:3.10": not found`,
			want: messages.CauseNoSandboxImage, name: "registry.k8s.io/pause:3.10"},
		{call: "RunPodSandbox", code: codes.Unknown, text: "mkdir /run/x: no space left on device", want: messages.CauseDiskFull},
		{call: "RunPodSandbox", code: codes.Unknown, text: network + "the moon is full"},

		{call: "StartContainer", code: codes.Unknown, text: starts + `exec: "nope": executable file not found in $PATH: unknown`,
			want: messages.CauseCommandAbsent, name: "nope"},
		{call: "StartContainer", code: codes.Unknown, text: "executable file not found in $PATH: No such file or directory: unknown", want: messages.CauseCommandAbsent},
		{call: "StartContainer", code: codes.Unknown, text: starts + `exec: "/etc/passwd": permission denied`, want: messages.CauseCommandRefused, name: "/etc/passwd"},
		{call: "StartContainer", code: codes.Unknown, text: starts + `exec: "/etc": is a directory: unknown`, want: messages.CauseCommandIsFolder, name: "/etc"},
		{call: "StartContainer", code: codes.Unknown, text: starts + `exec /bad: exec format error`, want: messages.CauseWrongPlatform},
		{call: "StartContainer", code: codes.Unknown, text: starts + `chdir to cwd ("/x") set in config.json failed: not a directory`,
			want: messages.CauseWorkingDirRefused, name: "/x"},
		{call: "CreateContainer", code: codes.Unknown, want: messages.CauseMountPointAbsent, name: "/data/sub",
			text: starts + `error mounting "/var/lib/x" to rootfs at "/data/sub": create mountpoint for /data/sub mount: mkdirat sub: read-only file system`},
		{call: "CreateContainer", code: codes.Unknown, text: "write /x: no space left on device", want: messages.CauseDiskFull},
		{call: "StartContainer", code: codes.Unknown, text: "device or resource busy"},

		{call: "Version", code: codes.Unavailable, want: messages.CauseSocketAbsent,
			text: `connection error: desc = "transport: Error while dialing: dial unix /run/x.sock: connect: no such file or directory"`},
		{call: "Version", code: codes.Unavailable, want: messages.CauseNobodyListens,
			text: `connection error: desc = "transport: Error while dialing: dial unix /run/x.sock: connect: connection refused"`},
		{call: "Status", code: codes.Unavailable, want: messages.CauseSocketForbidden,
			text: `connection error: desc = "transport: Error while dialing: dial unix /run/x.sock: connect: permission denied"`},
		{call: "Status", code: codes.Unknown, text: "server is not initialized yet", want: messages.CauseStarting},
		{call: "Version", code: codes.Unavailable, want: messages.CauseSilent,
			text: `connection error: desc = "error reading server preface: read unix @->/run/x.sock: use of closed network connection"`},
		{call: "ListContainers", code: codes.NotFound, text: "not found"},
	} {
		err := fmt.Errorf("outer: %w", newCallError(c.call, "x", true, status.Error(c.code, c.text)))
		got := messages.CauseOf(err)
		if got.Code != c.want || got.Name != c.name || got.Detail != c.detail || got.Text == "" {
			t.Errorf("%s, %q: got %+v, want %s %q %q", c.call, c.text, got, c.want, c.name, c.detail)
		}
	}
	err := &CallError{Call: "PullImage", NotSent: true, Err: errors.New("not found")}
	if got := messages.CauseOf(err); got.Code != "" || got.Text != err.Error() {
		t.Errorf("a call that was not sent: %+v", got)
	}
}

// TestCallError_CauseOfRecordedErrors classifies errors of real runtimes, recorded by TestErrorsOfRuntimes of package e2e.
func TestCallError_CauseOfRecordedErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/errors-*.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("got the records %q, %v, want two runtimes", files, err)
	}
	for _, file := range files {
		var all []struct {
			Cause            messages.CauseCode
			Name, Call, Text string
			Code             string
		}
		text, err := os.ReadFile(file)
		if err := errors.Join(err, json.Unmarshal(text, &all)); err != nil || len(all) == 0 {
			t.Fatalf("%s: %d errors, %v", file, len(all), err)
		}
		for _, want := range all {
			code := codes.Unknown
			for code = range codes.Unauthenticated + 1 {
				if code.String() == want.Code {
					break
				}
			}
			got := messages.CauseOf(newCallError(want.Call, "x", true, status.Error(code, want.Text)))
			if got.Code != want.Cause || got.Name != want.Name {
				t.Errorf("%s, %s, %q: got %+v, want %s %q", file, want.Call, want.Text, got, want.Cause, want.Name)
			}
		}
	}
}

func TestEndCause(t *testing.T) {
	const bad = "exec /bad: exec format error"
	for _, c := range []struct {
		code int32
		text string
		want messages.CauseCode
	}{{255, bad, messages.CauseWrongPlatform}, {1, bad, ""}, {255, "no space left on device", ""}} {
		if got := EndCause(c.code, c.text); got.Code != c.want || got.Text != c.text {
			t.Errorf("exit code %d, %q: %+v", c.code, c.text, got)
		}
	}
}
