package submit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/playlet-dev/playlet/actors/internal/board"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/sources/base"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors"
)

func TestAcceptedSubmission_OutlivesProcess(t *testing.T) {
	r := newRig(t)
	r.wants("")
	r.says(r.submit(yaml("web", "one"), yaml("db", "one")), "default/web-node-1 created, default/db-node-1 created")
	first := r.wants("default/db-node-1=one default/web-node-1=one")
	r.kit.Advance(time.Hour)
	r.says(r.submit(yaml("web", "one")), "default/web-node-1 unchanged")
	r.says(r.submit(yaml("web", "two")), "default/web-node-1 configured")
	changed := r.wants("default/db-node-1=one default/web-node-1=two")
	if changed.Pods[0] != first.Pods[0] || changed.Pods[1].UID == first.Pods[1].UID {
		t.Error("the pod that changed has the old UID, or the other one is another object")
	}
	if a := changed.Pods[0].Annotations; a["kubernetes.io/config.source"] != "submit" {
		t.Errorf("annotations %v", a)
	}
	r.start()
	again := r.wants("default/db-node-1=one default/web-node-1=two")
	for i := range again.Pods {
		if again.Pods[i].UID != changed.Pods[i].UID ||
			again.Pods[i].Annotations["kubernetes.io/config.seen"] != changed.Pods[i].Annotations["kubernetes.io/config.seen"] {
			t.Errorf("after a restart it is %v", again.Pods[i].ObjectMeta)
		}
	}
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "web"})), "default/web-node-1 deleted")
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "db-node-1", Exact: true})), "unknown")
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "db-node-1"})), "default/db-node-1 deleted")
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "db"})), "unknown")
	r.wants("")
	r.start()
	r.wants("")
	r.opts.Board.Publish(board.Snapshot{Audited: true}) // nothing runs
	r.clock.Step(time.Hour)
	r.kit.Advance(checkEvery)
	r.kit.RunWork()
	if files := r.files(); len(files) != 0 {
		t.Errorf("there is left %v", files)
	}
}

func TestTheJournalIsWrittenBeforeTheAnswer(t *testing.T) {
	r := newRig(t)
	r.kit.Send(messages.Node, messages.SubmitPods{Manifest: []byte(yaml("web", "one"))})
	if len(r.kit.Replies) != 0 || len(r.kit.Work) != 1 {
		t.Fatalf("replied %v", r.kit.Replies)
	}
	w := r.kit.Work[0]
	r.kit.Work = nil
	result := w.Run(context.Background()) // the actor is killed before it receives the result
	if _, ok := result.(workDone); !ok || len(r.files()) != 1 {
		t.Fatalf("%v, files %v", result, r.files())
	}
	r.start()
	r.wants("default/web-node-1=one")
}

func TestResultsInAnyOrder(t *testing.T) {
	r := newRig(t)
	r.kit.Send(messages.Node, messages.SubmitPods{Manifest: []byte(yaml("a", "one"))})
	r.kit.Send(messages.Node, messages.SubmitPods{Manifest: []byte(yaml("b", "one"))})
	early, late := r.kit.Work[0].Run(context.Background()), r.kit.Work[1].Run(context.Background())
	r.kit.Work = nil
	r.kit.Send(messages.Submit, late)
	r.kit.Send(messages.Submit, early)
	r.wants("default/a-node-1=one default/b-node-1=one")
}

