package sim

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podUIDLabel is the kubelet's label for the sandboxes and containers of a pod. Lists by it are frequent enough to deserve an
// index.
const podUIDLabel = "io.kubernetes.pod.uid"

// sandbox is one pod sandbox. Runtime.mu guards it; config is never changed.
type sandbox struct {
	id, name string
	config   *runtimeapi.PodSandboxConfig
	handler  string
	created  time.Time
	ready    bool
	ip       string // "" in the host's network and after the network was removed

	stopAsked  bool           // StopPodSandbox or RemovePodSandbox was called
	refused    map[string]int // containers rejected because the sandbox was dead, by reserved name
	containers map[string]*container
	view       *SandboxState // the state in Snapshot; nil after a change
}

func (s *sandbox) uid() string { return s.config.GetMetadata().GetUid() }

// container is one container. Runtime.mu guards it; config is never changed.
type container struct {
	id, name string
	sandbox  *sandbox
	target   Target
	config   *runtimeapi.ContainerConfig
	image    string // image ID
	logPath  string

	state                      runtimeapi.ContainerState
	created, started, finished time.Time
	exitCode                   int32
	reason, message            string
	resources                  *runtimeapi.ContainerResources

	starting  bool // StartContainer is in progress
	stopAsked bool // the caller has requested a stop of the container or its sandbox
	signalled bool // the stop signal was sent; it is sent once in a life of the runtime
	signals   int  // number of stop signals in all
	behaviour Behaviour
	ends      *timer        // timer of the process's own exit
	terms     *timer        // timer of the exit after its stop signal
	stopped   chan struct{} // closed at the exit
	log       *logFile

	view *ContainerState // the state in Snapshot; nil after a change
}

func (c *container) running() bool { return c.state == runtimeapi.ContainerState_CONTAINER_RUNNING }

// store holds sandboxes and containers. Runtime.mu guards it.
type store struct {
	sandboxes  map[string]*sandbox
	containers map[string]*container
	// In order of creation, for snapshots.
	sandboxOrder   []*sandbox
	containerOrder []*container

	sandboxesByUID    map[string]map[*sandbox]struct{}   // metadata.uid
	sandboxesByName   map[string]map[*sandbox]struct{}   // podName
	sandboxesByLabel  map[string]map[*sandbox]struct{}   // podUIDLabel
	containersByLabel map[string]map[*container]struct{} // podUIDLabel

	names   map[string]string // reserved name to ID, of sandboxes and containers
	targets map[string]Target // of every ID ever assigned, so that the journal can name removed objects
	ips     ipPool
}

func newStore() store {
	return store{
		sandboxes:         map[string]*sandbox{},
		containers:        map[string]*container{},
		sandboxesByUID:    map[string]map[*sandbox]struct{}{},
		sandboxesByName:   map[string]map[*sandbox]struct{}{},
		sandboxesByLabel:  map[string]map[*sandbox]struct{}{},
		containersByLabel: map[string]map[*container]struct{}{},
		names:             map[string]string{},
		targets:           map[string]Target{},
		ips:               ipPool{used: map[string]bool{}},
	}
}

func (s *store) addSandbox(sb *sandbox) {
	s.sandboxes[sb.id] = sb
	s.sandboxOrder = append(s.sandboxOrder, sb)
	index(s.sandboxesByUID, sb.uid(), sb)
	index(s.sandboxesByName, podName(sb), sb)
	index(s.sandboxesByLabel, sb.config.GetLabels()[podUIDLabel], sb)
}

func (s *store) removeSandbox(sb *sandbox) {
	delete(s.sandboxes, sb.id)
	delete(s.names, sb.name)
	s.sandboxOrder = without(s.sandboxOrder, sb)
	unindex(s.sandboxesByUID, sb.uid(), sb)
	unindex(s.sandboxesByName, podName(sb), sb)
	unindex(s.sandboxesByLabel, sb.config.GetLabels()[podUIDLabel], sb)
}

func (s *store) addContainer(c *container) {
	s.containers[c.id] = c
	c.sandbox.containers[c.id] = c
	s.containerOrder = append(s.containerOrder, c)
	index(s.containersByLabel, c.config.GetLabels()[podUIDLabel], c)
}

func (s *store) removeContainer(c *container) {
	delete(s.containers, c.id)
	delete(c.sandbox.containers, c.id)
	delete(s.names, c.name)
	s.containerOrder = without(s.containerOrder, c)
	unindex(s.containersByLabel, c.config.GetLabels()[podUIDLabel], c)
}

// reserve assigns a name to an ID, or returns the ID that has it.
func (s *store) reserve(name, id string) (holder string, ok bool) {
	if holder, taken := s.names[name]; taken {
		return holder, false
	}
	s.names[name] = id
	return id, true
}

// sandboxesOf returns the sandboxes that can match the selector, in an order without meaning.
func (s *store) sandboxesOf(selector map[string]string) []*sandbox {
	if uid, ok := selector[podUIDLabel]; ok {
		return inIDOrder(keys(s.sandboxesByLabel[uid]), func(sb *sandbox) string { return sb.id })
	}
	return inIDOrder(slices.Clone(s.sandboxOrder), func(sb *sandbox) string { return sb.id })
}

// containersOf returns the containers that can match sandbox ID and selector, in an order without meaning.
func (s *store) containersOf(sandboxID string, selector map[string]string) []*container {
	id := func(c *container) string { return c.id }
	if sandboxID != "" {
		sb := s.sandboxes[sandboxID]
		if sb == nil {
			return nil
		}
		return sb.inOrder()
	}
	if uid, ok := selector[podUIDLabel]; ok {
		return inIDOrder(keys(s.containersByLabel[uid]), id)
	}
	return inIDOrder(slices.Clone(s.containerOrder), id)
}

// inOrder returns the containers of the sandbox, sorted by ID.
func (s *sandbox) inOrder() []*container {
	all := make([]*container, 0, len(s.containers))
	for _, c := range s.containers {
		all = append(all, c)
	}
	return inIDOrder(all, func(c *container) string { return c.id })
}

// inIDOrder sorts by ID: reproducible, but not the order of creation, which no caller may rely on.
func inIDOrder[T any](all []T, id func(T) string) []T {
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	return all
}

func keys[T comparable](set map[T]struct{}) []T {
	all := make([]T, 0, len(set))
	for x := range set {
		all = append(all, x)
	}
	return all
}

func index[T comparable](m map[string]map[T]struct{}, key string, x T) {
	if m[key] == nil {
		m[key] = map[T]struct{}{}
	}
	m[key][x] = struct{}{}
}

func unindex[T comparable](m map[string]map[T]struct{}, key string, x T) {
	delete(m[key], x)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

func without[T comparable](all []T, x T) []T {
	if i := slices.Index(all, x); i >= 0 {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// matches reports whether labels include every pair of the selector.
func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
