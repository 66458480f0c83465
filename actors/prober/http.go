package prober

import (
	"context"
	"fmt"
	"net/http"

	"github.com/playlet-dev/playlet/actors/internal/endpoint"
)

// httpProbe asks for a page: a code from 200 to 399 is success, a redirect to another host, which is not followed, with it.
func httpProbe(ctx context.Context, opts Options, j job) outcome {
	get := j.spec.HTTPGet
	target, err := endpoint.URL(get, j.ips, j.container.Ports)
	if err != nil {
		return outcome{result: unknown, message: err.Error()}
	}
	answer, err := endpoint.Get(ctx, target, get.HTTPHeaders, opts.UserAgent)
	switch {
	case err != nil:
		return outcome{result: failure, message: text(err.Error())}
	case answer.Code < http.StatusOK || answer.Code >= http.StatusBadRequest:
		return outcome{result: failure, message: fmt.Sprintf("HTTP probe failed with statuscode: %d", answer.Code)}
	case answer.Code >= http.StatusMultipleChoices:
		return outcome{result: warning, message: text("Probe terminated redirects, Response body: ", head(answer.Body))}
	}
	return outcome{result: success, message: ""}
}
