"""What is remembered: immutable sorted runs, the spines that list them, and the manifests that name both."""
