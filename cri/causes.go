package cri

import (
	"errors"
	"regexp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/playlet-dev/playlet/messages"
)

// Runtimes, registries, CNI plugins and OCI runtimes report most failures as free text. Only this file classifies it: by the gRPC
// code if it is specific enough, else by the text.

// class matches one kind of failure of a call.
type class struct {
	cause messages.CauseCode
	code  codes.Code     // the required status code; OK matches any
	words *regexp.Regexp // the pattern of the text; nil matches any. Its groups are the cause's Name and Detail
}

func byCode(cause messages.CauseCode, code codes.Code) class { return class{cause: cause, code: code} }

func byWords(cause messages.CauseCode, words string) class {
	return class{cause: cause, words: regexp.MustCompile("(?is)" + words)}
}

const noSpace = `no space left on device`

// pullClasses apply to PullImage. A missing platform also has the code NotFound, so its pattern comes first.
var pullClasses = []class{
	byCode(messages.CauseUnauthorized, codes.Unauthenticated),
	byCode(messages.CauseUnauthorized, codes.PermissionDenied),
	byWords(messages.CauseDiskFull, noSpace),
	byWords(messages.CauseWrongPlatform, `no match for platform|exec format`),
	byWords(messages.CauseRegistryUnresolved, `no such host|server misbehaving|name resolution|\blookup \S+(?: on \S+)?: `),
	byCode(messages.CauseImageNotFound, codes.NotFound),
	byCode(messages.CauseRegistryUnreachable, codes.DeadlineExceeded),
	byWords(messages.CauseRegistryUnreachable,
		`connection refused|i/o timeout|no route to host|network is unreachable|connection reset|deadline exceeded`),
	byWords(messages.CausePlainHTTP, `server gave HTTP response to HTTPS client`),
	byWords(messages.CauseUntrustedCertificate, `(?:^|\s)(?:x509: |tls: [^/]*certificate)`), // not the name of an image
	byWords(messages.CauseTooManyRequests, `\b429\b|too many requests|toomanyrequests`),
	byWords(messages.CauseUnauthorized, `unauthorized|authorization failed|access denied|access to the resource is denied|`+
		`insufficient_scope|\b40[13]\b|forbidden`),
	byWords(messages.CauseImageNotFound, `not found|manifest unknown|name unknown|\b404\b`),
}

// sandboxClasses apply to RunPodSandbox.
var sandboxClasses = []class{
	byWords(messages.CausePluginAbsent, `failed to find plugin "([^"]+)" in path \[([^\]]*)\]`),
	byWords(messages.CauseNoAddress, `no IP addresses available|no available IP`),
	byWords(messages.CauseNoNetwork, `cni plugin not initialized|no network config found|no networks found`),
	byWords(messages.CauseHandlerAbsent, `no runtime for "([^"]+)" is configured`),
	byWords(messages.CauseNoSandboxImage, `failed to get sandbox image "([^"]+)"`),
	byWords(messages.CauseDiskFull, noSpace),
}

// startClasses apply to CreateContainer, StartContainer, and the exits of containers that never ran.
var startClasses = []class{
	byWords(messages.CauseCommandIsFolder, `exec: "([^"]+)": is a directory`),
	byWords(messages.CauseMountPointAbsent, `to rootfs at "([^"]+)".*read-only file system`),
	byWords(messages.CauseNoIDMap, `MOUNT_ATTR_IDMAP on (.+?): invalid argument`),
	byWords(messages.CauseWrongPlatform, `exec format error`),
	byWords(messages.CauseWorkingDirRefused, `chdir to cwd \("([^"]+)"\)`),
	byWords(messages.CauseWorkingDirRefused, `container init: mkdir ([^:]+): `), // the runtime only creates the working folder
	byWords(messages.CauseDiskFull, noSpace),
	byWords(messages.CauseStartOutOfMemory, `container init was OOM-killed`),
	byWords(messages.CauseInitEnded, `procReady not received`),
}

// connectionClasses apply to all other calls: gRPC's client has no code for the reason of a failed connection.
var connectionClasses = []class{
	byWords(messages.CauseSilent, `server preface`),
	byWords(messages.CauseSocketAbsent, `no such file or directory`),
	byWords(messages.CauseNobodyListens, `connection refused`),
	byWords(messages.CauseSocketForbidden, `permission denied`),
	byWords(messages.CauseStarting, `not initialized yet`),
}

// Cause implements messages.CauseError. The code is empty if no class matches.
func (e *CallError) Cause() messages.Cause {
	if e.NotSent {
		return messages.Cause{}
	}
	s := status.Convert(e.Err)
	switch e.Call {
	case "PullImage":
		c := classified(pullClasses, s.Code(), s.Message())
		if c.Code == "" && errors.Is(e.Reason, crierrors.ErrRegistryUnavailable) {
			c.Code = messages.CauseRegistryUnreachable
		}
		c.Text = s.Message()
		return c
	case "RunPodSandbox":
		return classified(sandboxClasses, s.Code(), s.Message())
	case "CreateContainer", "StartContainer":
		return StartCause(s.Message())
	}
	return classified(connectionClasses, s.Code(), s.Message())
}

// StartCause classifies the text of a failed start, from an error or from the status of a container that never ran.
func StartCause(text string) messages.Cause {
	c := classified(startClasses, codes.Unknown, text)
	if c.Code == "" {
		switch why, command := WhyNotRun(text); why {
		case NotFound:
			c.Code, c.Name = messages.CauseCommandAbsent, command
		case NotAllowed:
			c.Code, c.Name = messages.CauseCommandRefused, command
		}
	}
	if c.Code == messages.CauseNoIDMap {
		c.Detail = "which has no idmapped mounts" // the runtime does not name it; callers that can look do
	}
	c.Text = text
	return c
}

// EndCause classifies the text of a container's exit. OCI runtimes may report a failed start as an exit: runc starts the process
// before it notifies the parent.
func EndCause(exitCode int32, text string) messages.Cause {
	if c := StartCause(text); exitCode == 255 && c.Code == messages.CauseWrongPlatform {
		return c
	}
	return messages.Cause{Text: text}
}

func classified(classes []class, code codes.Code, text string) messages.Cause {
	for _, c := range classes {
		if c.words == nil {
			if c.code == code {
				return messages.Cause{Code: c.cause}
			}
			continue
		}
		if found := c.words.FindStringSubmatch(text); found != nil {
			found = append(found, "", "")
			return messages.Cause{Code: c.cause, Name: found[1], Detail: found[2]}
		}
	}
	return messages.Cause{}
}
