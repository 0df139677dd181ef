package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Topology is the tree of uplinks of a cluster.
type Topology struct {
	node   guarantee.Uplink
	levels []level
}

// level is a kind of groups, such as racks.
type level struct {
	name, label string
	uplinks     map[string]guarantee.Uplink
}

// File is the form of a topology: the value `tree` of the Helm chart, as JSON.
type File struct {
	// Frame is the longest frame on the wire in bytes; 1538 if it is left out.
	Frame int64 `json:"frame,omitempty"`
	// Node is the uplink of the nodes; of several kinds, that with the longest queues.
	Node Link `json:"node"`
	// Levels are the kinds of groups from the nodes upwards, such as racks and pods.
	Levels []Level `json:"levels"`
}

// Level is a kind of groups with the label of their nodes.
type Level struct {
	Name    string          `json:"name"`
	Label   string          `json:"label"`
	Uplinks map[string]Link `json:"uplinks"`
}

// Link is an uplink. Rate is a quantity of bits a second; Up and Down are bytes of buffer.
type Link struct {
	Rate resource.Quantity `json:"rate"`
	Up   int64             `json:"up"`
	Down int64             `json:"down"`
	// LatenessNanoseconds is J, of nodes only.
	LatenessNanoseconds int64 `json:"latenessNanoseconds,omitempty"`
	// Packet is the longest packet in bytes that leaves whole, of nodes only; a frame if it is left out.
	Packet int64 `json:"packet,omitempty"`
}

// The most levels above the nodes: a claim has at most 32 requests.
const maxLevels = 16

// Parse reads a topology from JSON, or returns an error with the place of the mistake.
func Parse(text []byte) (*Topology, error) {
	var file File
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("topology: something follows the object")
	}
	return New(file)
}

// New checks a topology.
func New(file File) (*Topology, error) {
	frame := guarantee.Bytes(file.Frame)
	if frame == 0 {
		frame = guarantee.MinFrame
	}
	if file.Node.Packet == 0 {
		file.Node.Packet = int64(frame)
	}
	node, err := uplink(file.Node, frame)
	if err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	if len(file.Levels) > maxLevels {
		return nil, fmt.Errorf("levels: there are %d, and the most are %d", len(file.Levels), maxLevels)
	}
	topology := &Topology{node: node}
	for i, described := range file.Levels {
		place := fmt.Sprintf("levels[%d]", i)
		switch {
		case !guarantee.IsName(described.Name) || described.Name == guarantee.NodeLevel:
			return nil, fmt.Errorf("%s.name: %q is no name of a level: write for example \"rack\"", place, described.Name)
		case slices.ContainsFunc(topology.levels, func(other level) bool { return other.name == described.Name }):
			return nil, fmt.Errorf("%s.name: there are two levels %q", place, described.Name)
		case described.Label == "":
			return nil, fmt.Errorf("%s.label: it is missing: write the label by which nodes name their %s", place, described.Name)
		case len(described.Uplinks) == 0:
			return nil, fmt.Errorf("%s.uplinks: there are none", place)
		}
		checked := level{name: described.Name, label: described.Label, uplinks: map[string]guarantee.Uplink{}}
		for name, link := range described.Uplinks {
			if !guarantee.IsName(name) {
				return nil, fmt.Errorf("%s.uplinks: %q is no name of a %s: it needs 1 to 63 of a-z, 0-9 and \"-\"", place, name, described.Name)
			}
			if link.LatenessNanoseconds != 0 {
				return nil, fmt.Errorf("%s.uplinks.%s.latenessNanoseconds: switches have none", place, name)
			}
			if link.Packet != 0 {
				return nil, fmt.Errorf("%s.uplinks.%s.packet: switches forward frames", place, name)
			}
			if checked.uplinks[name], err = uplink(link, frame); err != nil {
				return nil, fmt.Errorf("%s.uplinks.%s: %w", place, name, err)
			}
		}
		topology.levels = append(topology.levels, checked)
	}
	return topology, nil
}

func uplink(link Link, frame guarantee.Bytes) (guarantee.Uplink, error) {
	rate, err := guarantee.ParseRate("rate", link.Rate)
	if err != nil {
		return guarantee.Uplink{}, err
	}
	checked := guarantee.Uplink{
		Rate: rate, Up: guarantee.Bytes(link.Up), Down: guarantee.Bytes(link.Down), Frame: frame,
		Packet: guarantee.Bytes(link.Packet), Lateness: time.Duration(link.LatenessNanoseconds),
	}
	return checked, checked.Check()
}

// Node returns the uplink of the nodes.
func (t *Topology) Node() guarantee.Uplink { return t.node }

// Class returns the name of the DeviceClass of a level's uplinks.
func Class(level string) string { return level + "." + guarantee.Driver }

// Pool returns the name of the pool of a group's uplink.
func Pool(level, group string) string { return level + "/" + group }

// Classes returns the DeviceClasses of all levels, with that of the nodes.
func (t *Topology) Classes() []resourceapi.DeviceClass {
	names := []string{guarantee.NodeLevel}
	for _, level := range t.levels {
		names = append(names, level.name)
	}
	classes := make([]resourceapi.DeviceClass, 0, len(names))
	for _, name := range names {
		expression := fmt.Sprintf(`device.driver == %q && device.attributes[%q].%s == %q`,
			guarantee.Driver, guarantee.Driver, guarantee.AttributeLevel, name)
		classes = append(classes, resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: Class(name)},
			Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
			},
		})
	}
	return classes
}

// Slices returns the uplinks above the nodes as network-attached devices, one slice each, in the
// order of their names. The generation has to rise with each change of the topology.
func (t *Topology) Slices(generation int64) []resourceapi.ResourceSlice {
	var all []resourceapi.ResourceSlice
	for _, level := range t.levels {
		for _, group := range slices.Sorted(maps.Keys(level.uplinks)) {
			all = append(all, resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: strings.Join([]string{"tailbound", level.name, group}, "-")},
				Spec: resourceapi.ResourceSliceSpec{
					Driver:       guarantee.Driver,
					Pool:         resourceapi.ResourcePool{Name: Pool(level.name, group), Generation: generation, ResourceSliceCount: 1},
					NodeSelector: below(level.label, group),
					Devices:      []resourceapi.Device{level.uplinks[group].Device(level.name, guarantee.BySum)},
				},
			})
		}
	}
	return all
}

func below(label, group string) *v1.NodeSelector {
	return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: label, Operator: v1.NodeSelectorOpIn, Values: []string{group}}},
	}}}
}
