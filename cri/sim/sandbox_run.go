package sim

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeService answers the calls of RuntimeService, one file each, and leaves the rest Unimplemented.
type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	r *Runtime
}

// RunPodSandbox reserves the name, waits for its delay, sets up the network, and makes the sandbox ready. If it is cancelled or
// fails half-way, it leaves nothing.
func (s *runtimeService) RunPodSandbox(ctx context.Context,
	req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r := s.r
	meta := req.GetConfig().GetMetadata()
	if meta == nil {
		return nil, errUnknown("sandbox config must include metadata")
	}
	sb, err := r.reserveSandbox(req, meta)
	if err != nil {
		return nil, err
	}
	err = r.pause(ctx)

	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		err = r.setupNetworkLocked(sb)
	}
	if err != nil {
		delete(r.store.names, sb.name)
		return nil, err
	}
	r.checkNewSandboxLocked(sb)
	sb.ready, sb.created = true, r.now()
	r.store.addSandbox(sb)
	r.touchSandboxLocked(sb)
	t := r.store.targets[sb.id]
	r.emitLocked(t, sb, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.emitLocked(t, sb, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

func (r *Runtime) reserveSandbox(req *runtimeapi.RunPodSandboxRequest, meta *runtimeapi.PodSandboxMetadata) (*sandbox, error) {
	name := strings.Join([]string{
		meta.GetName(), meta.GetNamespace(), meta.GetUid(), strconv.FormatUint(uint64(meta.GetAttempt()), 10),
	}, "_")
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.newIDLocked()
	if holder, ok := r.store.reserve(name, id); !ok {
		return nil, errUnknown("failed to reserve sandbox name %q: name %q is reserved for %q", name, name, holder)
	}
	known := func(h *runtimeapi.RuntimeHandler) bool { return h.GetName() == req.GetRuntimeHandler() }
	if !slices.ContainsFunc(r.opts.Handlers, known) {
		delete(r.store.names, name)
		return nil, errUnknown("unable to get OCI runtime for sandbox %q: no runtime for %q is configured", id,
			req.GetRuntimeHandler())
	}
	t := podTarget(meta)
	t.ID = id
	r.store.targets[id] = t
	return &sandbox{
		id: id, name: name, config: req.GetConfig(), handler: req.GetRuntimeHandler(),
		refused: map[string]int{}, containers: map[string]*container{},
	}, nil
}

// setupNetworkLocked assigns an address to the sandbox, unless it is in the host's network.
func (r *Runtime) setupNetworkLocked(sb *sandbox) error {
	if hostNetwork(sb.config) {
		return nil
	}
	if !r.network.ok {
		return errUnknown("failed to setup network for sandbox %q: %s", sb.id, r.network.message)
	}
	ip, err := r.store.ips.take()
	if err != nil {
		return status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: %v", sb.id, err)
	}
	sb.ip = ip
	return nil
}

// teardownNetworkLocked releases the address.
func (r *Runtime) teardownNetworkLocked(sb *sandbox) {
	if sb.ip != "" {
		r.store.ips.release(sb.ip)
		sb.ip = ""
	}
}

func hostNetwork(config *runtimeapi.PodSandboxConfig) bool {
	return config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

// podName returns namespace and name of the sandbox's pod, which belong to at most one pod at a time.
func podName(sb *sandbox) string {
	return sb.config.GetMetadata().GetNamespace() + "/" + sb.config.GetMetadata().GetName()
}

// ipPool assigns the addresses 10.88.0.2 to 10.88.255.254, the one longest unused first, as host-local does.
type ipPool struct {
	used map[string]bool
	last netip.Addr
}

var (
	podNetwork = netip.MustParsePrefix("10.88.0.0/16")
	firstPodIP = netip.MustParseAddr("10.88.0.2")
	broadcast  = netip.MustParseAddr("10.88.255.255")

	errNoIP = errors.New("failed to allocate for range 0: no IP addresses available in range set: 10.88.0.2-10.88.255.254")
)

func (p *ipPool) take() (string, error) {
	addr := p.last
	for range 1 << (32 - podNetwork.Bits()) {
		if addr = addr.Next(); !podNetwork.Contains(addr) || addr == broadcast {
			addr = firstPodIP
		}
		if s := addr.String(); !p.used[s] {
			p.used[s], p.last = true, addr
			return s, nil
		}
	}
	return "", errNoIP
}

func (p *ipPool) release(ip string) { delete(p.used, ip) }
