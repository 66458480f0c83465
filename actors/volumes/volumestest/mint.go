package volumestest

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/playlet-dev/playlet/actors/volumes/satoken"
)

// Mint makes numbered tokens. It implements kinds.Tokens.
type Mint struct {
	Given int
	Now   func() time.Time
	Err   error
	Gone  []types.UID // pods with forgotten tokens
}

// Forget implements kinds.Tokens.
func (m *Mint) Forget(pod types.UID) { m.Gone = append(m.Gone, pod) }

// Token implements kinds.Tokens.
func (m *Mint) Token(_ context.Context, pod *v1.Pod, audience string, seconds *int64) (satoken.Token, error) {
	m.Given++
	renew := m.Now().Add(time.Duration(*seconds) * time.Second)
	return satoken.Token{Text: fmt.Sprint("token ", m.Given, " of ", pod.Spec.ServiceAccountName, " for ", audience),
		Renew: renew, Expires: renew.Add(time.Minute)}, m.Err
}
