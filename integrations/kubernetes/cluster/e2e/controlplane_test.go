//go:build cluster

// Package e2e tests the integration against the real API server, scheduler and claim controller of
// Kubernetes, which run in the test's process. Nodes are objects only: there is no kubelet.
package e2e

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailbound/tailbound/integrations/kubernetes/cluster/kubelet"
	"github.com/tailbound/tailbound/integrations/kubernetes/cluster/plugin"
	"github.com/tailbound/tailbound/integrations/kubernetes/guarantee"
	"github.com/tailbound/tailbound/integrations/kubernetes/tree"
	"go.etcd.io/etcd/server/v3/embed"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	kastesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerruntime "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
)

// gates are the feature gates of the API server and of the scheduler. Only gangs need them: the
// others are on by default.
const gates = "GenericWorkload=true"

// cluster is a control plane without nodes.
type cluster struct {
	t       *testing.T
	config  *rest.Config
	client  kubernetes.Interface
	kubecfg string
}

// startCluster starts etcd, the API server and the claim controller, which end with the test.
func startCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	begin := time.Now()
	store := storagebackend.NewDefaultConfig("/registry", nil)
	store.Transport.ServerList = []string{startEtcd(t)}
	all := append([]string{
		"--feature-gates=" + gates,
		"--runtime-config=scheduling.k8s.io/v1beta1=true",
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--authorization-mode=AlwaysAllow",
	}, flags...)
	server := kastesting.StartTestServerOrDie(t, kastesting.NewDefaultTestServerOptions(), all, store)
	t.Cleanup(server.TearDownFn)
	config := rest.CopyConfig(server.ClientConfig)
	config.QPS, config.Burst = 2000, 2000
	c := &cluster{t: t, config: config, client: kubernetes.NewForConfigOrDie(config)}
	c.kubecfg = c.kubeconfig()
	c.eventually("the API server made the namespace default", 20*time.Second, func() bool {
		_, err := c.client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	c.startClaimController()
	t.Logf("API server ready in %.1f s", time.Since(begin).Seconds())
	return c
}

func startEtcd(t *testing.T) string {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.LogLevel = "fatal"
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = 4 << 30
	config.ListenClientUrls = []url.URL{freeAddress(t)}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{freeAddress(t)}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName("default")
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	return config.ListenClientUrls[0].String()
}

func freeAddress(t *testing.T) url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}
}

// must fails after an error; its first argument is the object that nobody needs.
func (c *cluster) must(_ any, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) kubeconfig() string {
	c.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.config.Host, InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: c.config.BearerToken}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// startClaimController makes claims of templates, and releases those of deleted pods.
func (c *cluster) startClaimController() {
	c.t.Helper()
	factory := informers.NewSharedInformerFactory(c.client, 0)
	controller, err := resourceclaim.NewController(klog.Background(), c.client, factory.Core().V1().Pods(),
		factory.Scheduling().V1beta1().PodGroups(), factory.Resource().V1().ResourceClaims(), factory.Resource().V1().ResourceClaimTemplates())
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { controller.Run(ctx, 10) })
	factory.Start(ctx.Done())
	c.t.Cleanup(func() {
		cancel()
		group.Wait()
		factory.Shutdown()
	})
}

// profile is the scheduler's profile with the plugin; pods of the stock profile have no name of one.
const profile = "tailbound"

// startScheduler starts the scheduler with a stock profile, and with one of the plugin if there is
// an address of a placement service.
func (c *cluster) startScheduler(place string) {
	c.t.Helper()
	text := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %s, qps: 2000, burst: 2000}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
`, c.kubecfg)
	if place != "" {
		text += fmt.Sprintf(`- schedulerName: %s
  plugins: {multiPoint: {enabled: [{name: %s}]}}
  pluginConfig: [{name: %s, args: {url: %q, timeoutMilliseconds: 500}}]
