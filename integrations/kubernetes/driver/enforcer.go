package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
)

// Enforcement is what a node enforces for a pod.
type Enforcement struct {
	// Bandwidth and Burst are 0 if the pod's interface has no guarantee.
	Bandwidth guarantee.Rate
	Burst     guarantee.Bytes
	// Uplink is the interface by which the pod's frames leave the node.
	Uplink string
}

// Enforcer knows what a node enforces.
type Enforcer interface {
	// Enforced returns the pods whose interfaces are adopted and in force, by UID.
	Enforced(ctx context.Context) (map[string]Enforcement, error)
}

// Program is the Enforcer that runs the node's `tailbound adopt --list`.
type Program struct {
	// Path is the program's file, "tailbound" if empty.
	Path string
	// Timeout ends a program that hangs, after 10 s if zero.
	Timeout time.Duration
}

// Enforced implements [Enforcer].
func (p Program) Enforced(ctx context.Context) (map[string]Enforcement, error) {
	path, timeout := p.Path, p.Timeout
	if path == "" {
		path = "tailbound"
	}
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, "adopt", "--list", "--output", "json").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && len(exit.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("%s adopt --list: %w", path, err)
	}
	return adopted(text)
}

// adopted reads the document of `tailbound adopt --list --output json`.
func adopted(text []byte) (map[string]Enforcement, error) {
	var document struct {
		Guests []struct {
			InForce bool   `json:"in_force"`
			Key     string `json:"key"`
			Name    string `json:"name"`
			Uplink  string `json:"uplink"`
			Steps   []struct {
				Action string `json:"action"`
				Rules  struct {
					Guarantee *struct {
						Rate  string `json:"rate"`
						Burst string `json:"burst"`
					} `json:"guarantee"`
				} `json:"rules"`
			} `json:"steps"`
		} `json:"guests"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("the list of adopted guests: %w", err)
	}
	pods := map[string]Enforcement{}
	for _, guest := range document.Guests {
		pod := podOf(guest.Key, guest.Name)
		if pod == "" || !guest.InForce {
			continue
		}
		enforcement := Enforcement{Uplink: guest.Uplink}
		for _, step := range guest.Steps {
			if step.Action != "guest" || step.Rules.Guarantee == nil {
				continue
			}
			var err error
			if enforcement.Bandwidth, err = guarantee.RateFromText(step.Rules.Guarantee.Rate); err != nil {
				return nil, fmt.Errorf("the guarantee of %s: %w", guest.Name, err)
			}
			if enforcement.Burst, err = guarantee.BytesFromText(step.Rules.Guarantee.Burst); err != nil {
				return nil, fmt.Errorf("the guarantee of %s: %w", guest.Name, err)
			}
		}
		pods[pod] = enforcement
	}
	return pods, nil
}

// podOf returns the UID of the pod that a guest is, from its key or its name; empty if it is none.
func podOf(names ...string) string {
	for _, name := range names {
		for _, prefix := range []string{"pod-", "pod:"} {
			if _, uid, found := strings.Cut(name, prefix); found && isUID(uid) {
				return uid
			}
		}
	}
	return ""
}
