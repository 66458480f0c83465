package cadvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/model"

	"github.com/playlet-dev/playlet/actors/server/containers"
)

// restAge is the default maximum age of figures: cAdvisor's housekeeping interval.
const restAge = 10 * time.Second

// v1 answers the API v1.3.
func (h *handler) v1(w http.ResponseWriter, r *http.Request) error {
	call := r.PathValue("call")
	switch call {
	case "machine":
		return h.machine(w, r)
	case "events":
		return h.events(w, r)
	case "containers", "subcontainers", "docker":
	default:
		return refuse(http.StatusNotFound, "API v1.3 has no "+strconv.Quote(call))
	}
	query := model.DefaultContainerInfoRequest()
	if err := json.NewDecoder(r.Body).Decode(&query); err != nil && !errors.Is(err, io.EOF) {
		return refuse(http.StatusBadRequest, "the request's body: "+err.Error())
	}
	if query.NumStats < -1 {
		return refuse(http.StatusBadRequest, "num_stats is below -1")
	}
	t, _, err := h.read(r, restAge)
	if err != nil {
		return err
	}
	of := func(name string) any { return t.v1(name, query) }
	if call == "docker" {
		id := name(r)[1:]
		found := t.containers(id)
		if id != "" && len(found) != 1 {
			return refuse(http.StatusNotFound, "there is no one container whose ID begins with "+strconv.Quote(id))
		}
		return list(w, '{', found, of)
	}
	if _, err := t.find(name(r)); err != nil {
		return err
	}
	if call == "subcontainers" {
		return list(w, '[', t.within(name(r)), of)
	}
	return containers.JSON(w, of(name(r)))
}

// v1 returns a cgroup in the form of v1.3, with the number of samples in the query.
func (t tree) v1(name string, query model.ContainerInfoRequest) *model.ContainerInfo {
	info := *t[name]
	for _, child := range t.children(name) {
		info.Subcontainers = append(info.Subcontainers, t[child].ContainerReference)
	}
	info.Stats = newest(slices.DeleteFunc(slices.Clone(info.Stats), func(s *model.ContainerStats) bool {
		return s.Timestamp.Before(query.Start) || !query.End.IsZero() && s.Timestamp.After(query.End)
	}), query.NumStats)
	return &info
}

func newest[T any](list []T, n int) []T {
	if n < 0 {
		return list
	}
	return list[max(0, len(list)-n):]
}

// v2 answers the API v2.1.
func (h *handler) v2(w http.ResponseWriter, r *http.Request) error {
	switch call := r.PathValue("call"); call {
	case "machine":
		return h.machine(w, r)
	case "version":
		return containers.JSON(w, version())
	case "attributes":
		m, err := h.conf.Figures.Machine(r.Context())
		if err != nil {
			return err
		}
		return containers.JSON(w, struct {
			model.VersionInfo
			*model.MachineInfo
		}{model.VersionInfo{
			KernelVersion: machine.KernelVersion(), ContainerOsVersion: machine.ContainerOsVersion(), CadvisorVersion: version(),
		}, m})
	case "machinestats", "stats":
		return h.stats(w, r, call)
	case "summary":
		return refuse(http.StatusNotImplemented, "a summary of the last minute, hour and day takes samples that are collected "+
			"all the time, and here they are collected on request; stats has the latest samples")
	case "events":
		return refuse(http.StatusNotImplemented, "/api/v1.3/events has those of containers")
	case "ps":
		return refuse(http.StatusNotImplemented, "processes are not listed: command lines may have secrets, and this port asks "+
			"for no credentials")
	case "appmetrics":
		return refuse(http.StatusNotImplemented, "no metrics of applications are collected")
	default:
		return refuse(http.StatusNotFound, "API v2.1 has no "+strconv.Quote(call))
	}
}

func (h *handler) machine(w http.ResponseWriter, r *http.Request) error {
	m, err := h.conf.Figures.Machine(r.Context())
	if err != nil {
		return err
	}
	return containers.JSON(w, m)
}

// version returns the version of the library with this model.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/google/cadvisor/lib" {
				return m.Version
			}
		}
	}
	return "unknown"
}

// stats answers stats and machinestats of v2.1.
func (h *handler) stats(w http.ResponseWriter, r *http.Request, call string) error {
	o, err := options(r)
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	t, _, err := h.read(r, *o.MaxAge)
	if err != nil {
		return err
	}
	if call == "machinestats" {
		root, err := t.find("/")
		if err != nil {
			return err
		}
		return containers.JSON(w, newest(samples(root), o.Count))
	}
	var found []string
	at := name(r)
	switch {
	case o.IdType == model.TypeDocker:
		found = t.containers(at[1:])
	case o.IdType == model.TypePodman:
		// no container here is Podman's
	case t[at] == nil:
	case o.Recursive:
		found = t.within(at)
	default:
		found = []string{at}
	}
	if len(found) == 0 {
		return refuse(http.StatusNotFound, fmt.Sprintf("there is no container %q of type %s", at, o.IdType))
	}
	// The root's are machinestats.
	found = slices.DeleteFunc(found, func(name string) bool { return name == "/" })
	return list(w, '{', found, func(name string) any {
		return containerInfo{Spec: specOf(t[name]), Stats: newest(samples(t[name]), o.Count)}
	})
}

// options reads the parameters of a request of v2.1.
func options(r *http.Request) (model.RequestOptions, error) {
	age := restAge
	o := model.RequestOptions{IdType: model.TypeName, Count: 64, MaxAge: &age}
	query := r.URL.Query()
	var err error
	if text := query.Get("type"); text != "" {
		if o.IdType = text; text != model.TypeName && text != model.TypeDocker && text != model.TypePodman {
			return o, fmt.Errorf("type %q is none of name, docker and podman", text)
		}
	}
	if text := query.Get("count"); text != "" {
		if o.Count, err = strconv.Atoi(text); err != nil || o.Count < -1 {
			return o, fmt.Errorf("count %q is not a number from -1 on", text)
		}
	}
	if text := query.Get("recursive"); text != "" {
		if o.Recursive, err = strconv.ParseBool(text); err != nil {
			return o, fmt.Errorf("recursive %q is neither true nor false", text)
		}
	}
	if text := query.Get("max_age"); text != "" {
		if age, err = time.ParseDuration(text); err != nil || age < 0 {
			return o, fmt.Errorf("max_age %q is not a duration", text)
		}
	}
	return o, nil
}

// list answers with many values, each encoded when it is written, to hold only one twice in memory: as an object by name, or as
// an array if it opens with a square bracket.
func list(w http.ResponseWriter, open byte, names []string, of func(name string) any) error {
	w.Header().Set("Content-Type", "application/json")
	before := []byte{open}
	for _, name := range names {
		if open == '{' {
			key, _ := json.Marshal(name) // cannot fail for a string
			before = append(append(before, key...), ':')
		}
		body, err := json.Marshal(of(name))
		if err == nil {
			_, err = w.Write(append(before, body...))
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the client has left, or must not take a part for the whole
		}
		before = []byte{','}
	}
	if len(names) > 0 {
		before = nil
	}
	_, _ = w.Write(append(before, open+2)) // of ASCII: { | }, [ \ ]
	return nil
}
