package supervisors

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playlet-dev/playlet/messages"
)

// Metrics are counted by the kind of actor, never by the actor: the kinds are the rows of the tree, and so bounded.
var (
	mailboxDesc = prometheus.NewDesc("playlet_mailbox_messages",
		"Messages waiting in mailboxes, excluding those being handled.", []string{"kind"}, nil)
	oldestDesc = prometheus.NewDesc("playlet_mailbox_oldest_message_age_seconds",
		"Age of the oldest unfinished message of any actor of the kind.", []string{"kind"}, nil)
	recorderDesc = prometheus.NewDesc("playlet_flight_recorder_bytes", "Memory used by the flight recorder, in bytes.", nil, nil)
)

// handlingBuckets in seconds: a message is handled in microseconds, since there is no I/O in a mailbox.
var handlingBuckets = []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1}

type kindMetrics struct {
	handling                         prometheus.Observer
	restarts, deadLetters, unhandled prometheus.Counter
}

type metrics struct {
	handling                         *prometheus.HistogramVec
	restarts, deadLetters, unhandled *prometheus.CounterVec
	kinds                            map[Kind]kindMetrics // not changed after the start
}

func newMetrics(tree *Row) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"kind"})
	}
	m := &metrics{
		handling: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "playlet_message_handling_seconds",
			Help: "Time that actors spent handling a message.", Buckets: handlingBuckets}, []string{"kind"}),
		restarts:    counter("playlet_actor_restarts_total", "Actor restarts, for any reason."),
		deadLetters: counter("playlet_dead_letters_total", "Messages sent to actors that do not exist or have stopped."),
		unhandled:   counter("playlet_unhandled_messages_total", "Messages that an actor does not handle in its current state."),
		kinds:       map[Kind]kindMetrics{},
	}
	tree.Walk(func(_ string, row *Row) {
		of := string(row.Kind)
		m.kinds[row.Kind] = kindMetrics{m.handling.WithLabelValues(of), m.restarts.WithLabelValues(of),
			m.deadLetters.WithLabelValues(of), m.unhandled.WithLabelValues(of)}
	})
	return m
}

// kindAt is the kind of the actors that have such an address, whether one is there or not; the root's where none can be.
func (s *System) kindAt(a messages.Address) Kind {
	row := s.opts.Tree
	for name := range strings.SplitSeq(string(a), "/") {
		if row = row.child(name); row == nil || a == messages.Node {
			return s.opts.Tree.Kind
		}
	}
	return row.Kind
}

// Describe implements prometheus.Collector.
func (s *System) Describe(out chan<- *prometheus.Desc) {
	for _, c := range s.metrics.all() {
		c.Describe(out)
	}
	for _, d := range []*prometheus.Desc{mailboxDesc, oldestDesc, recorderDesc} {
		out <- d
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.handling, m.restarts, m.deadLetters, m.unhandled}
}

// Collect implements prometheus.Collector. It asks no actor.
func (s *System) Collect(out chan<- prometheus.Metric) {
	for _, c := range s.metrics.all() {
		c.Collect(out)
	}
	waiting, oldest, now := map[Kind]float64{}, map[Kind]float64{}, s.clock.Now()
	for _, v := range s.Vitals() {
		waiting[v.Kind] += float64(v.Waiting)
		if v.Handling != nil {
			oldest[v.Kind] = max(oldest[v.Kind], now.Sub(v.Handling.Sent).Seconds())
		}
	}
	for kind := range s.metrics.kinds {
		out <- prometheus.MustNewConstMetric(mailboxDesc, prometheus.GaugeValue, waiting[kind], string(kind))
		out <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, oldest[kind], string(kind))
	}
	out <- prometheus.MustNewConstMetric(recorderDesc, prometheus.GaugeValue, float64(s.recorder.Size().Bytes))
}
