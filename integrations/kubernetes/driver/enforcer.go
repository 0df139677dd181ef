package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
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
	// Rules are the flags of the other rules of the pod, which a new guarantee leaves as they are.
	Rules []string
}

// is reports whether a guarantee is in force, exactly.
func (e Enforcement) is(record Record) bool {
	return e.Bandwidth == record.BandwidthBit && e.Burst == record.BurstBytes
}

// Enforcer enforces guarantees on a node.
type Enforcer interface {
	// Enforced returns the pods whose interfaces are adopted and in force, by UID.
	Enforced(ctx context.Context) (map[string]Enforcement, error)
	// Enforce adopts a pod's interface with the guarantee of its record, beside the rules that it has.
	Enforce(ctx context.Context, record Record, rules []string) error
	// Release undoes all rules of a pod.
	Release(ctx context.Context, pod string) error
}

// Program is the Enforcer that runs the node's `tailbound`.
type Program struct {
	// Path is the program's file, "tailbound" if empty.
	Path string
	// Timeout ends a program that hangs, after 10 s if zero.
	Timeout time.Duration
}

// Enforced implements [Enforcer].
func (p Program) Enforced(ctx context.Context) (map[string]Enforcement, error) {
	text, err := p.run(ctx, "adopt", "--list", "--output", "json")
	if err != nil {
		return nil, err
	}
	return adopted(text)
}

// Enforce implements [Enforcer].
func (p Program) Enforce(ctx context.Context, record Record, rules []string) error {
	arguments := []string{"adopt", keyOf(record.Pod), "--guarantee", record.Guarantee}
	if record.Packet != "" {
		arguments = append(arguments, "--packet", record.Packet)
	}
	_, err := p.run(ctx, append(arguments, rules...)...)
	return err
}

// Release implements [Enforcer].
func (p Program) Release(ctx context.Context, pod string) error {
	_, err := p.run(ctx, "release", keyOf(pod))
	return err
}

// run returns what the program prints, or an error with what it says.
func (p Program) run(ctx context.Context, arguments ...string) ([]byte, error) {
	path, timeout := p.Path, p.Timeout
	if path == "" {
		path = "tailbound"
	}
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, arguments...).Output()
	if err == nil {
		return text, nil
	}
	// The reason of a refusal is on standard output, that of a failure on standard error.
	said := strings.TrimSpace(string(text))
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		said = strings.TrimSpace(string(exit.Stderr))
	}
	return nil, fmt.Errorf("%s %s: %w: %s", path, strings.Join(arguments[:min(2, len(arguments))], " "), err, said)
}

// bucket is a rate and a burst as tailbound prints them.
type bucket struct {
	Rate  string `json:"rate"`
	Burst string `json:"burst"`
}

func (b bucket) String() string { return b.Rate + "," + b.Burst }

// request is what was asked for a guest.
type request struct {
	Guard     bool     `json:"guard"`
	DSCP      *int     `json:"dscp"`
	Outward   *bucket  `json:"outward"`
	Inward    *bucket  `json:"inward"`
	Uplink    string   `json:"uplink"`
	Interface string   `json:"interface"`
	MAC       string   `json:"mac"`
	IPs       []string `json:"ips"`
}

// flags are those of `tailbound adopt` that ask for the same, without the guarantee.
func (r request) flags() []string {
	var flags []string
	add := func(name, value string) {
		if value != "" {
			flags = append(flags, name, value)
		}
	}
	if !r.Guard {
		flags = append(flags, "--no-guard")
	}
	if r.DSCP != nil {
		add("--dscp", strconv.Itoa(*r.DSCP))
	}
	if r.Outward != nil {
		add("--limit-out", r.Outward.String())
	}
	if r.Inward != nil {
		add("--limit-in", r.Inward.String())
	}
	add("--uplink", r.Uplink)
	add("--interface", r.Interface)
	add("--mac", r.MAC)
	for _, ip := range r.IPs {
		add("--ip", ip)
	}
	return flags
}

// adopted reads the document of `tailbound adopt --list --output json`.
func adopted(text []byte) (map[string]Enforcement, error) {
	var document struct {
		Guests []struct {
			InForce bool    `json:"in_force"`
			Key     string  `json:"key"`
			Uplink  string  `json:"uplink"`
			Request request `json:"request"`
			Steps   []struct {
				Action string `json:"action"`
				Rules  struct {
					Guarantee *bucket `json:"guarantee"`
				} `json:"rules"`
			} `json:"steps"`
		} `json:"guests"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("the list of adopted guests: %w", err)
	}
	pods := map[string]Enforcement{}
	for _, guest := range document.Guests {
		pod := podOf(guest.Key)
		if pod == "" || !guest.InForce {
			continue
		}
		enforcement := Enforcement{Uplink: guest.Uplink, Rules: guest.Request.flags()}
		for _, step := range guest.Steps {
			if step.Action != "guest" || step.Rules.Guarantee == nil {
				continue
			}
			var err error
			if enforcement.Bandwidth, err = guarantee.RateFromText(step.Rules.Guarantee.Rate); err != nil {
				return nil, fmt.Errorf("the guarantee of %s: %w", guest.Key, err)
			}
			if enforcement.Burst, err = guarantee.BytesFromText(step.Rules.Guarantee.Burst); err != nil {
				return nil, fmt.Errorf("the guarantee of %s: %w", guest.Key, err)
			}
		}
		pods[pod] = enforcement
	}
	return pods, nil
}

// keyOf is the key of a pod's first interface, for tailbound.
func keyOf(pod string) string { return "pod/" + pod }

// podOf returns the UID of the pod that a key names; empty if it is another guest, or another
// interface of a pod.
func podOf(key string) string {
	if uid, found := strings.CutPrefix(key, "pod/"); found && isUID(uid) {
		return uid
	}
	return ""
}
