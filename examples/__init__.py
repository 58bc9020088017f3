"""Small complete programs made of kformer's layers."""
