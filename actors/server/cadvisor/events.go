package cadvisor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/shares"
	"github.com/playlet-dev/playlet/actors/server/containers"
	"github.com/playlet-dev/playlet/cri"
)

const (
	// maxStreams limits the concurrent streams of events.
	maxStreams = 4
	// maxSeen limits the recorded events of a stream, which prevent repetition, in addition to those that may come again.
	maxSeen = 4096
	// lookEvery is the interval for checking the cgroup of a container that started in a pod without one.
	lookEvery = 2 * time.Second
)

// eventsQuery selects events.
type eventsQuery struct {
	name       string
	below      bool // include the cgroups below it
	types      []model.EventType
	start, end time.Time
	most       int
}

// readEventsQuery reads a request's parameters. It ignores those that cAdvisor cannot read.
func readEventsQuery(name string, values url.Values) eventsQuery {
	is := func(key string) bool { yes, err := strconv.ParseBool(values.Get(key)); return yes && err == nil }
	q := eventsQuery{name: name, below: is("subcontainers"), most: 10}
	if n, err := strconv.Atoi(values.Get("max_events")); err == nil {
		q.most = n
	}
	q.start, _ = time.Parse(time.RFC3339, values.Get("start_time"))
	q.end, _ = time.Parse(time.RFC3339, values.Get("end_time"))
	for key, kind := range map[string]model.EventType{
		"oom_events": model.EventOom, "oom_kill_events": model.EventOomKill, "creation_events": model.EventContainerCreation,
		"deletion_events": model.EventContainerDeletion,
	} {
		if is(key) || is("all_events") {
			q.types = append(q.types, kind)
		}
	}
	return q
}

func (q *eventsQuery) wants(e *model.Event) bool {
	within := e.ContainerName == q.name || q.below && strings.HasPrefix(e.ContainerName, strings.TrimSuffix(q.name, "/")+"/")
	return within && slices.Contains(q.types, e.EventType) && !e.Timestamp.Before(q.start) &&
		(q.end.IsZero() || !e.Timestamp.After(q.end))
}

// events returns the events of pods' containers from their statuses: the current and the previous run. A pod without a remaining
// cgroup has none, since its containers have no names there.
func (t tree) events(pods []board.Pod) (out []model.Event) {
	around := map[string][2]string{} // by pod: prefix and suffix of its containers' cgroup names around the ID
	for name, info := range t {
		if labels := info.Spec.Labels; len(info.Aliases) > 0 {
			before, after, _ := strings.Cut(name, info.Aliases[0])
			around[labels[cri.LabelPodNamespace]+"/"+labels[cri.LabelPodName]] = [2]string{before, after}
		}
	}
	for _, p := range pods {
		names, ok := around[p.Pod.Namespace+"/"+p.Pod.Name]
		if !ok || p.Status == nil {
			continue
		}
		add := func(id string, kind model.EventType, at time.Time, data model.EventData) {
			_, id, _ = strings.Cut(id, "://")
			name := names[0] + id + names[1]
			out = append(out, model.Event{ContainerName: name, EventType: kind, Timestamp: at, EventData: data})
		}
		of := p.Status
		for _, s := range slices.Concat(of.InitContainerStatuses, of.ContainerStatuses, of.EphemeralContainerStatuses) {
			for _, state := range []v1.ContainerState{s.LastTerminationState, s.State} {
				if r := state.Running; r != nil {
					add(s.ContainerID, model.EventContainerCreation, r.StartedAt.Time, model.EventData{})
				}
				e := state.Terminated
				if e == nil || e.ContainerID == "" { // it never existed
					continue
				}
				add(e.ContainerID, model.EventContainerCreation, e.StartedAt.Time, model.EventData{})
				if e.Reason == "OOMKilled" {
					add(e.ContainerID, model.EventOom, e.FinishedAt.Time, model.EventData{})
					add(e.ContainerID, model.EventOomKill, e.FinishedAt.Time, model.EventData{})
				}
				add(e.ContainerID, model.EventContainerDeletion, e.FinishedAt.Time, model.EventData{
					ContainerDeletion: &model.ContainerDeletionEventData{ExitCode: int(e.ExitCode)}})
			}
		}
	}
	slices.SortStableFunc(out, func(x, y model.Event) int {
		return cmp.Or(x.Timestamp.Compare(y.Timestamp), cmp.Compare(x.ContainerName, y.ContainerName))
	})
	return out
}

// events answers with the starts and exits of containers, or streams future ones.
func (h *handler) events(w http.ResponseWriter, r *http.Request) error {
	q := readEventsQuery(name(r), r.URL.Query())
	stream := streams(r)
	out := http.NewResponseController(w)
	lines, seen := json.NewEncoder(w), map[string]bool{}
	if stream {
		release, err := h.streams.Take(shares.Client(r))
		if err != nil {
			return refuse(http.StatusServiceUnavailable, err.Error())
		}
		defer release()
		_ = out.SetReadDeadline(time.Time{}) // a deadline for reading would end the stream
	}
	for first, age := true, restAge; ; first, age = false, lookEvery/2 {
		now := h.conf.Board.Now()
		t, _, err := h.read(r, age)
		if err != nil {
			return err
		}
		list := slices.DeleteFunc(t.events(now.Pods), func(e model.Event) bool { return !q.wants(&e) })
		if !stream {
			if q.most > 0 {
				list = newest(list, q.most)
			}
			return containers.JSON(w, append([]model.Event{}, list...))
		}
		_ = out.SetWriteDeadline(time.Now().Add(answerTimeout)) // not supported by a test's recorder
		was := seen
		if len(seen) > maxSeen {
			seen = map[string]bool{}
		}
		for i := range list {
			key := fmt.Sprint(list[i].ContainerName, list[i].EventType, list[i].Timestamp.UnixNano())
			if !was[key] && !first && lines.Encode(list[i]) != nil {
				return nil
			}
			seen[key] = true
		}
		if out.Flush() != nil {
			return nil
		}
		wait, cancel := context.WithTimeout(r.Context(), lookEvery)
		_, _ = h.conf.Board.After(wait, now.Version) // or the cgroups are checked again
		if cancel(); r.Context().Err() != nil {
			return nil
		}
	}
}

// streams reports whether a request is for a stream, which ends when its client leaves.
func streams(r *http.Request) bool {
	yes, err := strconv.ParseBool(r.URL.Query().Get("stream"))
	return yes && err == nil && strings.HasPrefix(r.URL.Path, "/api/v1.3/events")
}
