package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/playlet-dev/playlet/actors/container/envfile"
	"github.com/playlet-dev/playlet/actors/internal/admission"
	"github.com/playlet-dev/playlet/actors/internal/devices"
	"github.com/playlet-dev/playlet/actors/internal/host"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/cri"
	"github.com/playlet-dev/playlet/cri/facts"
	"github.com/playlet-dev/playlet/cri/remains"
	"github.com/playlet-dev/playlet/cri/translate"
	"github.com/playlet-dev/playlet/messages"
)

// start creates and starts the attempt's container. It joins a start in progress, and adopts a container that exists already.
func start(ctx context.Context, h *host.Host, w messages.RunContainer) startResult {
	key := fmt.Sprintf("%scontainer/%s/%d", cri.StartPrefix(string(w.Pod.UID)), w.Container.Name, w.Attempt)
	done, err := cri.Run(ctx, h.Ops, key, h.Reap(4), func(ctx context.Context) (startResult, error) {
		return makeAndStart(ctx, h, w), nil
	})
	if err = host.Joined(err); err != nil {
		return startResult{attempt: w.Attempt, reason: &messages.Reason{Code: messages.ReasonRunContainer, Message: err.Error()}}
	}
	return done
}

func makeAndStart(ctx context.Context, h *host.Host, w messages.RunContainer) startResult {
	done := startResult{attempt: w.Attempt}
	failed := func(c messages.Cause) startResult {
		done.reason = &messages.Reason{Code: messages.ReasonRunContainer, Message: c.Text, Cause: c}
		return done
	}
	made := create(ctx, h, w)
	if made.failed != nil {
		done.reason, done.nameTaken, done.reserved = made.failed, made.nameTaken, made.reserved
		return done
	}
	id := made.id
	if made.existing {
		// It may have been started and may even have exited: a container is never started twice.
		fact, err := readFact(ctx, h, id, w.Sandbox.ID)
		if err != nil {
			fact, err = readFact(ctx, h, id, w.Sandbox.ID)
		}
		switch {
		case err != nil:
			return failed(messages.CauseOf(err))
		case facts.CutOff(fact):
			done.fact = &fact
			return failed(cri.StartCause(fact.Message))
		case fact.State != messages.ContainerCreated:
			done.fact, done.hook = &fact, fact.State == messages.ContainerRunning && hookPending(h, w, id)
			return done
		}
	}
	done.created, done.tooLarge = !made.existing, made.tooLarge
	if err := noteHook(h, w, id); err != nil {
		return failed(messages.Cause{Text: "its post-start hook cannot be recorded: " + err.Error()})
	}
	if err := h.Ops.MayStart(string(w.Pod.UID), w.Sandbox.ID); err != nil {
		return failed(messages.CauseOf(err))
	}
	if err := checkVolumes(h, w); err != nil { // the runtime mounts them now
		return failed(messages.CauseOf(err))
	}
	startErr := h.CRI.StartContainer(ctx, id)
	// The status decides, not the answer: a lost answer is no failure.
	fact, err := readFact(ctx, h, id, w.Sandbox.ID)
	if err != nil {
		return failed(messages.CauseOf(errors.Join(startErr, err)))
	}
	startErr = withFileSystem(startErr)
	runs, ended := fact.State == messages.ContainerRunning, fact.State == messages.ContainerExited
	done.fact, done.hook = &fact, runs && postStart(w.Container) != nil
	done.started = runs || ended && !fact.StartedAt.IsZero()
	if done.started {
		h.Started.AddContainer(string(w.Pod.UID), fact)
	}
	switch {
	case !done.started && startErr != nil:
		return failed(messages.CauseOf(startErr))
	case !runs && !ended:
		return failed(messages.Cause{Text: "the container did not start"})
	}
	return done
}

// createResult is the result of create: the ID of an existing or new container, or the reason why there is none.
type createResult struct {
	id        string
	existing  bool
	failed    *messages.Reason
	nameTaken bool // the attempt's name is not available
	// reserved means that a container that the runtime does not list has the name; see messages.ContainerReported.
	reserved bool
	// tooLarge is the reason why its program cannot start; see translate.TooLarge.
	tooLarge string
}

func createFailure(code string, err error) createResult {
	return createResult{failed: &messages.Reason{Code: code, Message: err.Error(), Cause: messages.CauseOf(err)}}
}

