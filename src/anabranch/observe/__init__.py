"""What a run tells about itself: events and numbers, rendered in one way everywhere."""
