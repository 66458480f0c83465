package supervisors

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/playlet-dev/playlet/messages"
)

// workPanicked makes a panic of work one of its actor.
type workPanicked struct {
	name   string
	reason any
}

func (w workPanicked) String() string { return fmt.Sprintf("in work %s: %v", w.name, w.reason) }

func (c *cell) Do(w Work) {
	if c.stopping {
		return
	}
	w.Check()
	id := c.sys.seq.Add(1)
	flow := c.flow().of(id, cmp.Or(w.Pod, c.self.PodUID()))
	if w.Routine && flow.Pod == "" { // otherwise repeated waits would make one endless flow
		flow.ID = id
	}
	done := &envelope{id: c.sys.seq.Add(1), cause: id, flow: flow, from: c.self, gen: c.gen, reply: c.env.reply}
	e := Entry{ID: id, Cause: c.env.id, Flow: flow, Kind: OfWork, From: c.self, To: c.self, Message: w.Name,
		Sent: c.sys.clock.Now()}
	o := &origin{log: c.Log(), self: c.self, flow: flow, cause: id, now: c.sys.clock.Now}
	if !w.Routine {
		o.sys = c.sys
	}
	c.mu.Lock()
	c.working[id] = w.Name
	c.mu.Unlock()
	c.workers.Add(1)
	go func() {
		defer c.workers.Done()
		ctx := context.WithValue(c.ctx, originKey{}, o)
		if !w.Routine {
			ctx = c.sys.opts.WorkContext(ctx, flow, id)
		}
		cancel := func() {}
		if !w.Waits {
			ctx, cancel = context.WithTimeout(ctx, w.Timeout)
		}
		e.Began = c.sys.clock.Now()
		done.msg = runWork(ctx, w)
		cancel()
		done.sent = c.sys.clock.Now()
		if _, routine := done.msg.(messages.Routine); !routine {
			if !o.began.IsZero() {
				e.Sent, e.Began = o.began, o.began
			}
			e.Took = done.sent.Sub(e.Began)
			c.sys.recorder.Add(e)
		}
		c.mu.Lock()
		delete(c.working, id)
		c.mu.Unlock()
		c.sys.post(c.self, done)
	}()
}

// Check panics if the work has no body, or not exactly one of a timeout and Waits.
func (w *Work) Check() {
	if w.Run == nil || w.Timeout < 0 || (w.Timeout == 0) != w.Waits {
		panic("work " + w.Name + " without a body, or without exactly one of a timeout and Waits")
	}
}

func (c *cell) OnStop(f func()) {
	c.workers.Add(1)
	context.AfterFunc(c.ctx, func() {
		defer c.workers.Done()
		defer func() {
			if r := recover(); r != nil {
				c.log.Error("panic in a stop hook", "reason", fmt.Sprint(r), "stack", string(debug.Stack()))
			}
		}()
		f()
	})
}

// runWork calls w.Run. It logs a panic with its stack, since the actor that is to panic may have ended.
func runWork(ctx context.Context, w Work) (msg any) {
	defer func() {
		if r := recover(); r != nil {
			LogOf(ctx).Error("panic in work", "work", w.Name, "reason", fmt.Sprint(r), "stack", string(debug.Stack()))
			msg = workPanicked{w.Name, r}
		}
	}()
	if msg = w.Run(ctx); msg == nil {
		msg = workPanicked{name: w.Name, reason: "it returned no message"}
	}
	return msg
}

type timer struct {
	c *cell
	t clock.Timer
}

func (t *timer) Cancel() {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if _, ok := t.c.timers[t]; ok {
		t.t.Stop()
		delete(t.c.timers, t)
	}
}

// After posts a message later. A timer without a pod begins a flow, so that periodic timers do not make one endless flow.
func (c *cell) After(d time.Duration, msg any) Timer {
	t := &timer{c: c}
	env := c.follow(c.self, msg)
	env.gen, env.kind = c.gen, OfTimer
	if env.flow.Pod == "" {
		env.flow.ID = env.id
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.t = c.sys.clock.AfterFunc(d, func() {
		// On its own goroutine: a fake clock fires on the goroutine that steps it, under the clock's lock.
		go func() {
			c.mu.Lock()
			_, live := c.timers[t]
			delete(c.timers, t)
			c.mu.Unlock()
			if live {
				env.sent = c.sys.clock.Now()
				c.sys.post(c.self, env)
			}
		}()
	})
	c.timers[t] = struct{}{}
	return t
}

func (c *cell) workingNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Values(c.working))
}