func TestRefusals(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	publish(r.opts.Board, messages.File, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "static-node-1",
		UID: "u-1"}})
	withUID := func(name string) string {
		return strings.Replace(yaml(name, "one"), "spec:", "  uid: u-1\nspec:", 1)
	}
	for _, test := range []struct {
		name string
		m    messages.SubmitPods
		want string
	}{
		{"no YAML", messages.SubmitPods{Manifest: []byte("{")}, "malformed 1:"},
		{"nothing", messages.SubmitPods{}, "malformed"},
		{"not a pod", messages.SubmitPods{Manifest: []byte("apiVersion: v1\nkind: Service\n")}, "invalid 2:kind"},
		{"a wrong field beside a good pod", messages.SubmitPods{Manifest: []byte(yaml("a", "one") + "---\n" + yaml("b", "''"))},
			"invalid 17:spec.containers[0].image"},
		{"another version", messages.SubmitPods{Manifest: []byte(yaml("web", "two"))}, "conflict 0:metadata.name"},
		{"another pod than the path says", messages.SubmitPods{Manifest: []byte(yaml("web", "two")), Namespace: "default",
			Name: "db", Replace: true},
			"malformed 0:metadata.name"},
		{"two pods for one path", messages.SubmitPods{Manifest: []byte(yaml("web", "two") + "---\n" + yaml("a", "two")),
			Namespace: "default", Name: "web"},
			"malformed 0:metadata.name"},
		{"the name of another source's pod", messages.SubmitPods{Manifest: []byte(yaml("static", "one")), Replace: true},
			"conflict 0:metadata.name"},
		{"the UID of another source's pod", messages.SubmitPods{Manifest: []byte(withUID("x"))}, "conflict 0:metadata.uid"},
		{"one UID twice", messages.SubmitPods{Manifest: []byte(withUID("x") + "---\n" + withUID("z"))},
			"invalid 15:metadata.uid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := said(r.ask(test.m)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	r.says(said(r.ask(messages.WithdrawPod{Namespace: "default", Name: "static"})), "conflict")
	r.wants("default/web-node-1=one")
	if files := r.files(); len(files) != 1 {
		t.Errorf("files %v", files)
	}
}

func TestAPutReplacesWhatItsPathNames(t *testing.T) {
	r := newRig(t)
	put := messages.SubmitPods{Manifest: []byte(yaml("web", "one")), Namespace: "default", Name: "web", Replace: true}
	r.says(said(r.ask(put)), "default/web-node-1 created")
	put.Manifest = []byte(yaml("web", "two"))
	r.says(said(r.ask(put)), "default/web-node-1 configured")
	r.says(said(r.ask(messages.GetSubmissions{})), "default/web")
	sent := r.ask(messages.GetSubmissions{Namespace: "default", Name: "web-node-1"}).(messages.SubmissionsReported)
	var pod v1.Pod
	if err := json.Unmarshal(sent.Submissions[0].Manifest, &pod); err != nil || pod.Name != "web" || pod.Kind != "Pod" ||
		pod.Spec.NodeName != "" {
		t.Errorf("%v %s", err, sent.Submissions[0].Manifest)
	}
	r.says(said(r.ask(messages.GetSubmissions{Namespace: "default", Name: "db"})), "unknown")
}

func TestADamagedRecordCostsNoOther(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"))
	path := key{"default", "web"}.file(r.opts.Dir)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	desired := r.wants("default/db-node-1=one")
	if len(desired.Problems) != 1 || desired.Problems[0].Path != path || !strings.Contains(desired.Problems[0].Message, "kept aside") {
		t.Errorf("problems %+v", desired.Problems)
	}
	r.says(r.submit(yaml("web", "one")), "default/web-node-1 created")
	r.wants("default/db-node-1=one default/web-node-1=one")
}

// An accepted pod stays desired as long as the process has it in memory, even if its file is damaged.
func TestRecord_DamagedAfterReadingStaysDesired(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"))
	path := key{"default", "web"}.file(r.opts.Dir)
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.restart()
	desired := r.wants("default/db-node-1=one default/web-node-1=one")
	if len(desired.Problems) != 1 || !strings.Contains(desired.Problems[0].Message, "kept aside") {
		t.Errorf("problems %+v", desired.Problems)
	}
	r.start() // a new process finds it unchanged
	r.wants("default/db-node-1=one default/web-node-1=one")
}

// A file that cannot be read now may be readable later: nothing counts as lost, and nothing is ended.
func TestARecordThatCannotBeReadNow(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"), yaml("db", "one"))
	path := key{"default", "web"}.file(r.opts.Dir)
	aside := filepath.Join(t.TempDir(), "aside")
	if err := errors.Join(os.Rename(path, aside), os.Symlink(path, path)); err != nil { // a loop: opening it fails
		t.Fatal(err)
	}
	r.restart()
	r.wants("default/db-node-1=one default/web-node-1=one")
	r.says(r.submit(yaml("new", "one")), "failure")
	r.start() // a process without state
	r.kit.Advance(sendDelay)
	r.kit.Send(messages.Sources, messages.ResendDesired{})
	if sent := r.kit.Take(); len(sent) != 0 {
		t.Fatalf("it tells %v", sent)
	}
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	r.kit.Advance(checkEvery)
	r.kit.RunWork()
	if desired := r.wants("default/db-node-1=one default/web-node-1=one"); len(desired.Problems) > 0 {
		t.Errorf("problems %+v", desired.Problems)
	}
}

// An actor that has a state but could not read the journal again keeps retrying.
func TestAJournalIsTriedAgainAfterARestart(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	path := key{"default", "web"}.file(r.opts.Dir)
	aside := filepath.Join(t.TempDir(), "aside")
	if err := errors.Join(os.Rename(path, aside), os.Symlink(path, path)); err != nil {
		t.Fatal(err)
	}
	r.restart()
	r.wants("default/web-node-1=one")
	if in := inspect(r); in.Failure == "" {
		t.Errorf("%+v", in)
	}
	if err := os.Rename(aside, path); err != nil {
		t.Fatal(err)
	}
	r.kit.Advance(checkEvery)
	r.kit.RunWork()
	if in := inspect(r); in.Failure != "" {
		t.Errorf("%+v", in)
	}
}

// A damaged record is reported by every process until the pod is submitted again, so that its pod is left alone.
func TestAProblemEndsWithItsCause(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	path := key{"default", "web"}.file(r.opts.Dir)
	if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.start()
		if desired := r.wants(""); len(desired.Problems) != 1 || !slices.Equal(desired.Unread, []string{path}) {
			t.Errorf("problems %+v, unread %v, want one of %s", desired.Problems, desired.Unread, path)
		}
	}
	r.submit(yaml("web", "one"))
	for range 2 {
		if desired := r.wants("default/web-node-1=one"); len(desired.Problems) != 0 || len(desired.Unread) != 0 {
			t.Errorf("problems %+v, unread %v, want none", desired.Problems, desired.Unread)
		}
		r.start()
	}
}

