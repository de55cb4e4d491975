//go:build !dedicated

package main

import (
	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// Events of the library before 0.12.

func runPod(r *adaptation.Adaptation) error {
	return r.RunPodSandbox(ctx, &api.StateChangeEvent{Pod: pod})
}

func startContainer(r *adaptation.Adaptation, container *api.Container) error {
	return r.StartContainer(ctx, &api.StateChangeEvent{Pod: pod, Container: container})
}

func removeContainer(r *adaptation.Adaptation, container *api.Container) error {
	return r.RemoveContainer(ctx, &api.StateChangeEvent{Pod: pod, Container: container})
}