func create(ctx context.Context, h *host.Host, w messages.RunContainer) createResult {
	if w.Adopt != nil {
		return createResult{id: w.Adopt.ID, existing: true}
	}
	if err := checkVolumes(h, w); err != nil { // the variables and parts of volumes are read below
		return createFailure(messages.ReasonCreateContainer, err)
	}
	config, sandbox, err := configs(ctx, h, w)
	if err != nil {
		return createFailure(messages.ReasonCreateConfig, err)
	}
	if err := checkVolumes(h, w); err != nil { // a device plugin may have taken long
		return createFailure(messages.ReasonCreateContainer, err)
	}
	id, err := h.CRI.CreateContainer(ctx, w.Sandbox.ID, config, sandbox)
	metrics.CountImageVolumes(len(w.ImageVolumes), err)
	if err == nil && id == "" {
		err = errors.New("the runtime answered CreateContainer without an ID")
	}
	if err == nil {
		return createResult{id: id, tooLarge: translate.TooLarge(config)}
	}
	if cri.IsPermanent(err) {
		return createFailure(messages.ReasonCreateContainer, err)
	}
	// The call may have created it: look for its name before any second call.
	there, left := findAttempt(ctx, h, w)
	switch {
	case there != "":
		return createResult{id: there, existing: true}
	case left != "":
		// Only its name is in the way: its start was interrupted, and it never ran.
		if err = host.Ignore(h.CRI.RemoveContainer(cri.PartOfStart(ctx), left)); err != nil {
			m := createFailure(messages.ReasonCreateContainer,
				fmt.Errorf("the runtime cannot remove the container of an interrupted start: %w", err))
			m.nameTaken = remains.Refused(err)
			return m
		}
		id, err = h.CRI.CreateContainer(ctx, w.Sandbox.ID, config, sandbox)
	}
	if err != nil {
		m := createFailure(messages.ReasonCreateContainer, err)
		m.reserved = cri.IsNameConflict(err)
		return m
	}
	return createResult{id: id}
}

// findAttempt looks for the attempt's container. there is the ID of a container in the desired sandbox. left is the ID of the
// remainder of an interrupted start, in any sandbox. Both are empty when there is none.
func findAttempt(ctx context.Context, h *host.Host, w messages.RunContainer) (there, left string) {
	labels := facts.PodFilter(string(w.Pod.UID))
	labels[cri.LabelContainerName] = w.Container.Name
	list, err := h.CRI.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels})
	if err != nil {
		return "", ""
	}
	for _, c := range list {
		if c.GetMetadata().GetAttempt() != w.Attempt {
			continue
		}
		fact, err := readFact(ctx, h, c.GetId(), c.GetPodSandboxId())
		if err == nil && facts.CutOff(fact) {
			return "", c.GetId()
		}
		if c.GetPodSandboxId() == w.Sandbox.ID {
			return c.GetId(), ""
		}
	}
	return "", ""
}

// configs returns the CRI configs of the container and its sandbox, after it has created the files and folders that they name.
func configs(ctx context.Context, h *host.Host, w messages.RunContainer) (*runtimeapi.ContainerConfig,
	*runtimeapi.PodSandboxConfig, error) {
	users, err := h.UsersOf(ctx, w.Pod)
	if err != nil {
		return nil, nil, err
	}
	sandbox, err := h.SandboxConfig(w.Pod, w.Sandbox.Attempt, w.Sandbox.CgroupParent, users)
	if err != nil {
		return nil, nil, err
	}
	ips := w.Sandbox.IPs
	if w.Pod.Spec.HostNetwork {
		ips = h.NodeIPs()
	}
	var given devices.ContainerEdits
	if h.Devices != nil {
		if given, err = h.Devices.Prepare(ctx, w.Pod, unclaimed(w.Pod, w.Container)); err != nil {
			return nil, nil, err
		}
	}
	if h.Claims != nil {
		claimed, err := h.Claims.Devices(ctx, w.Pod, w.Container)
		if err != nil {
			return nil, nil, err
		}
		given.CDIDevices = append(given.CDIDevices, claimed...)
	}
	env, err := environment(ctx, h, w, ips)
	if err != nil {
		return nil, nil, err
	}
	env = append(given.Env, env...) // the pod's own variables take precedence, as in the kubelet
	mounts, err := mounts(ctx, h, w, env)
	if err != nil {
		return nil, nil, err
	}
	mounts = append(given.Mounts, mounts...)
	for _, m := range mounts { // the files on disk keep the owners of a pod with the host's users
		m.UidMappings, m.GidMappings = users.GetUids(), users.GetGids()
	}
	blocks, err := blockDevices(w)
	if err != nil {
		return nil, nil, err
	}
	params := translate.ContainerParams{
		RestartCount: w.Attempt, Users: users, ImageRef: w.ImageRef, Env: env, Mounts: mounts, Groups: w.Groups,
		TargetID: w.TargetID,
		Devices:  append(given.Devices, blocks...), CDIDevices: given.CDIDevices,
		Annotations: map[string]string{cri.AnnotationBackoff: strconv.Itoa(w.BackOff),
			cri.AnnotationRootDir: h.RootDir},
	}
	for key, value := range given.Annotations {
		if _, own := params.Annotations[key]; !own {
			params.Annotations[key] = value
		}
	}
	if len(w.ImageVolumes) > 0 {
		params.Annotations[cri.AnnotationImageVolumes] = strings.Join(slices.Sorted(maps.Values(w.ImageVolumes)), " ")
	}
	if translate.MayRestartAll(&w.Pod.Spec) {
		params.Annotations[cri.AnnotationRound] = strconv.FormatUint(uint64(w.Round), 10)
	}
	if err := translate.CarryMade(params.Annotations, w.Pod, w.Container); err != nil {
		return nil, nil, err
	}
	if runAsNonRoot(w.Pod, w.Container) {
		image, _, err := h.CRI.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: w.ImageRef}, false)
		if err != nil {
			return nil, nil, err
		}
		params.ImageUID, params.ImageUsername = cri.ImageUser(image)
	}
	if err := host.MakeLogDir(translate.ContainerLogDir(h.Node.PodLogsDir, w.Pod, w.Container.Name)); err != nil {
		return nil, nil, err
	}
	config, err := translate.NewContainerConfig(w.Pod, w.Container, h.Node, params)
	return config, sandbox, err
}

