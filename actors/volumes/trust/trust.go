// Package trust has a watched copy of the cluster's ClusterTrustBundles, and returns their certificates for projected volumes
// (KEP-3257).
package trust

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	alpha "k8s.io/api/certificates/v1alpha1"
	beta "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/playlet-dev/playlet/actors/internal/apiclient"
	"github.com/playlet-dev/playlet/messages"
	"github.com/playlet-dev/playlet/supervisors/guard"
)

// ErrUnread is wrapped by errors of bundles that have not been listed yet.
var ErrUnread = errors.New("ClusterTrustBundles have not been read yet")

// Source is a copy of the ClusterTrustBundles. The first use begins the watch, which lives until Close. Source is safe for
// concurrent use.
type Source struct {
	client kubernetes.Interface
	log    *slog.Logger
	seed   []byte // of the order of certificates

	ctx     context.Context
	cancel  context.CancelFunc
	begin   sync.Once
	running sync.WaitGroup

	mu      sync.Mutex
	alpha   bool // the API server has v1alpha1 and not v1beta1
	bundles map[string]bundle
	version uint64
	listed  bool
	err     error // of the last request
}

// bundle is a ClusterTrustBundle of either version of the API.
type bundle struct {
	signer, text string
	labels       labels.Set
}

// New returns a source. It sends nothing.
func New(client kubernetes.Interface, log *slog.Logger) *Source {
	s := &Source{client: client, log: log, seed: make([]byte, sha256.Size), bundles: map[string]bundle{}}
	_, _ = rand.Read(s.seed) // it never fails
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close ends the watch. A nil Source has none.
func (s *Source) Close() {
	if s != nil {
		s.begin.Do(func() {})
		s.cancel()
		s.running.Wait()
	}
}

// Version increases with each change of the bundles. A nil Source has none.
func (s *Source) Version() uint64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Anchors returns the certificates of the source of a projected volume in PEM, each once. As the KEP requires, their order has no
// meaning: it differs between processes, so that nothing can rely on it. The error wraps ErrUnread until the bundles are listed.
func (s *Source) Anchors(source *v1.ClusterTrustBundleProjection) ([]byte, error) {
	s.begin.Do(func() { s.running.Go(s.watch) })
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.listed && s.err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnread, s.err)
	case !s.listed:
		return nil, ErrUnread
	}
	var texts []string
	name := ""
	switch {
	case source.Name != nil:
		name = *source.Name
		if b, is := s.bundles[name]; is {
			texts = append(texts, b.text)
		}
	case source.SignerName != nil:
		selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector) // nil selects nothing
		if err != nil {
			return nil, err
		}
		name = fmt.Sprintf("of signer %s with the labels %q", *source.SignerName, selector)
		for _, b := range s.bundles {
			if b.signer == *source.SignerName && selector.Matches(b.labels) {
				texts = append(texts, b.text)
			}
		}
	default:
		return nil, errors.New("a projected clusterTrustBundle has neither a name nor a signerName")
	}
	if texts == nil && (source.Optional == nil || !*source.Optional) {
		return nil, messages.Cause{Kind: "ClusterTrustBundle", Name: name}.Absent()
	}
	return s.merge(texts), nil
}

// merge returns the certificates of the texts, each once, without headers and comments.
func (s *Source) merge(texts []string) []byte {
	found := map[string][]byte{}
	for _, text := range texts {
		for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
			place := sha256.Sum256(slices.Concat(s.seed, block.Bytes))
			found[string(place[:])] = block.Bytes
		}
	}
	var out bytes.Buffer
	for _, place := range slices.Sorted(maps.Keys(found)) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: found[place]}))
	}
	return out.Bytes()
}

// watch runs until Close. It uses the first version of the API that the API server has.
func (s *Source) watch() {
	betas, alphas := s.client.CertificatesV1beta1().ClusterTrustBundles(), s.client.CertificatesV1alpha1().ClusterTrustBundles()
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
			if s.isAlpha() {
				list, err = alphas.List(ctx, o)
			} else {
				list, err = betas.List(ctx, o)
			}
			return list, s.answered(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
			if s.isAlpha() {
				w, err = alphas.Watch(ctx, o)
			} else {
				w, err = betas.Watch(ctx, o)
			}
			return w, s.answered(err)
		},
	}, s.client)
	for s.ctx.Err() == nil {
		_ = guard.Call(s.log, "the watch of ClusterTrustBundles", func() error { // it logs a panic
			cache.NewReflectorWithOptions(source, nil, s.store(),
				cache.ReflectorOptions{Name: "ClusterTrustBundles"}).RunWithContext(apiclient.Quiet(s.ctx))
			return nil
		})
		select {
		case <-time.After(time.Second):
		case <-s.ctx.Done():
		}
	}
}

func (s *Source) isAlpha() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alpha
}

// answered keeps the error of a request. If the API server does not have the version, the next request is for the other one.
func (s *Source) answered(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; apierrors.IsNotFound(err) {
		s.alpha = !s.alpha
		s.err = errors.New("the API server has no ClusterTrustBundles (certificates.k8s.io/v1beta1 or v1alpha1)")
	}
	return err
}

func (s *Source) store() apiclient.Store {
	change := func(how func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		how()
		s.version++
	}
	put := func(object any) {
		switch o := object.(type) {
		case *beta.ClusterTrustBundle:
			s.bundles[o.Name] = bundle{o.Spec.SignerName, o.Spec.TrustBundle, o.Labels}
		case *alpha.ClusterTrustBundle:
			s.bundles[o.Name] = bundle{o.Spec.SignerName, o.Spec.TrustBundle, o.Labels}
		}
	}
	return apiclient.Store{
		Put:  func(object any) { change(func() { put(object) }) },
		Drop: func(object any) { change(func() { delete(s.bundles, object.(metav1.Object).GetName()) }) },
		All: func(objects []any) {
			change(func() {
				clear(s.bundles)
				for _, object := range objects {
					put(object)
				}
				s.listed = true
			})
		},
	}
}
