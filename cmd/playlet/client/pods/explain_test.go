package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/playlet-dev/playlet/cmd/playlet/client/fake"
)

// Explanations of several pods name their pods; one of a single pod begins with the cause.
func TestExplain_NamesEachPodOfSeveral(t *testing.T) {
	f := fake.Start(t, newExplainCommand)
	web, db := fake.Pod("a", v1.PodRunning, fake.Runs(true)), fake.Pod("a", v1.PodRunning, fake.Runs(true))
	web.Pod.Labels, db.Pod.Labels = map[string]string{"tier": "x"}, map[string]string{"tier": "x"}
	db.Pod.Name, db.Pod.Namespace = "db", "shop"
	f.Has(web, db)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"web"}, "the cause of web\n"},
		{[]string{"web", "db"}, "default/web: the cause of web\n\nshop/db: the cause of db\n"},
		{[]string{"-l", "tier=x"}, "default/web: the cause of web\n\nshop/db: the cause of db\n"},
	} {
		out, notes, code := f.Command(t, append([]string{"explain"}, c.args...)...)
		if out != c.want || code != 0 {
			t.Errorf("%v: %d %s\n%s\nwant\n%s", c.args, code, notes, out, c.want)
		}
	}
}
