package cadvisor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
)

// eventful returns a pod with a container in its second run, after an OOM kill.
func eventful() board.Pod {
	at := func(second int) metav1.Time { return metav1.NewTime(begin.Add(time.Duration(second) * time.Second)) }
	return board.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}, Status: &v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{Name: "i", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ContainerID: "containerd://init", StartedAt: at(1), FinishedAt: at(2)}}}},
		ContainerStatuses: []v1.ContainerStatus{{Name: "nginx", ContainerID: "containerd://" + id1,
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://first",
				StartedAt: at(3), FinishedAt: at(5), ExitCode: 137, Reason: "OOMKilled"}},
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(6)}}}}}}
}

// reported returns a short form of an event.
func reported(e model.Event) string {
	text := fmt.Sprintf("%d %s %s", int(e.Timestamp.Sub(begin).Seconds()), strings.TrimPrefix(e.ContainerName, podName+"/"), e.EventType)
	if d := e.EventData.ContainerDeletion; d != nil {
		text += fmt.Sprint(" ", d.ExitCode)
	}
	return text
}

// Starts and exits are reported in their order, as selected.
func TestEvents(t *testing.T) {
	b := board.New()
	over := eventful()
	over.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "over"}}
	b.Publish(board.Snapshot{Pods: []board.Pod{over, eventful(), {Pod: over.Pod}}})
	h := handlerOf(&fake{}, b)
	all := []string{"1 init containerCreation", "2 init containerDeletion 0", "3 first containerCreation", "5 first oom",
		"5 first oomKill", "5 first containerDeletion 137", "6 " + id1 + " containerCreation"}
	for query, want := range map[string][]string{
		"?all_events=true&subcontainers=true":                           all,
		podName + "?all_events=true&subcontainers=true":                 all,
		"?all_events=true":                                              nil, // of the root itself
		one + "?all_events=true":                                        all[6:],
		"/kubepods/burst?all_events=true&subcontainers=true":            nil,
		podName + "?subcontainers=true":                                 nil, // without a type
		podName + "?subcontainers=true&oom_events=true":                 all[3:4],
		podName + "?subcontainers=true&oom_kill_events=true":            all[4:5],
		podName + "?subcontainers=true&creation_events=true":            {all[0], all[2], all[6]},
		podName + "?subcontainers=true&deletion_events=1":               {all[1], all[5]},
		podName + "?subcontainers=true&all_events=true&max_events=2":    all[5:],
		podName + "?subcontainers=true&all_events=true&max_events=many": all,
		podName + "?subcontainers=true&all_events=true&start_time=" + begin.Add(3*time.Second).Format(time.RFC3339) +
			"&end_time=" + begin.Add(5*time.Second).Format(time.RFC3339): all[2:6],
	} {
		w := get(t, h, "/api/v1.3/events"+query)
		var events []model.Event
		if err := json.Unmarshal(w.Body.Bytes(), &events); err != nil || w.Code != http.StatusOK {
			t.Errorf("%s: %d %s: %v", query, w.Code, w.Body, err)
		}
		var got []string
		for _, e := range events {
			got = append(got, reported(e))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// A stream has the events after its request, each once, until its client leaves; the number of streams is limited.
func TestEventsAreStreamed(t *testing.T) {
	b := board.New()
	b.Publish(board.Snapshot{Pods: []board.Pod{eventful()}})
	server := httptest.NewServer(handlerOf(&fake{}, b))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	ask := func() *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			server.URL+"/api/v1.3/events/?stream=true&all_events=true&subcontainers=true", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	var open []*http.Response
	for range maxStreams {
		open = append(open, ask())
	}
	more := ask()
	if err := more.Body.Close(); err != nil || more.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more: %s", more.Status)
	}
	lines := bufio.NewScanner(open[0].Body)
	for _, want := range []string{"7 " + id1 + " containerDeletion 1", "8 second containerCreation"} {
		p := eventful()
		s := &p.Status.ContainerStatuses[0]
		s.LastTerminationState = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://" + id1,
			StartedAt: s.State.Running.StartedAt, FinishedAt: metav1.NewTime(begin.Add(7 * time.Second)), ExitCode: 1}}
		s.State = v1.ContainerState{}
		if strings.HasPrefix(want, "8") {
			s.ContainerID = "containerd://second"
			s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(begin.Add(8 * time.Second))}
		}
		b.Publish(board.Snapshot{Pods: []board.Pod{p}})
		b.Publish(board.Snapshot{Pods: []board.Pod{p}})
		var e model.Event
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || reported(e) != want {
			t.Errorf("%s (%v), want %s", lines.Text(), err, want)
		}
	}
	for _, o := range open {
		_ = o.Body.Close() // it was not read to its end
	}
}