`, profile, plugin.Name, plugin.Name, place)
	}
	path := filepath.Join(c.t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	options := schedulerruntime.NewOptions()
	options.ConfigFile = path
	options.SecureServing.BindPort = 0
	ctx, cancel := context.WithCancel(context.Background())
	completed, scheduler, err := app.Setup(ctx, options, app.WithPlugin(plugin.Name, plugin.New))
	if err != nil {
		cancel()
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = app.Run(ctx, completed, scheduler)
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// host is a node with its labels.
type host struct {
	name   string
	labels map[string]string
	uplink guarantee.Uplink
}

// addHosts makes nodes with room for many pods, and the slices of their uplinks.
func (c *cluster) addHosts(admission guarantee.Admission, hosts ...host) {
	c.t.Helper()
	for _, host := range hosts {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: host.name, Labels: host.labels}}
		node.Status.Allocatable = v1.ResourceList{"cpu": resource.MustParse("256"), "memory": resource.MustParse("1Ti"), "pods": resource.MustParse("500")}
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		c.must(c.client.CoreV1().Nodes().Create(c.t.Context(), node, metav1.CreateOptions{}))
		pool := kubelet.Resources(host.name, host.uplink, admission).Pools[host.name]
		c.must(c.client.ResourceV1().ResourceSlices().Create(c.t.Context(), &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "node-" + host.name},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: guarantee.Driver, NodeName: &host.name, Devices: pool.Slices[0].Devices,
				Pool: resourceapi.ResourcePool{Name: host.name, Generation: 1, ResourceSliceCount: 1},
			},
		}, metav1.CreateOptions{}))
	}
}

// addTree makes the classes and slices of a topology.
func (c *cluster) addTree(topology *tree.Topology) {
	c.t.Helper()
	for _, class := range topology.Classes() {
		c.must(c.client.ResourceV1().DeviceClasses().Create(c.t.Context(), &class, metav1.CreateOptions{}))
	}
	for _, slice := range topology.Slices(1) {
		c.must(c.client.ResourceV1().ResourceSlices().Create(c.t.Context(), &slice, metav1.CreateOptions{}))
	}
}

// addTemplate makes a template of claims.
func (c *cluster) addTemplate(name string, spec resourceapi.ResourceClaimSpec) {
	c.t.Helper()
	c.must(c.client.ResourceV1().ResourceClaimTemplates("default").Create(c.t.Context(), &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec},
	}, metav1.CreateOptions{}))
}

// nodeClaim is a claim of a node's uplink alone.
func nodeClaim(bandwidth, burst string) resourceapi.ResourceClaimSpec {
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: "net", Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: guarantee.NodeClass, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
			Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
				guarantee.CapacityBandwidth: resource.MustParse(bandwidth), guarantee.CapacityBurst: resource.MustParse(burst),
				guarantee.CapacityBurstIn: resource.MustParse("0"),
			}},
		},
	}}}}
}

// pod returns a pod with a claim of a template.
func pod(name, template string, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	pod.Spec.Containers = []v1.Container{{Name: "c", Image: "none"}}
	if template != "" {
		pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "net", ResourceClaimTemplateName: &template}}
		pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "net"}}
	}
	for _, change := range change {
		change(pod)
	}
	return pod
}

func exact(pod *v1.Pod) { pod.Spec.SchedulerName = profile }

func ofTenant(tenant string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Labels = map[string]string{guarantee.TenantLabel: tenant} }
}

func inGang(group string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &group} }
}

func (c *cluster) addPods(pods ...*v1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		c.must(c.client.CoreV1().Pods("default").Create(c.t.Context(), pod, metav1.CreateOptions{}))
	}
}

func (c *cluster) addGang(name string, size int32) {
	c.t.Helper()
	c.must(c.client.SchedulingV1beta1().PodGroups("default").Create(c.t.Context(), &schedulingapi.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       schedulingapi.PodGroupSpec{SchedulingPolicy: schedulingapi.PodGroupSchedulingPolicy{Gang: &schedulingapi.GangSchedulingPolicy{MinCount: size}}},
	}, metav1.CreateOptions{}))
}

func (c *cluster) pod(name string) *v1.Pod {
	c.t.Helper()
	pod, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	c.must(pod, err)
	return pod
}

// placed returns the nodes of all bound pods whose names have the prefix.
func (c *cluster) placed(prefix string) map[string]string {
	c.t.Helper()
	all, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	c.must(all, err)
	placed := map[string]string{}
	for _, pod := range all.Items {
		if strings.HasPrefix(pod.Name, prefix) && pod.Spec.NodeName != "" {
			placed[pod.Name] = pod.Spec.NodeName
		}
	}
	return placed
}

// eventually waits until a condition holds.
func (c *cluster) eventually(what string, patience time.Duration, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("after %s: not yet that %s", patience, what)
		}
	}
}

// refusal returns the sentence why a pod is not scheduled; empty if there is none.
func (c *cluster) refusal(name string) string {
	c.t.Helper()
	for _, condition := range c.pod(name).Status.Conditions {
		if condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

// eventuallyRefused waits until a pod's sentence has all words.
func (c *cluster) eventuallyRefused(name string, words ...string) {
	c.t.Helper()
	sentence := ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		sentence = c.refusal(name)
		missing := false
		for _, word := range words {
			missing = missing || !strings.Contains(sentence, word)
		}
		if !missing {
			c.t.Logf("%s waits: %s", name, sentence)
			return
		}
	}
	c.t.Fatalf("%s waits with %q, expected %q in it", name, sentence, words)
}

// deletePods deletes pods whose names have the prefix, as kubelet and the controllers would.
func (c *cluster) deletePods(prefix string) {
	c.t.Helper()
	now := int64(0)
	all, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	c.must(all, err)
	for _, pod := range all.Items {
		if strings.HasPrefix(pod.Name, prefix) {
			err := c.client.CoreV1().Pods("default").Delete(c.t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
			if err != nil && !apierrors.IsNotFound(err) {
				c.t.Fatal(err)
			}
			// The garbage collector deletes what pods own.
			for _, status := range pod.Status.ResourceClaimStatuses {
				if status.ResourceClaimName != nil {
					_ = c.client.ResourceV1().ResourceClaims("default").Delete(c.t.Context(), *status.ResourceClaimName, metav1.DeleteOptions{})
				}
			}
		}
	}
}
