// Command sandbox starts a pod by the CRI of a node's container runtime with the requests that kubelet sends, for
// the test of claims on the wire:
//
//	sandbox SOCKET POD.json IMAGE
//
// It prints "running", waits for a line on standard input, and removes the pod.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// patience is the longest wait for all requests to the runtime.
const patience = 10 * time.Minute

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

func run(arguments []string) (err error) {
	if len(arguments) != 3 {
		return errors.New("usage: sandbox SOCKET POD.json IMAGE")
	}
	text, err := os.ReadFile(arguments[1])
	if err != nil {
		return err
	}
	var pod v1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		return fmt.Errorf("reading the pod: %w", err)
	}
	connection, err := grpc.NewClient("unix://"+arguments[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	runtime := cri.NewRuntimeServiceClient(connection)
	config := sandboxOf(&pod)
	sandbox, err := runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	defer func() { err = errors.Join(err, remove(ctx, runtime, sandbox.PodSandboxId)) }()
	if err := start(ctx, runtime, &pod, sandbox.PodSandboxId, config, arguments[2]); err != nil {
		return err
	}
	fmt.Println("running")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return nil
}

// sandboxOf has the parts of kubelet's configuration that a network plugin can see.
func sandboxOf(pod *v1.Pod) *cri.PodSandboxConfig {
	labels := map[string]string{
		"io.kubernetes.pod.name": pod.Name, "io.kubernetes.pod.namespace": pod.Namespace, "io.kubernetes.pod.uid": string(pod.UID),
	}
	for name, value := range pod.Labels {
		labels[name] = value
	}
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: pod.Name, Uid: string(pod.UID), Namespace: pod.Namespace},
		Hostname: pod.Name, Labels: labels, Annotations: pod.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod" + string(pod.UID)},
	}
}

func start(ctx context.Context, runtime cri.RuntimeServiceClient, pod *v1.Pod, sandbox string, config *cri.PodSandboxConfig, image string) error {
	container, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: config,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: pod.Spec.Containers[0].Name}, Image: &cri.ImageSpec{Image: image},
			Command: []string{"/bin/sleep"}, Args: []string{"3600"}, Linux: &cri.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return fmt.Errorf("making the container: %w", err)
	}
	if _, err := runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: container.ContainerId}); err != nil {
		return fmt.Errorf("starting the container: %w", err)
	}
	return nil
}

func remove(ctx context.Context, runtime cri.RuntimeServiceClient, sandbox string) error {
	if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return fmt.Errorf("stopping the sandbox: %w", err)
	}
	if _, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: sandbox}); err != nil {
		return fmt.Errorf("removing the sandbox: %w", err)
	}
	return nil
}
