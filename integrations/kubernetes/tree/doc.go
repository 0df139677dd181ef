// Package tree describes the uplinks above the nodes to the stock scheduler.
//
// Each uplink of a rack, a pod or a higher group is a network-attached DRA device: its slice is for
// the nodes with the group's label, and all claims below share its capacities. A claim asks for one
// uplink of each level that its tenant's traffic may use. If the amounts of [Topology.Demand] add up
// to at most the capacities, then no queue of these uplinks exceeds its buffer: the sum is Silo's
// sufficient condition. It ignores that the pods below an uplink cannot send more than the pods
// above it may receive, which the placement service counts; so it admits less, and never too much.
//
// The package is pure.
package tree
