"""What the figures of paper 3 share: the runs, the model, and a machine that does so many rows of work per second."""
