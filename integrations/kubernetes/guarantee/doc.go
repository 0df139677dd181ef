// Package guarantee translates between the words of Kubernetes and those of tailbound: a
// ResourceClaim to the guarantee that it asks for, a pod to the tenant that it belongs to, and an
// uplink to the capacities of a DRA device.
//
// It is pure: no clock, no network, no files. Every error says what is wrong, where, and what would
// be right. Read [Guarantee] first.
package guarantee
