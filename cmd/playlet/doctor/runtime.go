package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/messages"
)

// Runtime is the part of the runtime's client that the doctor uses. *cri.Client implements it.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	GetContainerEvents(ctx context.Context, opened func(), event func(*runtimeapi.ContainerEventResponse)) error
	Close() error
}

// runtimeFacts are the runtime's answers, read once for all checks.
type runtimeFacts struct {
	version *runtimeapi.VersionResponse
	status  *runtimeapi.StatusResponse
	// driver is "systemd" or "cgroupfs", or empty if the runtime does not report it (before containerd 2.0).
	driver string
	// images are the mount points of the file systems that images and containers lie on.
	images []string
	events bool
}

// askLimit is how long the runtime may take to answer everything.
const askLimit = 10 * time.Second

// askRuntime asks the runtime once; whoever comes later waits for the same answers.
func (m *Machine) askRuntime(ctx context.Context) (*runtimeFacts, error) {
	return m.runtime.get(ctx, m.askNow)
}

func (m *Machine) askNow(ctx context.Context) (*runtimeFacts, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
	defer cancel()
	client, err := m.Dial(m.Node)
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // it was only asked
	f := &runtimeFacts{}
	if f.version, err = client.Version(ctx); err != nil {
		return nil, err
	}
	if f.status, err = client.Status(ctx, true); err != nil {
		return nil, err
	}
	config, err := client.RuntimeConfig(ctx)
	if err != nil && !cri.IsUnimplemented(err) {
		return nil, err
	}
	if linux := config.GetLinux(); linux != nil {
		f.driver = strings.ToLower(linux.GetCgroupDriver().String())
	}
	if info, err := client.ImageFsInfo(ctx); err == nil { // skipped if it is not reported
		for _, fs := range append(info.GetImageFilesystems(), info.GetContainerFilesystems()...) {
			if at := fs.GetFsId().GetMountpoint(); at != "" {
				f.images = append(f.images, at)
			}
		}
	}
	f.events = hasEvents(ctx, client)
	return f, nil
}

// hasEvents subscribes to events. A runtime without events returns an error at once, but not always before its answers to later
// requests. So it gets the time of a number of answers, which is longer on a slow machine.
func hasEvents(ctx context.Context, client Runtime) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- client.GetContainerEvents(ctx, func() { close(opened) }, func(*runtimeapi.ContainerEventResponse) {})
	}()
	select {
	case <-opened:
	case err := <-ended:
		return sends(err)
	}
	for range 50 {
		if _, err := client.Version(ctx); err != nil {
			break
		}
		select {
		case err := <-ended:
			return sends(err)
		default:
		}
	}
	cancel()
	return sends(<-ended)
}

// sends reports whether a stream that ended with this error, unasked, would have had events. CRI-O ends it at once if events are
// off, as they are by default.
func sends(err error) bool { return err != nil && !errors.Is(err, io.EOF) && !cri.IsUnimplemented(err) }

// unit returns the runtime's name in the service manager, by its socket, and a hint to its log. Both are general for an unknown
// socket.
func unit(endpoint string) (name, journal string) {
	for _, known := range []string{"containerd", "crio"} {
		if strings.Contains(endpoint, known) {
			return known, "see its own log (journalctl -u " + known + ")"
		}
	}
	return "", "see its own log"
}

// checkRuntime reports whether the runtime is usable.
func checkRuntime(ctx context.Context, m *Machine) []Finding {
	endpoint := m.Node.Kubelet.ContainerRuntimeEndpoint
	facts, err := m.askRuntime(ctx)
	if err != nil {
		seen, do := explain(err, endpoint)
		return fail(do, "%s: %s", endpoint, seen)
	}
	v := facts.version
	return ok("%s %s, CRI %s, at %s", v.GetRuntimeName(), v.GetRuntimeVersion(), v.GetRuntimeApiVersion(), endpoint)
}

