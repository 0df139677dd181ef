//go:build cluster

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

const chartValues = `
image: {repository: registry.example/tailbound}
tree:
  node: {rate: 10G, up: 62500, down: 300000, latenessNanoseconds: 14000}
  levels:
  - name: rack
    label: example.com/rack
    uplinks:
      r0: {rate: 40G, up: 1000000, down: 1000000}
      r1: {rate: 40G, up: 500000, down: 1000000}
  - name: pod
    label: topology.kubernetes.io/zone
    uplinks:
      p0: {rate: 100G, up: 2000000, down: 2000000}
`

const serviceValues = `
admission: service
scheduler: {gangs: true}
monitoring: {enabled: true}
place:
  topology: |
    [[host]]
    name = "n0"
    slots = 8
    lateness = "100us"
    uplink = { rate = "10Gbit/s", buffer = "300KB" }
`

func values(t *testing.T, texts ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		var some map[string]any
		if err := yaml.Unmarshal([]byte(text), &some); err != nil {
			t.Fatal(err)
		}
		for key, value := range some {
			all[key] = value
		}
	}
	return all
}

// helm returns helm's configuration for the test's API server.
func (c *cluster) helm() *action.Configuration {
	c.t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &c.kubecfg
	namespace := "tailbound"
	flags.Namespace = &namespace
	flags.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.QPS, config.Burst = 2000, 2000
		return config
	}
	configuration := action.NewConfiguration()
	if err := configuration.Init(flags, namespace, "secret"); err != nil {
		c.t.Fatal(err)
	}
	return configuration
}

func (c *cluster) install(values map[string]any, dry bool) (*releasev1.Release, error) {
	c.t.Helper()
	chart, err := loader.LoadDir("../../chart")
	if err != nil {
		c.t.Fatal(err)
	}
	install := action.NewInstall(c.helm())
	install.Namespace, install.ReleaseName = "tailbound", "tb"
	install.WaitStrategy = kube.HookOnlyStrategy
	install.Timeout = time.Minute
	if dry {
		install.DryRunStrategy = action.DryRunServer
	}
	released, err := install.RunWithContext(c.t.Context(), chart, values)
	if err != nil {
		return nil, err
	}
	return released.(*releasev1.Release), nil
}

// documents are the objects of a rendered chart.
func documents(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for text := range strings.SplitSeq(manifest, "\n---") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
	return all
}

// dryRun sends every object to the API server, which validates it strictly and stores nothing.
func (c *cluster) dryRun(objects []*unstructured.Unstructured) {
	c.t.Helper()
	client := dynamic.NewForConfigOrDie(c.config)
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(c.config))
	c.must(groups, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			c.t.Errorf("%s %s: %v", kind, object.GetName(), err)
			continue
		}
		var at dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			at = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
		}
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		if _, err := at.Create(c.t.Context(), object, options); err != nil {
			c.t.Errorf("%s %s: %v", kind.Kind, object.GetName(), err)
		}
	}
}

// objects lists everything that is stored, but for what the API server writes for itself.
func (c *cluster) objects() []string {
	c.t.Helper()
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(c.config).ServerPreferredResources()
	c.must(lists, err)
	client := dynamic.NewForConfigOrDie(c.config)
	var all []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		c.must(version, err)
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || slices.Contains([]string{"events", "leases", "componentstatuses"}, resource.Name) {
				continue
			}
			found, err := client.Resource(version.WithResource(resource.Name)).List(c.t.Context(), metav1.ListOptions{})
			c.must(found, err)
			for _, item := range found.Items {
				all = append(all, item.GetKind()+" "+item.GetNamespace()+"/"+item.GetName())
			}
		}
	}
	slices.Sort(all)
	return all
}

// addMonitoring makes the two kinds of the Prometheus operator, which accept everything.
func (c *cluster) addMonitoring() {
	c.t.Helper()
	client := dynamic.NewForConfigOrDie(c.config).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for kind, plural := range map[string]string{"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"} {
		definition := &unstructured.Unstructured{}
		text := fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.monitoring.coreos.com},
			spec: {group: monitoring.coreos.com, scope: Namespaced, names: {kind: %[1]s, plural: %[2]s},
			versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, kind, plural)
		if err := yaml.Unmarshal([]byte(text), &definition.Object); err != nil {
			c.t.Fatal(err)
		}
		c.must(client.Create(c.t.Context(), definition, metav1.CreateOptions{}))
	}
	c.eventually("the kinds are served", 20*time.Second, func() bool {
		list, err := discovery.NewDiscoveryClientForConfigOrDie(c.config).ServerResourcesForGroupVersion("monitoring.coreos.com/v1")
		return err == nil && len(list.APIResources) == 2
	})
}