// After a rollback to an older version, which keeps the records aside that it cannot read, and the next upgrade, the
// submissions are there again.
func TestJournal_RecordsAreReadBackAfterARollback(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	path := key{"default", "web"}.file(r.opts.Dir)
	if err := os.Rename(path, path+atomicfile.AsideSuffix); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.start()
		if desired := r.wants("default/web-node-1=one"); len(desired.Problems) != 0 || len(desired.Unread) != 0 {
			t.Errorf("problems %+v, unread %v, want none", desired.Problems, desired.Unread)
		}
	}
}

func inspect(r *rig) Inspection {
	return r.actor.(supervisors.Inspector).Inspect().(Inspection)
}

func TestMisplacedRecord_IsAProblem(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	if err := os.Rename(key{"default", "web"}.file(r.opts.Dir), key{"default", "db"}.file(r.opts.Dir)); err != nil {
		t.Fatal(err)
	}
	r.start()
	if desired := r.wants(""); len(desired.Problems) != 1 {
		t.Errorf("problems %+v", desired.Problems)
	}
	r.kit.Send(messages.Submit, checkDue{})
	r.kit.RunWork()
	if desired := r.wants(""); len(desired.Problems) != 1 {
		t.Errorf("problems %+v", desired.Problems)
	}
}

func TestANodeWithAnotherName(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	former := r.uidOf("web")
	r.opts.Node.NodeName = "other"
	r.start()
	r.gone("default/web-other=one", former) // the pod of the earlier name ends
}

