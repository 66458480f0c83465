package file

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// model is the meaning of a manifest folder in the toy grammar: the last good version of each document.
type model struct {
	files map[string][]string // lines by file name, one a document
	force map[string]inForce
}

// inForce is the version in force of one file.
type inForce struct {
	documents int            // number in the file
	places    map[string]int // document index by line; -1 if the number of documents has changed
}

// isBad reports whether a line is not a pod.
func isBad(line string) bool { return !strings.HasPrefix(line, "pod ") }

// believe accepts good states at once.
func (m *model) believe() {
	for name, lines := range m.files {
		if !slices.ContainsFunc(lines, isBad) {
			m.force[name] = goodOf(lines)
		}
	}
}

func goodOf(lines []string) inForce {
	f := inForce{len(lines), map[string]int{}}
	for place, line := range lines {
		if !isBad(line) {
			f.places[line] = place
		}
	}
	return f
}

// settle accepts bad states that have lasted. Missing files have no pods. Bad documents keep the last good version, found by
// name or else by place.
func (m *model) settle() {
	m.forget()
	for name, lines := range m.files {
		old, now := m.force[name], goodOf(lines)
		for place, line := range lines {
			if !isBad(line) {
				continue
			}
			meant := ""
			for o, was := range old.places {
				if podName(o) == podName(line) || (meant == "" && was == place && old.documents == len(lines)) {
					meant = o
				}
			}
			_, taken := now.places[meant]
			for n := range now.places {
				taken = taken || (meant != "" && podName(n) == podName(meant))
			}
			if meant != "" && !taken {
				now.places[meant] = old.places[meant]
				if old.documents != len(lines) {
					now.places[meant] = -1
				}
			}
		}
		m.force[name] = now
	}
}

// forget drops the versions in force of missing files.
func (m *model) forget() {
	maps.DeleteFunc(m.force, func(name string, _ inForce) bool { return m.files[name] == nil })
}

// podName returns the name in a line "pod NAME - TEXT" or "bad NAME".
func podName(line string) string { return strings.Fields(line)[1] }

// explains reports whether got, as returned by named, has each pod name in force exactly once. Which of several files has a name
// depends on their order of arrival; this test does not check it.
func (m *model) explains(got []string) bool {
	candidates := map[string][]string{}
	for name, f := range m.force {
		for line := range f.places {
			candidates[podName(line)] = append(candidates[podName(line)], name+" "+line)
		}
	}
	for _, one := range got {
		_, line, _ := strings.Cut(one, " ")
		if !slices.Contains(candidates[podName(line)], one) {
			return false
		}
		delete(candidates, podName(line))
	}
	return len(candidates) == 0
}

// named returns the reader's desired pods as lines of the model.
func (b *bench) named() []string {
	out := []string{}
	for _, p := range b.last.pods {
		for _, e := range b.r.files {
			for _, d := range e.documents {
				if d.Pod == p {
					name := strings.TrimSuffix(p.Name, "-"+testNode)
					out = append(out, filepath.Base(e.path)+" pod "+name+" - "+p.Labels["text"])
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestWhateverHappensTheLastGoodVersionsAreWanted changes a folder at random, with and without a look in between, and
// restarts the reader at random. In the end it compares with the model, and with a reader that has only the checkpoint.
func TestWhateverHappensTheLastGoodVersionsAreWanted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b, m, version := newBench(t), &model{files: map[string][]string{}, force: map[string]inForce{}}, 0
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		lines := func(broken bool) []string {
			var out []string
			for _, pod := range rapid.Permutation([]string{"x", "y", "z"}).Draw(rt,
				"pods")[:rapid.IntRange(1, 3).Draw(rt, "documents")] {
				version++
				out = append(out, fmt.Sprintf("pod %s - %d", pod, version))
			}
			for i := range out {
				if broken && (i == 0 || rapid.Bool().Draw(rt, "broken")) {
					out[i] = "bad " + podName(out[i])
				}
			}
			return out
		}
		look := func() {
			b.look()
			m.believe()
		}
		write := func(broken bool) func(*rapid.T) {
			return func(*rapid.T) {
				n, ls := name.Draw(rt, "name"), lines(broken)
				m.files[n] = ls
				b.write(n, strings.Join(ls, "\n---\n")+"\n")
				look()
			}
		}
		b.start()
		defer func() { b.r.watch.Close() }() // inotify instances are scarce
		rt.Repeat(map[string]func(*rapid.T){
			"mend": write(false), "break": write(true),
			"replace": func(*rapid.T) {
				n, ls := name.Draw(rt, "name"), lines(rapid.Bool().Draw(rt, "bad"))
				m.files[n] = ls
				b.write(".new", strings.Join(ls, "\n---\n"))
				b.rename(".new", n)
				look()
			},
			"rename": func(*rapid.T) {
				from, to := name.Draw(rt, "from"), name.Draw(rt, "to")
				if m.files[from] == nil || from == to {
					return
				}
				m.files[to] = m.files[from]
				delete(m.files, from)
				b.rename(from, to)
				look()
			},
			"delete": func(*rapid.T) {
				n := name.Draw(rt, "name")
				if m.files[n] == nil {
					return
				}
				delete(m.files, n)
				b.remove(n)
				look()
			},
			"touch": func(*rapid.T) {
				if n := name.Draw(rt, "name"); m.files[n] != nil {
					must(t, os.Chmod(b.path(n), 0o640))
				}
			},
			"move the folder behind a link": func(*rapid.T) {
				version++
				aside := filepath.Join(b.root, fmt.Sprint("aside", version))
				must(t, os.Rename(b.dir, aside))
				if rapid.Bool().Draw(rt, "look") {
					look()
				}
				must(t, os.Symlink(aside, b.dir))
				look()
			},
			"copy the folder": func(*rapid.T) {
				version++
				must(t, os.Rename(b.dir, filepath.Join(b.root, fmt.Sprint("old", version))))
				must(t, os.Mkdir(b.dir, 0o755))
				for n, ls := range m.files {
					b.write(n, strings.Join(ls, "\n---\n"))
				}
				look()
			},
			"check":  func(*rapid.T) { b.check() },
			"settle": func(*rapid.T) { b.wait(waitAtMost); m.settle() },
			"restart": func(*rapid.T) {
				b.save()
				b.start()
				m.forget()
				m.believe()
			},
		})
		b.wait(waitAtMost)
		m.settle()
		if got := b.named(); !m.explains(got) {
			rt.Fatalf("wants %v; in force: %v, files: %v, problems: %v", got, m.force, m.files, b.last.problems)
		}
		for _, e := range b.r.files {
			if bad := slices.ContainsFunc(m.files[filepath.Base(e.path)], isBad); bad != (len(e.problems) > 0) || e.pending != nil {
				rt.Fatalf("%s: broken %v, problems %v, pending %v", e.path, bad, e.problems, e.pending)
			}
		}
		before := b.named()
		b.save()
		b.start()
		b.wait(waitAtMost)
		if got := b.named(); !slices.Equal(got, before) {
			rt.Fatalf("after a restart wants %v, before %v", got, before)
		}
	})
}