func TestTheChart(t *testing.T) {
	c := startCluster(t)
	c.addMonitoring()
	c.must(c.client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tailbound"}}, metav1.CreateOptions{}))

	for name, texts := range map[string][]string{"sum": {chartValues}, "service": {chartValues, serviceValues}} {
		t.Run("the API server accepts it by "+name, func(t *testing.T) {
			rendered, err := c.install(values(t, texts...), true)
			c.must(rendered, err)
			objects := documents(t, rendered.Manifest)
			if len(objects) < 10 {
				t.Errorf("%d objects", len(objects))
			}
			c.dryRun(objects)
		})
	}
	t.Run("its slices are those of package tree", func(t *testing.T) {
		all := values(t, chartValues)
		text, err := json.Marshal(all["tree"])
		c.must(text, err)
		topology := topologyOf(t, string(text))
		rendered, err := c.install(all, true)
		c.must(rendered, err)
		slicesByName, classes := map[string]resourceapi.ResourceSliceSpec{}, map[string]resourceapi.DeviceClassSpec{}
		for _, object := range documents(t, rendered.Manifest) {
			text, err := json.Marshal(object.Object)
			c.must(text, err)
			switch object.GetKind() {
			case "ResourceSlice":
				var slice resourceapi.ResourceSlice
				c.must(nil, json.Unmarshal(text, &slice))
				slicesByName[slice.Name] = slice.Spec
			case "DeviceClass":
				var class resourceapi.DeviceClass
				c.must(nil, json.Unmarshal(text, &class))
				classes[class.Name] = class.Spec
			}
		}
		wanted := topology.Slices(1)
		if len(wanted) != len(slicesByName) || len(topology.Classes()) != len(classes) {
			t.Errorf("%d slices and %d classes", len(slicesByName), len(classes))
		}
		for _, slice := range wanted {
			if got := slicesByName[slice.Name]; !apiequality.Semantic.DeepEqual(got, slice.Spec) {
				t.Errorf("%s is %+v, expected %+v", slice.Name, got, slice.Spec)
			}
		}
		for _, class := range topology.Classes() {
			if got := classes[class.Name]; !apiequality.Semantic.DeepEqual(got, class.Spec) {
				t.Errorf("%s is %+v, expected %+v", class.Name, got, class.Spec)
			}
		}
	})
	t.Run("mistakes in values are named", func(t *testing.T) {
		for text, word := range map[string]string{
			"admission: exact": "admission",
			"tree: {node: {rate: 10Gbit, up: 62500, down: 300000}}":      "rate",
			"tree: {node: {rate: 10G, up: 1000, down: 300000}}":          "up",
			"tree: {node: {rate: 10G, up: 62500, down: 300000}, lvl: 1}": "lvl",
			"admission: service": "place.topology is missing",
			"admission: service\nplace: {topology: '[[host]]'}":              "no lateness of its hosts",
			"tree: {node: {rate: 10G, up: 62500, down: 300000, packet: 64}}": "packet",
		} {
			if _, err := c.install(values(t, chartValues, text), true); err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: error %v, expected %q in it", text, err, word)
			}
		}
	})
	t.Run("an uninstall leaves nothing", func(t *testing.T) {
		before := c.objects()
		for _, texts := range [][]string{{chartValues}, {chartValues, serviceValues}} {
			c.must(c.install(values(t, texts...), false))
			if during := c.objects(); len(during) < len(before)+10 {
				t.Errorf("%d objects before, %d after an installation", len(before), len(during))
			}
			uninstall := action.NewUninstall(c.helm())
			uninstall.WaitStrategy = kube.HookOnlyStrategy
			c.must(uninstall.Run("tb"))
			if after := c.objects(); !slices.Equal(before, after) {
				t.Errorf("left %v of %v", after, before)
			}
		}
	})
}
