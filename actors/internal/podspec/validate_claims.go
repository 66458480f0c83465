package podspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// resourceClaims checks the devices that a pod asks for by claim (KEP-4381).
func (v *validator) resourceClaims(at *field.Path) {
	for i, claim := range v.spec.ResourceClaims {
		here := at.Index(i)
		v.label(here.Child("name"), claim.Name)
		v.unique(here.Child("name"), v.claims, claim.Name)
		given := 0
		if claim.ResourceClaimName != nil {
			given++
			v.subdomain(here.Child("resourceClaimName"), *claim.ResourceClaimName)
		}
		if claim.ResourceClaimTemplateName != nil {
			given++
			v.subdomain(here.Child("resourceClaimTemplateName"), *claim.ResourceClaimTemplateName)
		}
		if given != 1 {
			v.invalid(here, claim.Name,
				fmt.Sprintf("needs either resourceClaimName or resourceClaimTemplateName, has %d of them", given))
		}
	}
}

// claimsOf checks which of the pod's claims a container uses: each claim once as a whole, or some of its requests.
func (v *validator) claimsOf(claims []v1.ResourceClaim, at *field.Path) {
	used := map[string]bool{}
	for i, claim := range claims {
		here := at.Index(i)
		if claim.Name == "" {
			v.required(here.Child("name"), "")
			continue
		}
		if !v.claims[claim.Name] {
			v.add(field.NotFound(here.Child("name"), claim.Name))
		}
		key := claim.Name + "/" + claim.Request
		if claim.Request != "" {
			v.label(here.Child("request"), claim.Request)
		}
		if used[key] || used[claim.Name+"/"] || (claim.Request == "" && usesPartOf(used, claim.Name)) {
			v.duplicate(here, strings.TrimSuffix(key, "/"))
		}
		used[key] = true
	}
}

func usesPartOf(used map[string]bool, claim string) bool {
	for key := range used {
		if strings.HasPrefix(key, claim+"/") {
			return true
		}
	}
	return false
}
