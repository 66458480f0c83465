package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/playlet-dev/playlet/actors/server/admin/api"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

// engine returns the chaos engine, or the error that it is not enabled.
func (h *handlers) engine() (*chaos.Engine, error) {
	if h.conf.Chaos == nil {
		return nil, refuse(http.StatusForbidden, "chaos is not enabled: this agent was started without --enable-chaos")
	}
	return h.conf.Chaos, nil
}

// chaosRules answers GET /v1/chaos.
func (h *handlers) chaosRules(w http.ResponseWriter, _ *http.Request) error {
	engine, err := h.engine()
	if err != nil {
		return err
	}
	return answer(w, api.ChaosRules{Rules: engine.List()})
}

// addChaos answers POST /v1/chaos[?dryRun=true] with the rule, which is active then, and the actors that it selects.
func (h *handlers) addChaos(w http.ResponseWriter, r *http.Request) error {
	engine, err := h.engine()
	if err != nil {
		return err
	}
	var dry bool
	if err := params(r, api.Params{"dryRun": &dry}); err != nil {
		return err
	}
	var rule chaos.Rule
	body := json.NewDecoder(r.Body)
	body.DisallowUnknownFields()
	if err := body.Decode(&rule); err != nil {
		return bad(fmt.Errorf("the rule: %w", err))
	}
	if err := rule.Complete(); err != nil {
		return bad(err)
	}
	if _, err := h.tree(); err != nil {
		return err
	}
	names := podNames(h.conf.Board.Now())
	out := api.ChaosRule{Status: chaos.Status{Rule: rule}, Targets: []api.ChaosTarget{}}
	for _, a := range engine.Targets(rule) { // before it acts: killed actors are briefly missing
		out.Targets = append(out.Targets, api.ChaosTarget{Path: a, Pod: names[a.PodUID()]})
	}
	if !dry {
		if out.Status, err = engine.Add(rule); err != nil {
			return bad(err)
		}
	}
	return answer(w, out)
}

// stopChaos answers DELETE /v1/chaos and DELETE /v1/chaos/ID with the rules that it has ended.
func (h *handlers) stopChaos(w http.ResponseWriter, r *http.Request) error {
	engine, err := h.engine()
	if err != nil {
		return err
	}
	text, id := r.PathValue("id"), uint64(0)
	if text != "" {
		if id, err = strconv.ParseUint(text, 10, 64); err != nil || id == 0 {
			return bad(fmt.Errorf("%q is not the number of a rule", text))
		}
	}
	ended := engine.Stop(id)
	if len(ended) == 0 && id != 0 {
		return refuse(http.StatusNotFound, "there is no rule %d in force", id)
	}
	return answer(w, api.ChaosRules{Rules: ended})
}
