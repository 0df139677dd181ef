package e2e

import (
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "helm.sh/helm/v4/pkg/action"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "k8s.io/dynamic-resource-allocation/kubeletplugin"
)
