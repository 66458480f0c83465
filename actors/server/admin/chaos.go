package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// chaosOn answers a request itself where chaos is not enabled.
func (h *handlers) chaosOn(w http.ResponseWriter) bool {
	if h.conf.Chaos == nil {
		fail(w, &api.Error{Status: http.StatusForbidden,
			Text: "chaos is not enabled: this agent was started without --enable-chaos"})
	}
	return h.conf.Chaos != nil
}

// chaosRules answers GET /v1/chaos.
func (h *handlers) chaosRules(w http.ResponseWriter, _ *http.Request) {
	if h.chaosOn(w) {
		answer(w, http.StatusOK, api.ChaosRules{Rules: h.conf.Chaos.List()})
	}
}

// addChaos answers POST /v1/chaos[?dryRun=true]: one rule, which is in force then, or in a dry run the actors that it chooses.
func (h *handlers) addChaos(w http.ResponseWriter, r *http.Request) {
	if !h.chaosOn(w) {
		return
	}
	dry, err := false, error(nil)
	if text := r.URL.Query().Get("dryRun"); text != "" {
		if dry, err = strconv.ParseBool(text); err != nil {
			fail(w, bad(fmt.Errorf("dryRun=%q is neither true nor false", text)))
			return
		}
	}
	var rule chaos.Rule
	body := json.NewDecoder(r.Body)
	body.DisallowUnknownFields()
	if err := body.Decode(&rule); err != nil {
		fail(w, bad(fmt.Errorf("the rule: %w", err)))
		return
	}
	if err := rule.Complete(); err != nil {
		fail(w, bad(err))
		return
	}
	if h.conf.Tree() == nil {
		fail(w, errNoTree)
		return
	}
	names := podNames(h.conf.Board.Now())
	out := api.ChaosRule{Status: chaos.Status{Rule: rule}, Targets: []api.ChaosTarget{}}
	for _, a := range h.conf.Chaos.Targets(rule) { // before it acts: what it has killed is gone for a moment
		out.Targets = append(out.Targets, api.ChaosTarget{Path: a, Pod: names[podOf(a)]})
	}
	if !dry {
		if out.Status, err = h.conf.Chaos.Add(rule); err != nil {
			fail(w, bad(err))
			return
		}
	}
	answer(w, http.StatusOK, out)
}

// stopChaos answers DELETE /v1/chaos and DELETE /v1/chaos/ID with the rules that it has ended.
func (h *handlers) stopChaos(w http.ResponseWriter, r *http.Request) {
	if !h.chaosOn(w) {
		return
	}
	text, id := r.PathValue("id"), uint64(0)
	if text != "" {
		var err error
		if id, err = strconv.ParseUint(text, 10, 64); err != nil || id == 0 {
			fail(w, bad(fmt.Errorf("%q is not the number of a rule", text)))
			return
		}
	}
	ended := h.conf.Chaos.Stop(id)
	if len(ended) == 0 && id != 0 {
		fail(w, &api.Error{Status: http.StatusNotFound, Text: fmt.Sprintf("there is no rule %d in force", id)})
		return
	}
	answer(w, http.StatusOK, api.ChaosRules{Rules: ended})
}
