package plugin

import (
	"errors"
	"fmt"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/place"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Args are the plugin's arguments in the profile's pluginConfig.
type Args struct {
	// URL is the address of the placement service; several replicas are separated by commas.
	URL string `json:"url"`
	// TokenFile has the token of the role operator.
	TokenFile string `json:"tokenFile,omitempty"`
	// CAFile has the authority of the service's certificate.
	CAFile string `json:"caFile,omitempty"`
	// OwnerPrefix comes before the namespace in the name of a tenant's owner, "k8s-" if empty. The
	// plugin removes machines of these owners whose pods are gone: each cluster needs its own.
	OwnerPrefix string `json:"ownerPrefix,omitempty"`
	// TimeoutMilliseconds is the longest time for a call at one replica, 2000 if zero.
	TimeoutMilliseconds int `json:"timeoutMilliseconds,omitempty"`
}

const defaultPrefix = "k8s-"

// decode reads the arguments strictly: a key that is not known is an error.
func decode(configuration runtime.Object) (Args, error) {
	args := Args{OwnerPrefix: defaultPrefix}
	unknown, ok := configuration.(*runtime.Unknown)
	if !ok || len(unknown.Raw) == 0 {
		return args, errors.New("the profile has no pluginConfig for " + Name + ": it needs args: {url: https://...}")
	}
	if err := yaml.UnmarshalStrict(unknown.Raw, &args); err != nil {
		return args, fmt.Errorf("the arguments of %s: %w", Name, err)
	}
	if args.OwnerPrefix == "" || !guarantee.IsName(args.OwnerPrefix+"x") {
		return args, fmt.Errorf("ownerPrefix %q is no beginning of an owner's name: write for example \"east-\"", args.OwnerPrefix)
	}
	if args.TimeoutMilliseconds < 0 {
		return args, fmt.Errorf("timeoutMilliseconds %d is negative", args.TimeoutMilliseconds)
	}
	return args, nil
}

func (a Args) client() (*place.Client, error) {
	return place.New(place.Config{
		URL: a.URL, TokenFile: a.TokenFile, CAFile: a.CAFile,
		Timeout: time.Duration(a.TimeoutMilliseconds) * time.Millisecond,
	})
}
