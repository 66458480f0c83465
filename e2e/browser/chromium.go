// Package browser drives Debian's chromium over the DevTools protocol, by a pipe: nothing listens, and nothing but the standard
// library is needed.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Program is the browser's name; Debian's package chromium has it.
const Program = "chromium"

// Chromium is one running browser with one page. Safe for concurrent use.
type Chromium struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  bytes.Buffer
	page string // the session of its page
	done chan struct{}

	mu      sync.Mutex
	next    int
	waiting map[int]chan answer
	said    []string // errors of the page, and refusals of its policy
}

type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// message is one of the protocol: an answer where it has an ID, else an event.
type message struct {
	answer
	ID     int    `json:"id"`
	Method string `json:"method"`
	Params struct {
		Entry            struct{ Level, Text, URL string } `json:"entry"`
		ExceptionDetails struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	} `json:"params"`
}

// Start starts a browser with a profile in an empty folder. It lasts until Close.
func Start(profile string, width, height int) (*Chromium, error) {
	c := &Chromium{waiting: map[int]chan answer{}, done: make(chan struct{})}
	c.cmd = exec.Command(Program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server",
		"--user-data-dir="+profile, fmt.Sprintf("--window-size=%d,%d", width, height), "--remote-debugging-pipe", "about:blank")
	theirs, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), in.Close())
	}
	c.in, c.cmd.ExtraFiles, c.cmd.Stderr = in, []*os.File{theirs, theirOut}, &c.log
	err = errors.Join(c.cmd.Start(), theirs.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	go c.read(out)
	return c, c.attach(width, height)
}

// attach creates the page, and enables reports of its errors.
func (c *Chromium) attach(width, height int) error {
	var target struct {
		TargetID string `json:"targetId"`
	}
	if err := c.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return err
	}
	var session struct {
		SessionID string `json:"sessionId"`
	}
	if err := c.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session); err != nil {
		return err
	}
	c.page = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := c.Call(domain+".enable", nil, nil); err != nil {
			return err
		}
	}
	return c.Call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

func (c *Chromium) read(out io.ReadCloser) {
	defer close(c.done)
	defer func() { _ = out.Close() }() // only read from
	for r := bufio.NewReader(out); ; {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m) != nil {
			continue
		}
		c.mu.Lock()
		switch e := m.Params.Entry; {
		case m.ID != 0 && c.waiting[m.ID] != nil:
			c.waiting[m.ID] <- m.answer
			delete(c.waiting, m.ID)
		case m.Method == "Log.entryAdded" && e.Level == "error":
			c.said = append(c.said, e.Text+" "+e.URL)
		case m.Method == "Runtime.exceptionThrown":
			d := m.Params.ExceptionDetails
			c.said = append(c.said, d.Text+" "+d.Exception.Description)
		}
		c.mu.Unlock()
	}
}

// callTimeout is reached only when the browser hangs.
const callTimeout = time.Minute

// Call sends one command of the protocol; into gets its result, unless it is nil.
func (c *Chromium) Call(method string, params, into any) error {
	got := make(chan answer, 1)
	c.mu.Lock()
	c.next++
	command := map[string]any{"id": c.next, "method": method}
	if params != nil {
		command["params"] = params
	}
	if c.page != "" {
		command["sessionId"] = c.page
	}
	c.waiting[c.next] = got
	text, err := json.Marshal(command)
	if err == nil {
		_, err = c.in.Write(append(text, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	select {
	case a := <-got:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(a.Result, into)
	case <-c.done:
		return fmt.Errorf("%s: the browser has ended: %s", method, c.log.String())
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer within %s", method, callTimeout)
	}
}

// Eval runs an expression in the page, awaits it where it is a promise, and gives its value; into may be nil.
func (c *Chromium) Eval(expression string, into any) error {
	var got struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := c.Call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &got)
	switch {
	case err != nil:
		return err
	case got.ExceptionDetails != nil:
		return fmt.Errorf("%s: %s", expression, got.ExceptionDetails.Exception.Description)
	case into == nil || len(got.Result.Value) == 0:
		return nil
	}
	return json.Unmarshal(got.Result.Value, into)
}

// Open goes to an address.
func (c *Chromium) Open(url string) error {
	var got struct {
		ErrorText string `json:"errorText"`
	}
	if err := c.Call("Page.navigate", map[string]any{"url": url}, &got); err != nil {
		return err
	}
	if got.ErrorText != "" {
		return errors.New(got.ErrorText)
	}
	return nil
}

// Key presses and releases a key; name is KeyboardEvent.key.
func (c *Chromium) Key(name string) error {
	codes := map[string]int{"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39,
		"Home": 36, "End": 35, "PageDown": 34}
	down := map[string]any{"type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
	if len(name) == 1 {
		down["text"] = name
	} else if name == "Enter" {
		down["text"] = "\r"
	}
	if err := c.Call("Input.dispatchKeyEvent", down, nil); err != nil {
		return err
	}
	down["type"] = "keyUp"
	delete(down, "text")
	return c.Call("Input.dispatchKeyEvent", down, nil)
}

// Click clicks into the middle of the first element of a CSS selector.
func (c *Chromium) Click(selector string) error {
	var at *struct{ X, Y float64 }
	err := c.Eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); if (!e) return null; e.scrollIntoView({ block: 'nearest' });
		const r = e.getBoundingClientRect(); return { X: r.x + r.width / 2, Y: r.y + r.height / 2 }; })()`, selector), &at)
	if err != nil || at == nil {
		return errors.Join(err, fmt.Errorf("nothing to click at %s", selector))
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		if err := c.Call("Input.dispatchMouseEvent",
			map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Dark has the page think that its user likes it dark, or light.
func (c *Chromium) Dark(dark bool) error {
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	return c.Call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Screenshot writes the visible page to a PNG file.
func (c *Chromium) Screenshot(path string) error {
	var got struct {
		Data string `json:"data"`
	}
	if err := c.Call("Page.captureScreenshot", map[string]any{"format": "png"}, &got); err != nil {
		return err
	}
	picture, err := base64.StdEncoding.DecodeString(got.Data)
	if err != nil {
		return err
	}
	return os.WriteFile(path, picture, 0o644)
}

// Said returns the errors of the page and the browser since the previous call.
func (c *Chromium) Said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.said
	c.said = nil
	return said
}

// Close ends the browser.
func (c *Chromium) Close() error {
	c.page = ""
	_ = c.Call("Browser.close", nil, nil) // it may end before it answers
	err := c.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	_ = c.cmd.Wait() // how it ended does not matter
	<-c.done
	return err
}