// explain returns the problem with the runtime, and its remedy.
func explain(err error, endpoint string) (seen, do string) {
	name, journal := unit(endpoint)
	start := "start the runtime, or name its socket with --container-runtime-endpoint"
	if name != "" {
		start = "start the runtime (systemctl start " + name + "), or name its socket with --container-runtime-endpoint"
	}
	path, pathErr := cri.SocketPath(endpoint)
	msg, why := cri.Message(err), messages.CauseOf(err).Code
	switch {
	case pathErr != nil:
		return pathErr.Error(), "correct containerRuntimeEndpoint, or --container-runtime-endpoint"
	case cri.IsPermanent(err) && name != "containerd":
		return msg, "upgrade the runtime to a version with CRI v1"
	case cri.IsPermanent(err):
		return msg,
			"containerd needs 1.6 or newer, and its CRI plugin: no \"cri\" in disabled_plugins of /etc/containerd/config.toml"
	case cri.IsTimeout(err) || why == messages.CauseSilent: // gRPC gives up on a connection without a word
		return "it accepts connections and does not answer",
			journal + "; restarting it may help, and containers keep running"
	}
	if info, statErr := os.Stat(path); errors.Is(statErr, os.ErrNotExist) {
		return "there is no socket", start
	} else if statErr == nil && info.Mode()&os.ModeSocket == 0 {
		return "it is not a socket", start
	}
	switch {
	case why == messages.CauseNobodyListens:
		return "nothing listens on the socket", start
	case why == messages.CauseSocketForbidden:
		return "permission denied", "run as root"
	case why == messages.CauseStarting:
		return "it is still starting: " + msg, "wait; " + journal
	default:
		return msg, journal
	}
}

// noRuntime is the finding of checks that need an answer of the runtime.
func noRuntime() []Finding { return skip("the runtime does not answer") }

// checkConditions reports the runtime's own conditions. Conditions that the CRI does not define are specific to a runtime.
func checkConditions(ctx context.Context, m *Machine) []Finding {
	facts, err := m.askRuntime(ctx)
	if err != nil {
		return noRuntime()
	}
	var found []Finding
	var good []string
	for _, c := range facts.status.GetStatus().GetConditions() {
		if c.GetStatus() {
			good = append(good, c.GetType())
			continue
		}
		why := c.GetType() + " is false"
		for _, part := range []string{c.GetReason(), c.GetMessage()} {
			if part != "" {
				why += ": " + part
			}
		}
		switch c.GetType() {
		case runtimeapi.RuntimeReady:
			_, journal := unit(m.Node.Kubelet.ContainerRuntimeEndpoint)
			found = append(found, fail(journal, "%s", why)...)
		case runtimeapi.NetworkReady:
			found = append(found,
				fail("pods on the host's network still run; for the others see network below",
					"%s", why)...)
		default:
			found = append(found, warn("nothing now; resolve it before the runtime is upgraded", "%s", why)...)
		}
	}
	if len(good) > 0 {
		found = append(found, ok("%s", strings.Join(good, ", "))...)
	}
	return found
}

// checkFeatures reports the runtime's features. A missing one is no failure: pods that need it are rejected, or wait, with a
// reason.
func checkFeatures(ctx context.Context, m *Machine) []Finding {
	facts, err := m.askRuntime(ctx)
	if err != nil {
		return noRuntime()
	}
	var can, cannot []string
	note := func(has bool, what, otherwise string) {
		if has {
			can = append(can, what)
		} else {
			cannot = append(cannot, what+" ("+otherwise+")")
		}
	}
	var handlers []string
	var recursive, users bool
	for _, h := range facts.status.GetRuntimeHandlers() {
		if h.GetName() == "" { // the default one
			recursive, users = h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
			continue
		}
		handlers = append(handlers, h.GetName())
	}
	slices.Sort(handlers)
	note(facts.events, "events", "changes are found by polling")
	note(facts.driver != "", "cgroup driver reporting", "cgroupDriver in the configuration must match the runtime's")
	note(recursive, "recursive read-only mounts", "pods that request them wait")
	note(users, "user namespaces", "pods with hostUsers: false wait")
	note(facts.status.GetFeatures().GetSupplementalGroupsPolicy(), "supplementalGroupsPolicy", "pods that request Strict wait")
	text := strings.Join(can, ", ")
	if len(handlers) > 0 {
		text += "; handlers: " + strings.Join(handlers, ", ")
	}
	text = strings.TrimPrefix(text, "; ")
	if len(cannot) > 0 {
		text = strings.TrimPrefix(fmt.Sprintf("%s; not: %s", text, strings.Join(cannot, ", ")), "; ")
	}
	if facts.driver == "" { // the only one by which ordinary pods can come to grief
		return warn("check that cgroupDriver matches the runtime's (SystemdCgroup of containerd, cgroup_manager "+
			"of CRI-O); newer runtimes report it (containerd 2.0)", "%s", text)
	}
	return ok("%s", text)
}
