package explain

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/playlet-dev/playlet/cri"
)

// saying is what runtimes, registries and CNI plugins say of a failure, and what that means. Only what others say is looked at
// by its words; what Playlet itself found out comes with its reason.
type saying struct {
	words  *regexp.Regexp // its groups are $1 … of means
	means  string
	remedy string
}

func says(words, means, remedy string) saying {
	return saying{regexp.MustCompile("(?is)" + words), means, remedy}
}

// meant is what a text means by the first saying that it has.
func meant(list []saying, text string) (means, remedy string, known bool) {
	for _, s := range list {
		if at := s.words.FindStringSubmatchIndex(text); at != nil {
			return string(s.words.ExpandString(nil, s.means, text, at)), s.remedy, true
		}
	}
	return "", "", false
}

const roomRemedy = "free disk space on the node, e.g. by removing images that nobody uses"

// ofImages follow "image NAME ".
var ofImages = []saying{
	says(`no space left on device`, "cannot be pulled: no space is left on the node's disk", roomRemedy),
	says(`no such host|server misbehaving|name resolution|\blookup \S+( on \S+)?: `,
		"cannot be pulled: the name of its registry cannot be resolved", "correct the image's name, or the node's DNS"),
	says(`connection refused|i/o timeout|no route to host|network is unreachable|connection reset|deadline exceeded`,
		"cannot be pulled: its registry does not answer", "see that the registry runs and can be reached from this node"),
	says(`server gave HTTP response to HTTPS client`, "cannot be pulled: its registry speaks plain HTTP, which the runtime does not",
		"give the registry a certificate, or configure the runtime to use plain HTTP for it"),
	says(`x509|certificate`, "cannot be pulled: the runtime does not trust its registry's certificate",
		"add the registry's CA to the runtime's or the node's"),
	says(`no match for platform|exec format`, "is not made for this node's architecture", "name an image for this architecture"),
	says(`\b429\b|too many requests|toomanyrequests`, "cannot be pulled: its registry has had too many requests",
		"wait, or pull with credentials"),
	says(`unauthorized|authorization failed|access denied|access to the resource is denied|insufficient_scope|\b40[13]\b|forbidden`,
		"cannot be pulled: its registry refuses it to these credentials",
		"correct the image's name, or name a Secret with credentials in imagePullSecrets"),
	says(`not found|manifest unknown|name unknown|\b404\b`, "not found in its registry", "correct the image's name or tag, or push the image"),
}

// ofSandboxes stand by themselves.
var ofSandboxes = []saying{
	says(`failed to find plugin "([^"]+)" in path \[([^\]]*)\]`, "the CNI plugin $1 is not installed in $2",
		"install the CNI plugins there; see playlet doctor"),
	says(`no IP addresses available|no available IP`, "the pods' network has no address left for the pod",
		"remove pods, or give the node a larger pod CIDR; playlet doctor shows leases that nobody uses"),
	says(`cni plugin not initialized|no network config found|no networks found`, "the runtime has no network configuration",
		"install a network (CNI); see playlet doctor"),
	says(`no runtime for "([^"]+)" is configured`, `the runtime has no handler "$1", which the pod's RuntimeClass asks for`,
		"configure the handler in the runtime, or name another RuntimeClass"),
	says(`failed to get sandbox image "([^"]+)"`, "the sandbox image $1 cannot be had",
		"see that its registry can be reached, or configure another sandbox image in the runtime"),
	says(`failed to construct FQDN from pod hostname and cluster domain, FQDN \S+ has`,
		"the pod's FQDN is too long for its hostname (setHostnameAsFQDN)", "shorten the pod's name, hostname or subdomain"),
	says(`no space left on device`, "the pod's sandbox cannot be made: no space is left on the node's disk", roomRemedy),
}

// ofStarts follow "container NAME".
var ofStarts = []saying{
	says(`post-start hook: (.*)`, ": its post-start hook fails: $1", "mend the hook, lifecycle.postStart; what it printed is not shown, since it may be a secret: run it with playlet exec"),
	says(`exec: "([^"]+)": is a directory`, `: its command "$1" is a directory`, "correct the container's command"),
	says(`to rootfs at "([^"]+)".*read-only file system`, `: what is to be mounted at "$1" has no place there: it lies in what is `+
		`mounted read-only, or the image's root is`,
		"make the mount point in the image or the volume, or mount what is around it for writing"),
	says(`exec format error`, ": its command is no program of this node's architecture", "name an image for this architecture"),
	says(`chdir to cwd \("([^"]+)"\)`, `: its working directory "$1" cannot be entered`, "correct the container's workingDir"),
	says(`no space left on device`, " cannot be started: no space is left on the node's disk", roomRemedy),
}

// ofCommand explains a start that failed for its command.
func ofCommand(text string) (means, remedy string, known bool) {
	why, command := cri.WhyNotRun(text)
	if command != "" {
		command = fmt.Sprintf(" %q", command)
	}
	switch why {
	case cri.NotFound:
		return ": its command" + command + " is not in the image", "correct the container's command, or its image", true
	case cri.NotAllowed:
		return ": its command" + command + " may not be executed by its user",
			"correct the command, its mode in the image, or runAsUser", true
	}
	return "", "", false
}

// plainly is a refusal of admission without the kubelet's words before it.
func plainly(message string) string {
	message = strings.TrimPrefix(message, "Pod was rejected: ")
	if rest, ok := strings.CutPrefix(message, "Predicate "); ok {
		if _, why, ok := strings.Cut(rest, " failed: "); ok {
			return why
		}
	}
	if short, ok := strings.CutPrefix(message, "Node didn't have enough resource: "); ok {
		name, rest, _ := strings.Cut(short, ", ")
		switch name {
		case "pods":
			return "the node has as many pods as it may have (" + rest + ")"
		case "cpu":
			name, rest = "CPU", "in thousandths, "+rest
		}
		return "the node has too little " + name + " left for the pod (" + rest + ")"
	}
	return strings.TrimSuffix(strings.TrimSpace(message), ".")
}
