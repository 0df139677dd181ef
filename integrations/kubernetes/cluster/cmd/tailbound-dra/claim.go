package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/tree"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// claim prints a ResourceClaimTemplate, and the affinity that its pods need.
func claim(_ context.Context, arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("tailbound-dra claim", flag.ContinueOnError)
	flags.SetOutput(out)
	values := flags.String("values", "", "values of the Helm chart with the topology in `tree`")
	name := flags.String("name", "", "name of the tenant, and of the template")
	bandwidth := flags.String("bandwidth", "", "bandwidth of each pod in bits a second, such as 500M")
	burst := flags.String("burst", "", "burst of each pod in bytes, such as 15k")
	pods := flags.Int("pods", 0, "largest number of pods of the tenant")
	within := flags.String("within", tree.Anywhere, "level of which one group has all pods, such as rack; anywhere by default")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if !guarantee.IsName(*name) {
		return fmt.Errorf("--name %q is no name of a tenant: write for example --name web", *name)
	}
	topology, err := topologyOf(*values)
	if err != nil {
		return err
	}
	wanted, err := wantedOf(*bandwidth, *burst)
	if err != nil {
		return err
	}
	demands, err := topology.Demand(wanted, *pods, *within)
	if err != nil {
		return err
	}
	if affinity := topology.Affinity(*within, *name); affinity != nil {
		text, err := yaml.Marshal(map[string]any{"affinity": affinity})
		if err != nil {
			return fmt.Errorf("printing the affinity: %w", err)
		}
		fmt.Fprintf(out, "# The pods have the label %s: %s, and in their spec:\n", guarantee.TenantLabel, *name)
		fmt.Fprintf(out, "# %s\n", commented(text))
	}
	fmt.Fprintf(out, "# A frame waits at most %s in the queues between two pods.\n", topology.Longest(*within))
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "resource.k8s.io/v1",
		"kind":       "ResourceClaimTemplate",
		"metadata":   map[string]any{"name": *name},
		"spec":       map[string]any{"spec": tree.Claim(demands)},
	})
	if err != nil {
		return fmt.Errorf("printing the template: %w", err)
	}
	_, err = out.Write(text)
	return err
}

func commented(text []byte) string {
	var out []byte
	for i, letter := range text {
		out = append(out, letter)
		if letter == '\n' && i+1 < len(text) {
			out = append(out, "# "...)
		}
	}
	if n := len(out); n > 0 && out[n-1] == '\n' {
		out = out[:n-1]
	}
	return string(out)
}

func topologyOf(path string) (*tree.Topology, error) {
	if path == "" {
		return nil, errors.New("--values is missing: write the chart's values with the topology")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the topology: %w", err)
	}
	var values struct {
		Tree json.RawMessage `json:"tree"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(values.Tree) == 0 {
		return nil, fmt.Errorf("%s has no topology: it needs the key `tree`", path)
	}
	topology, err := tree.Parse(values.Tree)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return topology, nil
}

func wantedOf(bandwidth, burst string) (guarantee.Guarantee, error) {
	var wanted guarantee.Guarantee
	rate, err := resource.ParseQuantity(bandwidth)
	if err != nil {
		return wanted, fmt.Errorf("--bandwidth %q is no quantity: write for example --bandwidth 500M", bandwidth)
	}
	size, err := resource.ParseQuantity(burst)
	if err != nil {
		return wanted, fmt.Errorf("--burst %q is no quantity: write for example --burst 15k", burst)
	}
	if wanted.Bandwidth, err = guarantee.ParseRate("--bandwidth", rate); err != nil {
		return wanted, err
	}
	wanted.Burst, err = guarantee.ParseBurst("--burst", size)
	return wanted, err
}
