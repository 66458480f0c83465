package objectset

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// masterService is the Service of the API server itself, which every pod has in its environment.
var masterService = Key{Namespace: v1.NamespaceDefault, Name: "kubernetes"}

// ServiceEnv returns the variables about Services for the pod's containers. They cover the API server's own Service and,
// unless enableServiceLinks is false, the pod's namespace. It returns an error for a pod of the API server while Services are
// unread; a static pod gets the known ones. A node without an API server has none.
func (b *Board) ServiceEnv(pod *v1.Pod) (map[string]string, error) {
	if b == nil {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	services := b.services.all
	if services == nil {
		if OfAPIServer(pod) {
			return nil, fmt.Errorf("Services: %w", unreadError{b.services.err}) //nolint:staticcheck // the name of a kind
		}
		return nil, nil
	}
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	env := map[string]string{}
	own := services[Key{pod.Namespace, masterService.Name}]
	if s := services[masterService]; s != nil && (own == nil || !links) { // one of the pod's own namespace hides it
		addService(env, s)
	}
	for k, s := range services {
		if links && k.Namespace == pod.Namespace {
			addService(env, s)
		}
	}
	return env, nil
}

// addService adds the variables of one Service, in both documented forms: host and ports, and Docker's legacy links. Headless
// Services have none.
func addService(env map[string]string, s *v1.Service) {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return
	}
	name := variable(s.Name)
	env[name+"_SERVICE_HOST"] = ip
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		number := strconv.Itoa(int(p.Port))
		protocol := p.Protocol
		if protocol == "" {
			protocol = v1.ProtocolTCP
		}
		url := fmt.Sprintf("%s://%s", strings.ToLower(string(protocol)), net.JoinHostPort(ip, number))
		if i == 0 {
			env[name+"_SERVICE_PORT"], env[name+"_PORT"] = number, url
		}
		if p.Name != "" {
			env[name+"_SERVICE_PORT_"+variable(p.Name)] = number
		}
		link := fmt.Sprintf("%s_PORT_%s_%s", name, number, protocol)
		env[link], env[link+"_PROTO"], env[link+"_PORT"], env[link+"_ADDR"] = url, strings.ToLower(string(protocol)), number, ip
	}
}

// variable is a name as variables have it.
func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