func TestJournal_UnreadableIsNotEmpty(t *testing.T) {
	r := newRig(t)
	r.opts.Dir = filepath.Join(t.TempDir(), "missing", "submissions")
	r.start()
	r.kit.Advance(sendDelay)
	r.kit.Send(messages.Sources, messages.ResendDesired{})
	if sent := r.kit.Take(); len(sent) != 0 {
		t.Fatalf("it tells %v", sent)
	}
	r.says(r.submit(yaml("web", "one")), "failure")
	if err := os.Mkdir(filepath.Dir(r.opts.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	r.kit.Advance(checkEvery)
	r.kit.RunWork()
	r.wants("")
	r.says(r.submit(yaml("web", "one")), "default/web-node-1 created")
}

// The disk fails at one of two pods. The answer names the pod accepted before the failure, and only that pod is desired.
func TestADiskThatFailsInTheMiddle(t *testing.T) {
	r := newRig(t)
	r.submit(yaml("web", "one"))
	path := key{"default", "web"}.file(r.opts.Dir)
	inTheWay := filepath.Join(r.opts.Dir, "."+filepath.Base(path)+".tmp", "x")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	answer := r.ask(messages.SubmitPods{Manifest: []byte(yaml("db", "one") + "---\n" + yaml("web", "two")), Replace: true})
	refused, ok := answer.(messages.SubmissionRefused)
	if !ok || refused.Why != messages.RefusedFailure || len(refused.Accepted) != 1 || refused.Accepted[0].Name != "db" {
		t.Errorf("%+v", answer)
	}
	r.wants("default/db-node-1=one default/web-node-1=one")
	r.start()
	r.wants("default/db-node-1=one default/web-node-1=one")
}

func TestAStormIsSentAsOneList(t *testing.T) {
	r := newRig(t)
	r.wants("")
	for i := range 50 {
		r.submit(yaml("p"+string(rune('a'+i%26))+string(rune('a'+i/26)), "one"))
	}
	r.kit.Advance(sendDelay)
	if sent := r.kit.Take(); len(sent) != 1 || len(sent[0].Msg.(messages.SourcePodsWanted).Pods) != 50 {
		t.Errorf("%d lists were sent", len(sent))
	}
}

// FuzzSubmissions checks that any submission is answered, and that exactly the acknowledged pods are desired afterwards, also
// by the next process.
func FuzzSubmissions(f *testing.F) {
	f.Add([]byte(yaml("web", "one")))
	f.Add([]byte(yaml("web", "one") + "---\n" + yaml("db", "two")))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a","uid":"x"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}`))
	f.Add([]byte("{"))
	dir := f.TempDir()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		opts := Options{Dir: filepath.Join(dir, "j"), Node: base.Node{NodeName: "node"}}
		if err := os.RemoveAll(opts.Dir); err != nil {
			t.Fatal(err)
		}
		j := newJournal(opts)
		answer := j.submit(messages.SubmitPods{Manifest: data}, now)
		accepted, _ := answer.(messages.PodsSubmitted)
		for _, state := range []func() (state, error){func() (state, error) { return j.now(), nil }, newJournal(opts).open} {
			s, err := state()
			if err != nil || len(s.records) != len(accepted.Pods) || len(s.problems) > 0 {
				t.Fatalf("accepted %+v, kept %d, %v %v", accepted.Pods, len(s.records), err, s.problems)
			}
			for _, p := range accepted.Pods {
				if r := j.find(p.Namespace, p.Name, false); r == nil || string(r.Pod.UID) != p.UID || r.Pod.Name != p.PodName {
					t.Fatalf("%+v is not there", p)
				}
			}
		}
		again, same := j.submit(messages.SubmitPods{Manifest: data}, now.Add(time.Hour)).(messages.PodsSubmitted)
		if same != (accepted.Pods != nil) {
			t.Fatalf("it was %v, and then %v", answer, again)
		}
		for _, p := range again.Pods {
			if p.Change != messages.PodUnchanged {
				t.Fatalf("sent again, %+v", p)
			}
		}
	})
}

