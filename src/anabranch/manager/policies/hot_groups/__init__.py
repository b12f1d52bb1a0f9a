"""What the policy `Diffusion` computes: which groups are too much for a processor, and where they would be better.

work       the work of partition groups, by what arrived and what it costs
loads      which processor has which work, and which groups are hot or diffused
spreading  over how many processors hot groups are spread, which ones, and with which weights
partings   when operators that run fused are set apart for that
"""
