package manifest

import (
	"strings"
	"testing"
	"time"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: web:1
`

const job = `apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  backoffLimit: 4
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: job:1}]
`

func submission(text string) (Submission, []Problem) {
	return LoadSubmission("f", []byte(text), Options{NodeName: "node", Source: SubmitSource, Now: time.Unix(1, 0),
		Has: ObjectSources{Objects: true}})
}

func TestASubmissionMayHaveTemplatesAndObjects(t *testing.T) {
	s, problems := submission(deployment + "---\n" + job + `---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {a: hunter2}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: plain}
  spec: {containers: [{name: main, image: x}]}
- apiVersion: apps/v1
  kind: StatefulSet
  metadata: {name: db}
  spec: {template: {spec: {containers: [{name: main, image: x}]}}}
`)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var got []string
	for i, p := range s.Pods {
		got = append(got, p.Namespace+"/"+p.Name+" "+string(p.Spec.RestartPolicy)+" "+s.Documents[i].Note)
	}
	want := `shop/web-node Always Deployment: one pod is run, of its spec.template; without effect here: replicas (3), selector
default/once-node Never Job: one pod is run, of its spec.template, whose restartPolicy says what follows a failure; without effect here: backoffLimit
default/plain-node Always 
default/db-node Always StatefulSet: one pod is run, of its spec.template`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if len(s.Objects.ConfigMaps) != 1 || string(s.Objects.Secrets[0].Data["a"]) != "hunter2" || s.Pods[0].Labels["app"] != "web" {
		t.Errorf("%+v", s)
	}
}

// Problems name field and line in the author's text, and quote no Secret.
func TestProblemsOfASubmission(t *testing.T) {
	for text, want := range map[string]string{
		strings.Replace(deployment, "image: web:1", "image: ''", 1):                                                 "f:15: spec.template.spec.containers[0].image: ",
		strings.Replace(deployment, "  name: web\n", "  name: Web\n", 1):                                            "f:4: metadata.name: ",
		strings.Replace(deployment, "replicas", "replicaz", 1):                                                      "f:7: spec.replicaz: ",
		strings.Replace(deployment, "    spec:", "    spec:\n      restartPolicy: Never", 1):                        "f:13: spec.template.spec.restartPolicy: must be Always in a Deployment",
		strings.Replace(job, "restartPolicy: Never", "priority: 0", 1):                                              "spec.template.spec.restartPolicy: must be Never or OnFailure in a Job",
		strings.Replace(job, "batch/v1", "batch/v2", 1):                                                             "f:1: apiVersion: ",
		"apiVersion: v1\nkind: Service\nmetadata: {name: x}\n":                                                      "f:2: kind: Service is not something a node runs; it takes Pod, PodList, List, ConfigMap, Secret, DaemonSet",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndatta: hunter2\n":                                       "datta: ",
		"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: x}, data: hunter2}]\n": "f:3: items[0].kind: must stand in a document of its own",
		"apiVersion: networking.k8s.io/v1\nkind: Ingress\n":                                                         "f:2: kind: Ingress is not something a node runs; it takes ",
		deployment + "---\n" + deployment:                                                                           "f:20: metadata.name: Duplicate value",
	} {
		_, problems := submission(text)
		if len(problems) == 0 || !strings.Contains(problems[0].Error(), want) || strings.Contains(problems[0].Error(), "hunter2") {
			t.Errorf("%v, want %s, of\n%s", problems, want, text)
		}
	}
	if _, problems := Load("f", []byte(deployment), Options{NodeName: "node", Now: time.Unix(1, 0)}); len(problems) == 0 {
		t.Error("a folder of manifests takes a Deployment, which a kubelet does not")
	}
}
