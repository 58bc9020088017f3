"""What happens beside the updates of a training."""
