// Package driver is the part of the DRA driver that runs on each node: it publishes the node's
// uplink, records the guarantees of pods that are about to start, and reports in the claims' device
// status whether they are enforced.
//
// Kubelet prepares a claim before the pod has a network. [Driver.Prepare] therefore only records the
// guarantee in the [Store], by the pod's UID; the chained CNI plugin finds it there and adopts the
// pod's interface with it. [Driver.Observe] asks the [Enforcer] for what is in force since.
//
// The package knows Kubernetes' types only. The adapter to kubelet is in the module "cluster".
package driver
