package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/chaos"
)

const chaosPath = "/v1/chaos"

// ChaosRules answers GET /v1/chaos with the rules in force and those that ended last, and DELETE with those that it has ended.
type ChaosRules struct {
	Rules []chaos.Status `json:"rules"` // the oldest first
}

// ChaosRule answers POST /v1/chaos: a rule, and the actors that it chooses at this time.
type ChaosRule struct {
	chaos.Status
	Targets []ChaosTarget `json:"targets"`
}

// ChaosTarget is one actor that a rule may act on.
type ChaosTarget struct {
	Path messages.Address `json:"path"`
	Pod  string           `json:"pod,omitempty"` // namespace and name of the pod that it, or its parent, is the actor of
}

// AddChaos puts a rule in force or, in a dry run, says what it chooses.
func (c *Client) AddChaos(ctx context.Context, r chaos.Rule, dryRun bool) (*ChaosRule, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	query := ""
	if dryRun {
		query = "dryRun=true"
	}
	return call[ChaosRule](ctx, c, http.MethodPost, chaosPath, query, body)
}

// Chaos lists the rules.
func (c *Client) Chaos(ctx context.Context) (*ChaosRules, error) {
	return get[ChaosRules](ctx, c, chaosPath, "")
}

// StopChaos ends the rule with this ID, or all where it is 0.
func (c *Client) StopChaos(ctx context.Context, id uint64) (*ChaosRules, error) {
	path := chaosPath
	if id != 0 {
		path += "/" + strconv.FormatUint(id, 10)
	}
	return call[ChaosRules](ctx, c, http.MethodDelete, path, "", nil)
}
