// Package driver is the part of the DRA driver that runs on each node: it publishes the node's
// uplink, records the guarantees of pods that are about to start, and reports in the claims' device
// status whether they are enforced.
//
// Kubelet prepares a claim before the pod has a network. [Driver.Prepare] therefore only records the
// guarantee in the [Store], by the pod's UID, where a CNI plugin may read it. [Driver.Observe] asks
// the [Enforcer] for what is in force, and adopts interfaces of pods that lack their guarantee. The
// rules that the CNI plugin or a person gave a pod stay.
//
// The package knows Kubernetes' types only. The adapter to kubelet is in the module "cluster".
package driver