// FuzzJournal checks that any content of a journal file leaves the other records readable, and that no pod is desired that
// does not match its file name.
func FuzzJournal(f *testing.F) {
	opts := Options{Dir: filepath.Join(f.TempDir(), "j"), Node: base.Node{NodeName: "node"}}
	newJournal(opts).submit(messages.SubmitPods{Manifest: []byte(yaml("web", "one"))}, time.Unix(0, 0))
	path := key{"default", "web"}.file(opts.Dir)
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if answer, ok := newJournal(opts).submit(messages.SubmitPods{Manifest: []byte(yaml("db", "one"))},
			time.Unix(0, 0)).(messages.PodsSubmitted); !ok {
			t.Fatalf("%v", answer)
		}
		s, err := newJournal(opts).open()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range s.records {
			if r.Pod.Name != "db-node" && (r.Pod.Name != "web-node" || r.Namespace != "default") {
				t.Fatalf("wanted is %s/%s", r.Namespace, r.Pod.Name)
			}
		}
		if len(s.records) == 0 {
			t.Fatal("a good record is lost")
		}
	})
}

// A file in the place of a submitted object is read only up to a limit. It is a conflict, and is replaced on request.
func TestSubmittedObject_HugeFileInItsPlace(t *testing.T) {
	r := newRig(t)
	r.opts.ObjectDir = t.TempDir()
	r.start()
	const settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}}\n"
	path := object{kind: "ConfigMap", namespace: "default", name: "settings"}.file(r.opts.ObjectDir)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, maxObject+1); err != nil {
		t.Fatal(err)
	}
	answer := r.ask(messages.SubmitPods{Manifest: []byte(settings)})
	if refused, ok := answer.(messages.SubmissionRefused); !ok || !strings.Contains(refused.Message, path) ||
		!strings.Contains(refused.Message, "larger than 10485760 bytes") {
		t.Errorf("%+v", answer)
	}
	r.says(r.submit(settings), "default/settings configured")
	if info, err := os.Stat(path); err != nil || info.Size() > 1000 {
		t.Errorf("%v, %v", info, err)
	}
}

// Only a node with ConfigMaps accepts pods that refer to one. An accepted pod is kept.
func TestPodsThatReferToObjects(t *testing.T) {
	refers := yaml("web", "one") + "  volumes: [{name: v, configMap: {name: settings}}]\n"
	r := newRig(t)
	if got := r.submit(refers); !strings.Contains(got, "spec.volumes[0].configMap") {
		t.Errorf("on a node without: %s", got)
	}
	r.opts.Node.Objects = true
	r.start()
	r.says(r.submit(refers), "default/web-node-1 created")
	r.opts.Node.Objects, r.opts.Node.NodeName = false, "node-2"
	r.start()
	r.wants("default/web-node-2=one")
}

// A dry run of a removal answers as the removal does, and changes nothing. The list of objects has keys and no values.
func TestRemovalDryRuns_AndObjectList(t *testing.T) {
	r := newRig(t)
	r.opts.ObjectDir = t.TempDir()
	r.start()
	r.submit(yaml("web", "one"), "{apiVersion: v1, kind: Secret, metadata: {name: token}, data: {b: c2VjcmV0}, stringData: {a: s3cr3t}}\n",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}\n")
	remove := []messages.WithdrawPod{{Namespace: "default", Name: "web"}, {Namespace: "default", Name: "token", Kind: "Secret"}}
	for _, dry := range []bool{true, true, false} {
		for i, want := range []string{"default/web-node-1 deleted", "default/token deleted"} {
			remove[i].DryRun = dry
			if !dry && i == 0 {
				listed := fmt.Sprintf("%+v", r.ask(messages.GetSubmittedObjects{}).(messages.SubmittedObjectsReported).Objects)
				if strings.Contains(listed, "s3cr3t") || strings.Contains(listed, "c2VjcmV0") ||
					!strings.Contains(listed, "Name:settings Keys:[]") || !strings.Contains(listed, "Name:token Keys:[a b]") {
					t.Errorf("the objects are %s", listed)
				}
			}
			r.says(said(r.ask(remove[i])), want)
		}
	}
	for i := range remove {
		r.says(said(r.ask(remove[i])), "unknown")
	}
}
