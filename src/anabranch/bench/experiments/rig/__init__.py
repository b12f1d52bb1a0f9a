"""What all experiments share: workloads, variants, traces, claims, pictures."""