// unclaimed returns the container without the extended resources that it has from a ResourceClaim.
func unclaimed(pod *v1.Pod, c *v1.Container) *v1.Container {
	plain := admission.Unclaimed(pod)
	if plain == pod {
		return c
	}
	for _, list := range [][]v1.Container{plain.Spec.InitContainers, plain.Spec.Containers} {
		for i := range list {
			if list[i].Name == c.Name {
				return &list[i]
			}
		}
	}
	return c
}

// unreadTimeout limits how long a start waits for objects that have not been read yet. The error then names them.
const unreadTimeout = 2 * time.Second

func environment(ctx context.Context, h *host.Host, w messages.RunContainer, ips []string) (env []translate.EnvVar, err error) {
	sources := translate.EnvSources{
		HostIPs: h.NodeIPs(), PodIPs: ips, Allocatable: h.Allocatable,
		ConfigMap: func(name string) (*v1.ConfigMap, bool, error) { return h.Objects.ConfigMap(w.Pod, name) },
		Secret:    func(name string) (*v1.Secret, bool, error) { return h.Objects.Secret(w.Pod, name) },
		File:      func(volume, path, key string) (string, bool, error) { return fileKey(w, volume, path, key) },
	}
	err = h.Objects.Settle(ctx, unreadTimeout, func() error {
		if sources.Services, err = h.Objects.ServiceEnv(w.Pod); err != nil {
			return err
		}
		env, err = translate.ResolveEnv(w.Pod, w.Container, sources)
		return err
	})
	return env, err
}

// fileKey returns the value of a key in a file of one of the pod's volumes. As in the kubelet, an empty value counts as absent.
func fileKey(w messages.RunContainer, volume, path, key string) (value string, found bool, err error) {
	dir, ok := w.Volumes[volume]
	if !ok {
		return "", false, fmt.Errorf("volume %q of key %s is not mounted", volume, key)
	}
	value, err = envfile.Read(dir, path, key)
	if err != nil {
		return "", false, fmt.Errorf("file %s of volume %q: %w", path, volume, err)
	}
	return value, value != "", nil
}

func runAsNonRoot(pod *v1.Pod, c *v1.Container) bool {
	if s := c.SecurityContext; s != nil && s.RunAsNonRoot != nil {
		return *s.RunAsNonRoot
	}
	s := pod.Spec.SecurityContext
	return s != nil && s.RunAsNonRoot != nil && *s.RunAsNonRoot
}

// readFact reads a container's status from the runtime, and its termination message.
func readFact(ctx context.Context, h *host.Host, id, sandbox string) (messages.ContainerFact, error) {
	resp, err := h.CRI.ContainerStatus(ctx, id, false)
	if err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		resp, err = h.CRI.ContainerStatus(ctx, id, false) // unknown containers are stopped: confirm the state first
	}
	if err != nil {
		return messages.ContainerFact{}, err
	}
	fact, err := facts.Container(resp.GetStatus())
	if err != nil {
		return messages.ContainerFact{}, err
	}
	fact.SandboxID = sandbox
	if fact.State == messages.ContainerExited {
		fact = facts.AddMessage(fact, facts.Source(resp.GetStatus()).Read())
	}
	return fact, nil
}
