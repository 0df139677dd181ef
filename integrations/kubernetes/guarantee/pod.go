package guarantee

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Tenant names a tenant of the placement service.
type Tenant struct {
	Owner, Name string
}

func (t Tenant) String() string { return t.Owner + "/" + t.Name }

// TenantOf returns the tenant of a pod: its PodGroup, else its label [TenantLabel], else a tenant
// of its own. The owner is the namespace after the prefix, which keeps the owners of a cluster
// apart from those of others.
func TenantOf(pod *v1.Pod, prefix string) (Tenant, error) {
	tenant := Tenant{Owner: prefix + pod.Namespace, Name: pod.Name}
	of := "the pod's name"
	switch {
	case pod.Spec.SchedulingGroup != nil && pod.Spec.SchedulingGroup.PodGroupName != nil:
		tenant.Name, of = *pod.Spec.SchedulingGroup.PodGroupName, "the PodGroup's name"
	case pod.Labels[TenantLabel] != "":
		tenant.Name, of = pod.Labels[TenantLabel], "the label "+TenantLabel
	}
	for text, of := range map[string]string{tenant.Owner: "the namespace with its prefix", tenant.Name: of} {
		if !IsName(text) {
			return Tenant{}, fmt.Errorf("%s, %q, is no name of a tenant: it needs 1 to 63 of a-z, 0-9 and \"-\", without \"-\" at either end", of, text)
		}
	}
	return tenant, nil
}

// ClaimNames returns the names of the claims of a pod that exist by now. A claim of a template has
// its name in the pod's status; missing is the first that is not there yet.
func ClaimNames(pod *v1.Pod) (names []types.NamespacedName, missing string) {
	for _, claim := range pod.Spec.ResourceClaims {
		name := claim.ResourceClaimName
		if name == nil {
			made := false
			for _, status := range pod.Status.ResourceClaimStatuses {
				if status.Name == claim.Name {
					name, made = status.ResourceClaimName, true
				}
			}
			if !made && missing == "" {
				missing = claim.Name
			}
		}
		// A template may make no claim on purpose.
		if name != nil {
			names = append(names, types.NamespacedName{Namespace: pod.Namespace, Name: *name})
		}
	}
	return names, missing
}
