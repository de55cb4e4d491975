//go:build dedicated

package main

import (
	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// Events of the library since 0.12.

func runPod(r *adaptation.Adaptation) error {
	return r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod})
}

func startContainer(r *adaptation.Adaptation, container *api.Container) error {
	return r.StartContainer(ctx, &api.StartContainerRequest{Pod: pod, Container: container})
}

func removeContainer(r *adaptation.Adaptation, container *api.Container) error {
	return r.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: container})
}
