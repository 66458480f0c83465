package satoken

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxAccounts bounds what is remembered.
const maxAccounts = 1000

// Account is a service account as the API server has it now. Where that does not answer, it is the account as it was read last:
// whoever needs a token besides has one for as long as the last is good. It is shared: nobody may change it.
func (s *Source) Account(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	account, err := s.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		if len(s.accounts) >= maxAccounts {
			clear(s.accounts)
		}
		s.accounts[key] = account
		return account, nil
	case refused(err):
		delete(s.accounts, key)
	case s.accounts[key] != nil:
		return s.accounts[key], nil
	}
	return nil, err
}

// refused says that an API server answered and has no such account for us. It may be too busy to say.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
