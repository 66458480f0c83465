// Package provider asks credential provider plugins for the credentials of an image: programs of the node that read a
// CredentialProviderRequest and write a CredentialProviderResponse.
// https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/
package provider

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1"
	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/yaml"

	"github.com/playlet-dev/playlet/actors/images/pullauth"
	"github.com/playlet-dev/playlet/actors/internal/linux/atomicfile"
	"github.com/playlet-dev/playlet/actors/internal/metrics"
	"github.com/playlet-dev/playlet/actors/internal/suspend"
)

// Load reads the configuration of the plugins in binDir: a file, or a folder of .json, .yaml and .yml files in the order of
// their names. tokens permits plugins to require tokens of service accounts. An error names the file, the provider and the
// field.
func Load(configPath, binDir string, tokens bool, log *slog.Logger) (*Providers, error) {
	files, err := filesOf(configPath)
	if err != nil {
		return nil, fmt.Errorf("--image-credential-provider-config: %w", err)
	}
	p := &Providers{log: log, mayHaveTokens: tokens}
	hash := sha256.New()
	for _, file := range files {
		if err := p.load(file, binDir, hash); err != nil {
			return nil, fmt.Errorf("--image-credential-provider-config: %s: %w", file, err)
		}
	}
	if len(p.plugins) == 0 {
		return nil, fmt.Errorf("--image-credential-provider-config: %s names no providers", configPath)
	}
	metrics.SetProviderConfig(fmt.Sprintf("sha256:%x", hash.Sum(nil)))
	return p, nil
}

func filesOf(configPath string) ([]string, error) {
	info, err := os.Stat(configPath)
	if err != nil || !info.IsDir() {
		return []string{configPath}, err
	}
	entries, err := os.ReadDir(configPath) // sorted
	var out []string
	for _, e := range entries {
		if slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) && !e.IsDir() {
			out = append(out, filepath.Join(configPath, e.Name()))
		}
	}
	return out, err
}

// maxConfig limits the size of a configuration file in bytes.
const maxConfig = 4 << 20

func (p *Providers) load(file, binDir string, hash io.Writer) error {
	data, err := atomicfile.ReadFile(file, maxConfig)
	if err != nil {
		return err
	}
	_, _ = hash.Write(data)
	var c kubeletconfig.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return err
	}
	if c.Kind != "CredentialProviderConfig" || !slices.Contains(versionsOf(kubeletconfig.GroupName), c.APIVersion) {
		return fmt.Errorf("it is a %q of %q; a CredentialProviderConfig of %s is needed", c.Kind, c.APIVersion,
			kubeletconfig.SchemeGroupVersion)
	}
	for i, one := range c.Providers {
		if one.TokenAttributes != nil && c.APIVersion != kubeletconfig.SchemeGroupVersion.String() {
			return fmt.Errorf("providers[%d] (%s): a CredentialProviderConfig of %s has no tokenAttributes; %s has", i, one.Name,
				c.APIVersion, kubeletconfig.SchemeGroupVersion)
		}
		if err := p.add(one, binDir); err != nil {
			return fmt.Errorf("providers[%d] (%s): %w", i, one.Name, err)
		}
	}
	return nil
}

// versionsOf returns the versions of an API group, newest first. The versions of the configuration differ only in service account
// tokens, which only v1 has. So do the versions of the requests to plugins.
func versionsOf(group string) []string {
	return []string{group + "/v1", group + "/v1beta1", group + "/v1alpha1"}
}

func (p *Providers) add(c kubeletconfig.CredentialProvider, binDir string) error {
	versions := versionsOf(credentialprovider.GroupName)
	switch {
	case c.Name == "" || c.Name == "." || c.Name == ".." || strings.ContainsAny(c.Name, "/ "):
		return errors.New("name must be that of a program in --image-credential-provider-bin-dir, without slashes and spaces")
	case slices.ContainsFunc(p.plugins, func(o *plugin) bool { return o.name == c.Name }):
		return errors.New("name is there twice")
	case !slices.Contains(versions, c.APIVersion):
		return fmt.Errorf("apiVersion is %q; %s is needed", c.APIVersion, versions[0])
	case len(c.MatchImages) == 0:
		return errors.New("matchImages is empty: it would be asked for no image")
	case c.DefaultCacheDuration == nil || c.DefaultCacheDuration.Duration < 0:
		return errors.New("defaultCacheDuration must be set, and at least 0")
	case c.TokenAttributes != nil && !p.mayHaveTokens:
		return errors.New("tokenAttributes needs the feature gate " + TokensGate + ", which is off: switch it on, or " +
			"remove the field")
	}
	if c.TokenAttributes != nil && c.APIVersion != versions[0] {
		return fmt.Errorf("tokenAttributes needs the apiVersion %s", versions[0])
	}
	if err := validTokens(c.TokenAttributes); err != nil {
		return fmt.Errorf("tokenAttributes%w", err)
	}
	for i, m := range c.MatchImages {
		if err := p.checkPattern(c.Name, m); err != nil {
			return fmt.Errorf("matchImages[%d]: %w", i, err)
		}
	}
	program, err := exec.LookPath(filepath.Join(binDir, c.Name))
	if err != nil {
		return fmt.Errorf("the plugin cannot be run: %w", err)
	}
	one := &plugin{name: c.Name, version: c.APIVersion, program: program, args: c.Args, env: os.Environ(),
		match:    pullauth.Patterns(c.MatchImages),
		cacheFor: c.DefaultCacheDuration.Duration, cache: map[string]cacheEntry{}, busy: map[string]chan struct{}{},
		timeout: time.Minute, asleep: suspend.Total, log: p.log, tokens: tokensOf(c.TokenAttributes)}
	for _, e := range c.Env {
		one.env = append(one.env, e.Name+"="+e.Value)
	}
	p.plugins = append(p.plugins, one)
	return nil
}

// checkPattern refuses the patterns that the kubelet refuses. It warns about patterns that the kubelet accepts although they can
// match no image.
func (p *Providers) checkPattern(name, pattern string) error {
	u, err := url.Parse("https://" + pattern)
	if err != nil {
		return fmt.Errorf("%q is no registry[:port][/path]", pattern)
	}
	_, err = path.Match(u.Hostname(), "")
	if err != nil || u.Hostname() == "" || strings.Contains(pattern, "://") || strings.Contains(u.Path, "*") {
		p.log.Warn("an entry of matchImages matches no image; use registry[:port][/path], with globs only before the port",
			"provider", name, "entry", pattern)
	}
	return nil
}
